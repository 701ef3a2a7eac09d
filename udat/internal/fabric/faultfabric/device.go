package faultfabric

import (
	"sync"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Wrap decorates a fabric.
func (s *Script) Wrap(f fabric.Fabric) fabric.Fabric { return decorated{f, s} }

// Inner returns the fabric's own object that a decorator wraps. It returns any other object
// unchanged. Tests use Inner if they need a certain fabric.
func Inner(object any) any {
	switch o := object.(type) {
	case *device:
		return o.Device
	case *cq:
		return o.CQ
	case *qp:
		return o.QP
	case *srq:
		return o.SRQ
	}
	return object
}

type decorated struct {
	fabric.Fabric
	s *Script
}

func (f decorated) Open(name string, opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	d := &device{s: f.s, objects: make(map[any]any)}
	var handler func(fabric.AsyncEvent)
	if async != nil {
		handler = func(ev fabric.AsyncEvent) { d.async(ev, async) }
	}
	// Asynchronous events may come before Open has returned. The handler uses d, but not d.Device,
	// which is not set yet.
	inner, err := f.Fabric.Open(name, opts, handler)
	if err != nil {
		return nil, err
	}
	d.Device = inner
	return d, nil
}

type device struct {
	fabric.Device
	s *Script

	mu      sync.Mutex
	objects map[any]any // maps the fabric's CQs, QPs and SRQs, which its asynchronous events name, to their decorators
}

// setDecorator records the decorator of an object. Asynchronous events then refer to the decorator
// instead of the object.
func (d *device) setDecorator(object, decorator any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[object] = decorator
}

func (d *device) async(ev fabric.AsyncEvent, async func(fabric.AsyncEvent)) {
	d.mu.Lock()
	if c, ok := d.objects[ev.CQ].(*cq); ok {
		ev.CQ = c
	}
	if q, ok := d.objects[ev.QP].(*qp); ok {
		ev.QP = q
	}
	if s, ok := d.objects[ev.SRQ].(*srq); ok {
		ev.SRQ = s
	}
	d.mu.Unlock()
	d.s.do(Async, d, int(ev.Kind), func() error { async(ev); return nil })
}

func (d *device) Attr() fabric.Attr {
	a := d.Device.Attr()
	if d.s.Attr != nil {
		d.s.Attr(&a)
	}
	return a
}

func (d *device) AllocPD() (fabric.PD, error) {
	inner, err := create(d.s, AllocPD, d, 0, d.Device.AllocPD)
	if err != nil {
		return nil, err
	}
	return &pd{inner, d}, nil
}

func (d *device) CreateCQ(depth int) (fabric.CQ, error) {
	inner, err := create(d.s, CreateCQ, d, depth, func() (fabric.CQ, error) { return d.Device.CreateCQ(depth) })
	if err != nil {
		return nil, err
	}
	c := &cq{inner, d}
	d.setDecorator(inner, c)
	return c, nil
}

func (d *device) CreateQP(init fabric.QPInit) (fabric.QP, error) {
	if p, ok := init.PD.(*pd); ok {
		init.PD = p.PD
	}
	if c, ok := init.SendCQ.(*cq); ok {
		init.SendCQ = c.CQ
	}
	if c, ok := init.RecvCQ.(*cq); ok {
		init.RecvCQ = c.CQ
	}
	if s, ok := init.SRQ.(*srq); ok {
		init.SRQ = s.SRQ
	}
	inner, err := create(d.s, CreateQP, d, 0, func() (fabric.QP, error) { return d.Device.CreateQP(init) })
	if err != nil {
		return nil, err
	}
	q := &qp{inner, d}
	d.setDecorator(inner, q)
	return q, nil
}

func (d *device) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	handler := on
	if on != nil {
		handler = func(r fabric.Request) { on(&request{r, d}) }
	}
	return create(d.s, Listen, d, int(port), func() (fabric.Listener, error) {
		return d.Device.Listen(port, accept, handler)
	})
}

func (d *device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	own, inner := d.unwrap(q)
	return d.connection(Connect, own, on, func(on func(fabric.ConnEvent)) (fabric.Conn, error) {
		return d.Device.Connect(inner, p, on)
	})
}

// unwrap returns two objects for a queue pair: the decorator, which rules refer to, and the object
// of the decorated fabric. If q is not decorated, both are q.
func (d *device) unwrap(q fabric.QP) (own any, inner fabric.QP) {
	if w, ok := q.(*qp); ok {
		return w, w.QP
	}
	return q, q
}

// connection calls fn, which makes a connection of queue pair q. The rules for ConnEvent apply to
// the connection's events.
func (d *device) connection(call Call, q any, on func(fabric.ConnEvent),
	fn func(func(fabric.ConnEvent)) (fabric.Conn, error)) (fabric.Conn, error) {
	handler := on
	if on != nil {
		handler = func(ev fabric.ConnEvent) {
			d.s.do(ConnEvent, q, int(ev.Kind), func() error { on(ev); return nil })
		}
	}
	inner, err := create(d.s, call, q, 0, func() (fabric.Conn, error) { return fn(handler) })
	if err != nil {
		return nil, err
	}
	return &conn{inner, d.s, q}, nil
}

