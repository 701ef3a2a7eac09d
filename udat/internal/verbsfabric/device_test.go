package verbsfabric

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/cm"
)

const patience = 30 * time.Second

var noAddr netip.AddrPort

// opened is an open device with the domain and the queues for queue pairs. Everything is closed at
// the test's end.
type opened struct {
	fabric.Device
	dev *device
	t   *testing.T
	pd  fabric.PD
	cq  fabric.CQ
}

func openDevice(t *testing.T) *opened {
	t.Helper()
	return openedAs(t, openNamed(t, testDevice(t)))
}

func openedAs(t *testing.T, d fabric.Device) *opened {
	t.Helper()
	o := &opened{t: t, Device: d, dev: baseOf(d)}
	var err error
	o.pd, err = o.AllocPD()
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, o.pd.Close()) })
	o.cq, err = o.CreateCQ(16)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, o.cq.Close()) })
	return o
}

// baseOf returns the device inside the decorators.
func baseOf(d fabric.Device) *device {
	base, _ := own[*device](d)
	return base
}

func openNamed(t *testing.T, name string) fabric.Device {
	t.Helper()
	d, err := New().Open(name, fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry}, nil)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, d.Close()) })
	return d
}

func (o *opened) newQP() fabric.QP {
	o.t.Helper()
	q, err := o.CreateQP(fabric.QPInit{PD: o.pd, SendCQ: o.cq, RecvCQ: o.cq, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1,
		MaxRecvSGE: 1})
	assert.NilError(o.t, err)
	o.t.Cleanup(func() { assert.NilError(o.t, q.Close()) })
	return q
}

// listen starts a service; its requests arrive on the channel.
func (o *opened) listen() (fabric.Listener, chan fabric.Request) {
	o.t.Helper()
	requests := make(chan fabric.Request, 16)
	l, err := o.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(o.t, err)
	o.t.Cleanup(func() { assert.NilError(o.t, l.Close()) })
	return l, requests
}

// connect starts a connection; its events arrive on the channel.
func (o *opened) connect(to netip.AddrPort, private ...byte) (fabric.Conn, chan fabric.ConnEvent) {
	o.t.Helper()
	events := make(chan fabric.ConnEvent, 16)
	c, err := o.Connect(o.newQP(), fabric.ConnectParams{Remote: to, Private: private},
		func(ev fabric.ConnEvent) { events <- ev })
	assert.NilError(o.t, err)
	return c, events
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("no %T", *new(T))
		panic("unreachable")
	}
}

// A device can be opened by its name, its name with the port, and each of its addresses.
func TestOpen(t *testing.T) {
	name := testDevice(t)
	infos, err := New().Devices()
	assert.NilError(t, err)
	d := openNamed(t, name)
	t.Logf("%s: %s", name, d.Attr().Info.Detail)
	p := baseOf(d).port
	assert.Assert(t, strings.HasPrefix(d.Attr().Info.Detail, fmt.Sprintf("%s over %v, port %v, IP %v, ", p.transport(),
		p.attr.LinkLayer, p.attr.State, p.addrs[0])), "%s", d.Attr().Info.Detail)
	found := slices.ContainsFunc(infos, func(i fabric.DeviceInfo) bool { return reflect.DeepEqual(i, d.Attr().Info) })
	assert.Assert(t, found, "%+v lacks %+v", infos, d.Attr().Info)
	assert.Assert(t, reflect.DeepEqual(openNamed(t, name+"/1").Attr().Info, d.Attr().Info))
	assert.Assert(t, slices.Equal(d.Attr().Info.Addrs, baseOf(d).addrs))
	for _, a := range baseOf(d).addrs {
		other := openNamed(t, a.String())
		assert.Equal(t, other.Attr().Info.Name, name)
		assert.Equal(t, other.Attr().Info.Addr, a)
	}
	for _, bad := range []string{name + "/0", name + "/2", name + "/x", name + "x"} {
		_, err := New().Open(bad, fabric.Options{}, nil)
		assert.ErrorIs(t, err, fabric.ErrNoDevice)
	}
}

