package memfabric

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
)

const (
	firstFreePort = 1 << 15 // where the search for a free port starts
	maxPort       = 1<<16 - 1
)

type listener struct {
	object
	dev  *Device
	port uint16
	on   func(fabric.Request)
}

// Listen accepts requests for 127.0.0.1 and ::1. The ports belong to this fabric alone; none is
// privileged.
func (d *Device) Listen(port uint16, on func(fabric.Request)) (fabric.Listener, error) {
	const op = "listen"
	if on == nil {
		return nil, invalid(op, "no handler")
	}
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if port == 0 {
		port = f.freePort()
	}
	if port == 0 || f.listeners[port] != nil {
		return nil, fmt.Errorf("%s: %s: port %d: %w", deviceName, op, port, fabric.ErrAddrInUse)
	}
	if err := d.take(op, Listeners); err != nil {
		return nil, err
	}
	l := &listener{dev: d, port: port, on: on}
	f.listeners[port] = l
	return l, nil
}

// freePort returns an unused port, 0 if there is none; mu is held.
func (f *Fabric) freePort() uint16 {
	for range maxPort - firstFreePort + 1 {
		p := f.nextPort
		if f.nextPort++; f.nextPort == 0 {
			f.nextPort = firstFreePort
		}
		if f.listeners[p] == nil {
			return p
		}
	}
	return 0
}

func (l *listener) Addr() netip.AddrPort { return netip.AddrPortFrom(addr4, l.port) }

func (l *listener) Close() error {
	f := l.dev.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.closed {
		return failed("close listener", fabric.ErrClosed)
	}
	l.closed = true
	if f.listeners[l.port] == l { // not so after a removal
		delete(f.listeners, l.port)
	}
	l.dev.count[Listeners]--
	return nil
}

// request is a connection request at the passive end. Its fields are fixed but for answered.
type request struct {
	lis      *listener
	from     *conn
	private  []byte
	in, out  uint8
	answered bool
}

// arrive runs in the dispatcher of the listener's device.
func (r *request) arrive() {
	l := r.lis
	f := l.dev.f
	f.mu.Lock()
	switch {
	case l.dev.faults.removed.Load():
		f.mu.Unlock()
		return
	case l.closed:
		r.from.turnDown(l.dev, fabric.ConnEvent{Kind: fabric.EventRejected})
		f.mu.Unlock()
		return
	}
	l.dev.requests[r] = struct{}{}
	f.mu.Unlock()
	l.on(r)
}

func (r *request) LocalAddr() netip.AddrPort   { return r.from.remote }
func (r *request) RemoteAddr() netip.AddrPort  { return r.from.local }
func (r *request) Private() ([]byte, bool)     { return slices.Clone(r.private), false }
func (r *request) ReadDepths() (in, out uint8) { return r.in, r.out }

// pending returns an error if the request cannot be answered; Fabric.mu is held.
func (r *request) pending(op string) error {
	if r.answered {
		return failed(op+": the request has been answered", fabric.ErrClosed)
	}
	return r.lis.dev.usable(op)
}

// answer marks the request as answered; Fabric.mu is held.
func (r *request) answer() {
	r.answered = true
	delete(r.lis.dev.requests, r)
}

// refuse rejects the request for a closed device; Fabric.mu is held.
func (r *request) refuse() {
	r.answer()
	r.from.turnDown(r.lis.dev, fabric.ConnEvent{Kind: fabric.EventRejected})
}

func (r *request) Reject(private []byte, byConsumer bool) error {
	const op = "reject"
	f := r.lis.dev.f
	if len(private) > f.attr.MaxRejectData {
		return invalid(op, "private data of %d bytes is above the limit %d", len(private), f.attr.MaxRejectData)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.pending(op); err != nil {
		return err
	}
	r.answer()
	ev := fabric.ConnEvent{Kind: fabric.EventRejected, Private: slices.Clone(private)}
	if byConsumer {
		ev.Kind = fabric.EventPeerRejected
	}
	r.from.turnDown(r.lis.dev, ev)
	return nil
}

func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	const op = "accept"
	d := r.lis.dev
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.pending(op); err != nil {
		return nil, err
	}
	c, err := d.newConn(op, q, p.Private, f.attr.MaxAcceptData, on)
	if err != nil {
		return nil, err
	}
	c.state = accepting
	c.local, c.remote = r.from.remote, r.from.local
	c.in, c.out = min(p.ReadIn, r.in), min(p.ReadOut, r.out)
	c.peer = r.from
	c.qp.awaited.Store(c)
	if !c.qp.connect(r.from.qp, c.in, c.out) {
		c.drop()
		return nil, failed(op, fabric.ErrQPState)
	}
	r.answer()
	private := slices.Clone(p.Private)
	d.send(MsgReply, r.from.dev, func() { r.from.replied(c, private) })
	c.expire(fabric.EventFailed)
	return c, nil
}