func (d *device) Close() error { return d.s.do(Close, d, 0, d.Device.Close) }

// end closes an object that asynchronous events may name.
func (d *device) end(own, inner any, end func() error) error {
	return d.s.do(Close, own, 0, func() error {
		err := end()
		if err == nil {
			d.mu.Lock()
			delete(d.objects, inner)
			d.mu.Unlock()
		}
		return err
	})
}

type pd struct {
	fabric.PD
	d *device
}

func (p *pd) RegMR(buf []byte, access fabric.Access) (fabric.MR, error) {
	inner, err := create(p.d.s, RegMR, p.d, len(buf), func() (fabric.MR, error) { return p.PD.RegMR(buf, access) })
	if err != nil {
		return nil, err
	}
	return &mr{inner, p.d, len(buf)}, nil
}

type mr struct {
	fabric.MR
	d    *device
	size int
}

func (m *mr) Close() error { return m.d.s.do(DeregMR, m.d, m.size, m.MR.Close) }

func (p *pd) AllocMW() (fabric.MW, error) { return create(p.d.s, AllocMW, p.d, 0, p.PD.AllocMW) }

func (p *pd) CreateSRQ(depth, maxSGE int) (fabric.SRQ, error) {
	inner, err := create(p.d.s, CreateSRQ, p.d, depth, func() (fabric.SRQ, error) { return p.PD.CreateSRQ(depth, maxSGE) })
	if err != nil {
		return nil, err
	}
	s := &srq{inner, p.d}
	p.d.setDecorator(inner, s)
	return s, nil
}

func (p *pd) Close() error { return p.d.s.do(Close, p, 0, p.PD.Close) }

type cq struct {
	fabric.CQ
	d *device
}

func (c *cq) Poll(wcs []fabric.WC, polls int) (int, error) {
	return create(c.d.s, Poll, c, polls, func() (int, error) { return c.CQ.Poll(wcs, polls) })
}

func (c *cq) Arm(solicitedOnly bool) error {
	arg := 0
	if solicitedOnly {
		arg = 1
	}
	return c.d.s.do(Arm, c, arg, func() error { return c.CQ.Arm(solicitedOnly) })
}

func (c *cq) Wait(deadline time.Time) (fired bool, err error) {
	return create(c.d.s, Wait, c, 0, func() (bool, error) { return c.CQ.Wait(deadline) })
}

func (c *cq) Resize(depth int) error {
	return c.d.s.do(Resize, c, depth, func() error { return c.CQ.Resize(depth) })
}

func (c *cq) Close() error { return c.d.end(c, c.CQ, c.CQ.Close) }

type srq struct {
	fabric.SRQ
	d *device
}

func (s *srq) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	return result(s.d.s, PostRecv, s, len(wrs), len(wrs), func() (int, error) { return s.SRQ.PostRecv(wrs, sges) })
}

func (s *srq) Resize(depth int) error {
	return s.d.s.do(Resize, s, depth, func() error { return s.SRQ.Resize(depth) })
}

func (s *srq) SetLimit(limit int) error {
	return s.d.s.do(Limit, s, limit, func() error { return s.SRQ.SetLimit(limit) })
}

func (s *srq) Close() error { return s.d.end(s, s.SRQ, s.SRQ.Close) }

type qp struct {
	fabric.QP
	d *device
}

func (q *qp) PostSend(wrs []fabric.SendWR, sges []fabric.SGE) (int, error) {
	return result(q.d.s, PostSend, q, len(wrs), len(wrs), func() (int, error) { return q.QP.PostSend(wrs, sges) })
}

func (q *qp) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	return result(q.d.s, PostRecv, q, len(wrs), len(wrs), func() (int, error) { return q.QP.PostRecv(wrs, sges) })
}

func (q *qp) Bind(w fabric.MW, wr fabric.BindWR) (rkey uint32, err error) {
	if r, ok := wr.MR.(*mr); ok {
		wr.MR = r.MR
	}
	return create(q.d.s, Bind, q, 0, func() (uint32, error) { return q.QP.Bind(w, wr) })
}

func (q *qp) SetError() error { return q.d.s.do(SetError, q, 0, q.QP.SetError) }

func (q *qp) Close() error { return q.d.end(q, q.QP, q.QP.Close) }

type conn struct {
	fabric.Conn
	s  *Script
	qp any
}

func (c *conn) Disconnect() error { return c.s.do(Disconnect, c.qp, 0, c.Conn.Disconnect) }

func (c *conn) Close() error { return c.s.do(Close, c, 0, c.Conn.Close) }

type request struct {
	fabric.Request
	d *device
}

func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	own, inner := r.d.unwrap(q)
	return r.d.connection(Accept, own, on, func(on func(fabric.ConnEvent)) (fabric.Conn, error) {
		return r.Request.Accept(inner, p, on)
	})
}

func (r *request) Reject(private []byte, byConsumer bool) error {
	return r.d.s.do(Reject, r.d, 0, func() error { return r.Request.Reject(private, byConsumer) })
}