// A listener takes requests on every address of the device.
func TestListenFamilies(t *testing.T) {
	o := openDevice(t)
	l, requests := o.listen()
	families := map[bool]bool{}
	for _, a := range o.dev.addrs {
		if a.IsLinkLocalUnicast() {
			continue
		}
		families[a.Is4()] = true
		c, events := o.connect(netip.AddrPortFrom(a, l.Addr().Port()))
		r := receive(t, requests)
		assert.Equal(t, r.LocalAddr().Addr(), a)
		assert.Equal(t, r.RemoteAddr(), c.LocalAddr())
		assert.NilError(t, r.Reject(nil, true))
		assert.Equal(t, receive(t, events).Kind, fabric.EventPeerRejected)
		assert.NilError(t, c.Close())
	}
	t.Logf("%d addresses, %d families", len(o.dev.addrs), len(families))
}

// TestListenSecondAddress: Listen fails if the port is in use on another address of the device. An
// address on which nothing can listen is skipped.
func TestListenSecondAddress(t *testing.T) {
	o := openDevice(t)
	own, other := o.dev.addrs[0], newRaw(t)
	port := other.listen(own).Port()
	assert.NilError(t, other.id.Close())

	o.dev.addrs = []netip.Addr{own, own} // the second bind finds the port in use by the first
	_, err := o.Listen(port, nil, func(fabric.Request) {})
	assert.ErrorIs(t, err, fabric.ErrAddrInUse)
	_, err = o.Listen(0, nil, func(fabric.Request) {})
	assert.ErrorIs(t, err, fabric.ErrAddrInUse)
	o.dev.addrs = []netip.Addr{own, netip.MustParseAddr("192.0.2.1")} // of the documentation block
	for range 2 {                                                     // the first address has been given back
		l, err := o.Listen(port, nil, func(fabric.Request) {})
		assert.NilError(t, err)
		assert.Equal(t, l.Addr(), netip.AddrPortFrom(own, port))
		assert.NilError(t, l.Close())
	}
}

// TestObjectEvents: an event names its own object and no other, and has the kind that the device
// has reported.
func TestObjectEvents(t *testing.T) {
	var got []fabric.AsyncEvent
	d := &device{cqs: map[*cverbs.CQ]*cq{}, qps: map[*cverbs.QP]*qp{}, srqs: map[*cverbs.SRQ]*srq{},
		async: func(ev fabric.AsyncEvent) { got = append(got, ev) }}
	d.num = 2
	for range 2 {
		var q *qp
		var c *cq
		var s *srq
		for range 3 { // the events are about the last object; the others exist too
			q, c, s = new(qp), new(cq), new(srq)
			q.as, c.as, s.as = q, c, s
			q.v, c.v, s.v = new(cverbs.QP), new(cverbs.CQ), new(cverbs.SRQ)
			d.qps[q.v], d.cqs[c.v], d.srqs[s.v] = q, c, s
		}
		for _, e := range []struct {
			ev   cverbs.AsyncEvent
			want fabric.AsyncEvent
		}{
			{cverbs.AsyncEvent{Type: cverbs.AsyncCQErr, CQ: c.v}, fabric.AsyncEvent{Kind: fabric.AsyncCQError, CQ: c}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncQPFatal, QP: q.v}, fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncQPReqErr, QP: q.v}, fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncQPAccessErr, QP: q.v}, fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncQPLastWQEReached, QP: q.v},
				fabric.AsyncEvent{Kind: fabric.AsyncQPLastWQE, QP: q}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncSRQErr, SRQ: s.v}, fabric.AsyncEvent{Kind: fabric.AsyncSRQError, SRQ: s}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncSRQLimitReached, SRQ: s.v},
				fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: s}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncPortErr, Port: 2}, fabric.AsyncEvent{Kind: fabric.AsyncPortError}},
			{cverbs.AsyncEvent{Type: cverbs.AsyncPortActive, Port: 2}, fabric.AsyncEvent{Kind: fabric.AsyncPortActive}},
		} {
			got = nil
			d.asyncEvent(e.ev)
			assert.Equal(t, len(got), 1, "%v", e.ev.Type)
			assert.Equal(t, got[0], e.want, "%v", e.ev.Type)
		}
		assert.Assert(t, q.lastWQE.Load())
	}
	got = nil
	for _, ev := range []cverbs.AsyncEvent{ // of another port, of closed objects, and of kinds that are not reported
		{Type: cverbs.AsyncPortErr, Port: 1}, {Type: cverbs.AsyncPortActive, Port: 3}, {Type: cverbs.AsyncQPFatal},
		{Type: cverbs.AsyncCQErr, CQ: new(cverbs.CQ)}, {Type: cverbs.AsyncSMChange, Port: 2},
	} {
		d.asyncEvent(ev)
	}
	assert.Equal(t, len(got), 0, "%v", got)
}

// TestObjectEventsFromCreateToClose: events of an object are reported from its creation until it is
// closed.
func TestObjectEventsFromCreateToClose(t *testing.T) {
	o := openDevice(t)
	o.newQP() // so that the device has a table of them
	var got []fabric.AsyncEvent
	d := &device{cqs: o.dev.cqs, qps: o.dev.qps, async: func(ev fabric.AsyncEvent) { got = append(got, ev) }}
	for range 2 {
		c, err := o.CreateCQ(4)
		assert.NilError(t, err)
		q, err := o.CreateQP(fabric.QPInit{PD: o.pd, SendCQ: c, RecvCQ: c, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1,
			MaxRecvSGE: 1})
		assert.NilError(t, err)
		ownCQ, _ := own[*cq](c)
		ownQP, _ := own[*qp](q)
		cqErr := cverbs.AsyncEvent{Type: cverbs.AsyncCQErr, CQ: ownCQ.v}
		qpErr := cverbs.AsyncEvent{Type: cverbs.AsyncQPFatal, QP: ownQP.v}
		got = nil
		d.asyncEvent(cqErr)
		d.asyncEvent(qpErr)
		assert.Equal(t, len(got), 2)
		assert.Equal(t, got[0], fabric.AsyncEvent{Kind: fabric.AsyncCQError, CQ: c})
		assert.Equal(t, got[1], fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q})
		assert.NilError(t, q.Close())
		assert.NilError(t, c.Close())
		d.asyncEvent(cqErr)
		d.asyncEvent(qpErr)
		assert.Equal(t, len(got), 2)
	}
}

// TestNoReceives: a queue pair may have no receives, and no segments.
func TestNoReceives(t *testing.T) {
	o := openDevice(t)
	q, err := o.CreateQP(fabric.QPInit{PD: o.pd, SendCQ: o.cq, RecvCQ: o.cq, MaxSend: 1})
	assert.NilError(t, err)
	assert.NilError(t, q.Close())
	for _, bad := range []fabric.QPInit{{MaxSend: -1}, {MaxRecv: -1}, {MaxSendSGE: -1}, {MaxRecvSGE: -1}, {MaxInline: -1},
		{MaxSend: o.Attr().MaxQPWR + 1}, {MaxRecv: o.Attr().MaxQPWR + 1}, {MaxSendSGE: o.Attr().MaxSGE + 1},
		{MaxRecvSGE: o.Attr().MaxSGE + 1}} {
		bad.PD, bad.SendCQ, bad.RecvCQ = o.pd, o.cq, o.cq
		_, err := o.CreateQP(bad)
		assert.ErrorIs(t, err, fabric.ErrInvalid)
	}
}

// raw is a peer that uses the connection manager like a program without this library.
type raw struct {
	t  *testing.T
	ch *cverbs.EventChannel
	id *cverbs.CMID
}

func newRaw(t *testing.T) *raw {
	t.Helper()
	ch, err := cverbs.CreateEventChannel()
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, ch.Close()) })
	r := &raw{t: t, ch: ch}
	r.id, err = ch.CreateID(cverbs.PortSpaceTCP)
	assert.NilError(t, err)
	t.Cleanup(func() { r.id.Close() })
	return r
}

func (r *raw) event(want cverbs.CMEventType) cverbs.CMEvent {
	r.t.Helper()
	ev, err := r.ch.Get(time.Now().Add(patience))
	assert.NilError(r.t, err)
	assert.Equal(r.t, ev.Type, want)
	return ev
}

func (r *raw) listen(addr netip.Addr) netip.AddrPort {
	r.t.Helper()
	assert.NilError(r.t, r.id.BindAddr(netip.AddrPortFrom(addr, 0)))
	assert.NilError(r.t, r.id.Listen(4))
	return r.id.LocalAddr()
}

// Rejects by consumers are recognized by the marker, not by the reason, because the kernel uses the
// same reason when a program dies.
func TestLegacyReject(t *testing.T) {
	o := openDevice(t)
	peer := newRaw(t)
	addr := peer.listen(o.dev.info.Addr)
	for _, c := range []struct {
		name   string
		answer func(id *cverbs.CMID) error
		want   fabric.ConnEventKind
	}{
		{"with the marker", func(id *cverbs.CMID) error { return id.Reject([]byte("\x02\x00\x02\x00no")) },
			fabric.EventPeerRejected},
		{"without", func(id *cverbs.CMID) error { return id.Reject([]byte("no")) }, fabric.EventRejected},
		{"nothing", func(id *cverbs.CMID) error { return id.Reject(nil) }, fabric.EventRejected},
		{"gone", func(id *cverbs.CMID) error { return nil }, fabric.EventRejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, events := o.connect(addr)
			id := peer.event(cverbs.CMEventConnectRequest).ID
			assert.NilError(t, c.answer(id))
			assert.NilError(t, id.Close())
			ev := receive(t, events)
			assert.Equal(t, ev.Kind, c.want)
			if c.want == fabric.EventPeerRejected {
				assert.Assert(t, bytes.HasPrefix(ev.Private, []byte("no")))
			}
			assert.NilError(t, conn.Close())
		})
	}
}

// TestRejectReasons: the marker alone is not enough, because the data of another program, with
// another reason, may contain it.
func TestRejectReasons(t *testing.T) {
	o := openDevice(t)
	peer := newRaw(t)
	addr := peer.listen(o.dev.info.Addr)
	for status, want := range map[int]fabric.ConnEventKind{
		cverbs.RejectConsumerDefined: fabric.EventPeerRejected, -111: fabric.EventPeerRejected,
		0: fabric.EventRejected, 4: fabric.EventRejected, cverbs.RejectConsumerDefined + 1: fabric.EventRejected,
	} {
		c, events := o.connect(addr)
		req := peer.event(cverbs.CMEventConnectRequest)
		assert.Assert(t, o.dev.iwarp || req.FlowControl && req.RetryCount == o.dev.opts.Retry && req.RNRRetryCount == 7,
			"%+v", req)
		c.(*cm.Conn).Handle(cverbs.CMEvent{Type: cverbs.CMEventRejected, Status: status,
			ConnParam: cverbs.ConnParam{PrivateData: []byte("\x02\x00\x02\x00no")}})
		ev := receive(t, events)
		assert.Equal(t, ev.Kind, want, "reason %d", status)
		assert.NilError(t, c.Close())
		assert.NilError(t, req.ID.Close())
	}
}

// TestReadDepthsAgreed: in each direction, the read depth of the active end is the smaller one of
// its offer and the peer's answer.
func TestReadDepthsAgreed(t *testing.T) {
	o := openDevice(t)
	if o.dev.iwarp {
		t.Skip("an iWARP peer cannot accept without a queue pair")
	}
	peer := newRaw(t)
	addr := peer.listen(o.dev.info.Addr)
	for _, c := range []struct{ in, out, peerIn, peerOut, wantIn, wantOut uint8 }{
		{4, 3, 1, 2, 2, 1}, {4, 3, 2, 1, 1, 2}, {4, 3, 9, 9, 4, 3}, {4, 3, 0, 9, 4, 0}, {4, 3, 9, 0, 0, 3},
		{0, 0, 9, 9, 0, 0},
	} {
		q, events := o.newQP(), make(chan fabric.ConnEvent, 16)
		conn, err := o.Connect(q, fabric.ConnectParams{Remote: addr, ReadIn: c.in, ReadOut: c.out},
			func(ev fabric.ConnEvent) { events <- ev })
		assert.NilError(t, err)
		req := peer.event(cverbs.CMEventConnectRequest)
		assert.Equal(t, [2]uint8{req.ResponderResources, req.InitiatorDepth}, [2]uint8{c.out, c.in}) // as the peer sees it
		assert.NilError(t, req.ID.Accept(cverbs.ConnParam{QPNum: o.newQP().Num(), ResponderResources: c.peerIn,
			InitiatorDepth: c.peerOut}))
		peer.event(cverbs.CMEventEstablished)
		assert.Equal(t, receive(t, events).Kind, fabric.EventEstablished)
		in, out := conn.ReadDepths()
		assert.Equal(t, [2]uint8{in, out}, [2]uint8{c.wantIn, c.wantOut}, "%+v", c)
		assert.NilError(t, conn.Close())
		peer.event(cverbs.CMEventDisconnected)
		assert.NilError(t, req.ID.Close())
	}
}

// A peer that never answers a disconnect delays nothing: Close returns, and the id lingers at most
// for LingerTime, or until the device is closed.
func TestSilentPeer(t *testing.T) {
	o := openDevice(t)
	if o.dev.iwarp {
		t.Skip("an iWARP peer cannot accept without a queue pair")
	}
	peer := newRaw(t)
	addr := peer.listen(o.dev.info.Addr)
	var ids []*cverbs.CMID
	up := func(d *opened) fabric.Conn {
		conn, events := d.connect(addr)
		id := peer.event(cverbs.CMEventConnectRequest).ID
		assert.NilError(t, id.Accept(cverbs.ConnParam{QPNum: o.newQP().Num()}))
		peer.event(cverbs.CMEventEstablished)
		assert.Equal(t, receive(t, events).Kind, fabric.EventEstablished)
		ids = append(ids, id)
		return conn
	}
	conn := up(o)
	live := cverbs.Live()["CMID"]
	start := time.Now()
	assert.NilError(t, conn.Close())
	assert.Assert(t, time.Since(start) < cm.LingerTime)
	peer.event(cverbs.CMEventDisconnected)
	assert.Equal(t, cverbs.Live()["CMID"], live, "it lingers")
	for deadline := time.Now().Add(cm.LingerTime +
		patience); cverbs.Live()["CMID"] >= live; time.Sleep(50 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "it lingers for ever")
	}

	t.Run("device", func(t *testing.T) {
		other := openDevice(t)
		other.t = t
		conn := up(other)
		assert.NilError(t, conn.Close())
		peer.event(cverbs.CMEventDisconnected)
	}) // the end of the test closes the device, and Live would report a leak
	for _, id := range ids {
		assert.NilError(t, id.Close())
	}
	assert.Equal(t, cverbs.Live()["CMID"], 1, "the one that listens")
}

// The peer is known to have given up before the request is answered: Accept succeeds and an event
// reports the failure, Reject does nothing. Current kernels drop such events until the accept; this
// test is for kernels that do not.
func TestLostRequest(t *testing.T) {
	o := openDevice(t)
	l, requests := o.listen()
	for _, accept := range []bool{true, false} {
		active, _ := o.connect(l.Addr())
		r := receive(t, requests).(*cm.Request)
		r.Conn.Handle(cverbs.CMEvent{Type: cverbs.CMEventRejected, Status: cverbs.RejectConsumerDefined})
		if accept {
			events := make(chan fabric.ConnEvent, 16)
			c, err := r.Accept(o.newQP(), fabric.AcceptParams{}, func(ev fabric.ConnEvent) { events <- ev })
			assert.NilError(t, err)
			assert.Equal(t, receive(t, events).Kind, fabric.EventFailed)
			assert.NilError(t, c.Close())
		} else {
			assert.NilError(t, r.Reject(nil, true))
		}
		assert.ErrorIs(t, r.Reject(nil, true), fabric.ErrClosed)
		assert.NilError(t, active.Close())
	}
}

// TestAnswersAreForgotten: a request that has been answered, in any way, leaves nothing behind.
func TestAnswersAreForgotten(t *testing.T) {
	o := openDevice(t)
	l, requests := o.listen()
	open := func() int { return reflect.ValueOf(o.dev.conns).Elem().FieldByName("requests").Len() }
	for name, answer := range map[string]func(fabric.Request) error{
		"reject": func(r fabric.Request) error { return r.Reject(nil, true) },
		"refuse": func(r fabric.Request) error { return r.Reject(nil, false) },
		"accept": func(r fabric.Request) error {
			c, err := r.Accept(o.newQP(), fabric.AcceptParams{}, func(fabric.ConnEvent) {})
			if err == nil {
				err = c.Close()
			}
			return err
		},
	} {
		active, _ := o.connect(l.Addr())
		r := receive(t, requests)
		assert.Equal(t, open(), 1, name)
		assert.NilError(t, answer(r), name)
		assert.Equal(t, open(), 0, name)
		assert.NilError(t, active.Close())
	}
}

// TestCloseBesideReject closes a device while its requests are rejected.
func TestCloseBesideReject(t *testing.T) {
	o := openDevice(t)
	for range 10 {
		d, err := New().Open(testDevice(t), fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry}, nil)
		assert.NilError(t, err)
		requests := make(chan fabric.Request, 16)
		l, err := d.Listen(0, nil, func(r fabric.Request) { requests <- r })
		assert.NilError(t, err)
		var rejects sync.WaitGroup
		start := make(chan bool)
		for range 4 {
			active, _ := o.connect(l.Addr())
			defer func() { assert.NilError(t, active.Close()) }()
			r := receive(t, requests)
			rejects.Go(func() {
				<-start
				if err := r.Reject(nil, true); err != nil {
					assert.Check(t, errors.Is(err, fabric.ErrClosed), "%v", err)
				}
			})
		}
		assert.NilError(t, l.Close())
		close(start)
		assert.NilError(t, d.Close())
		rejects.Wait()
	}
}
