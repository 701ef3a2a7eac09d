package verbsfabric

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

const patience = 30 * time.Second

var noAddr netip.AddrPort

// opened is an open device and what a queue pair is made of; everything is closed at the test's
// end.
type opened struct {
	fabric.Device
	dev *device
	t   *testing.T
	pd  fabric.PD
	cq  fabric.CQ
}

func openDevice(t *testing.T) *opened {
	t.Helper()
	d := openNamed(t, testDevice(t))
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

// baseOf is the device under the decorators.
func baseOf(d fabric.Device) *device { return d.(interface{ base() *device }).base() }

func openNamed(t *testing.T, name string) fabric.Device {
	t.Helper()
	d, err := New().Open(name, fabric.Options{RNRRetry: 7, Retry: 7}, nil)
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
	l, err := o.Listen(0, func(r fabric.Request) { requests <- r })
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

// A device answers to its name, its name with the port, and each of its addresses.
func TestOpen(t *testing.T) {
	name := testDevice(t)
	infos, err := New().Devices()
	assert.NilError(t, err)
	d := openNamed(t, name)
	t.Logf("%s: %s", name, d.Attr().Info.Detail)
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

// raw is a peer that uses the connection manager as any other program does.
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

// Rejects are told apart by the marker, not by the reason: the kernel uses that of consumers when a
// program dies.
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

// A peer that never answers a disconnect holds nothing up: Close returns, and what lingers ends
// within its bound, or with the device at once.
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
	assert.Assert(t, time.Since(start) < lingerTime)
	peer.event(cverbs.CMEventDisconnected)
	assert.Equal(t, cverbs.Live()["CMID"], live, "it lingers")
	for deadline := time.Now().Add(lingerTime +
		patience); cverbs.Live()["CMID"] >= live; time.Sleep(50 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(deadline), "it lingers for ever")
	}

	t.Run("device", func(t *testing.T) {
		other := openDevice(t)
		other.t = t
		conn := up(other)
		assert.NilError(t, conn.Close())
		peer.event(cverbs.CMEventDisconnected)
	}) // its end closes the device, and Live would tell
	for _, id := range ids {
		assert.NilError(t, id.Close())
	}
	assert.Equal(t, cverbs.Live()["CMID"], 1+len(o.dev.pinged.ids), "those that listen")
}

// The removal of the device ends every connection once, and the device is told to be gone once.
func TestRemoval(t *testing.T) {
	name := testDevice(t)
	asyncs := make(chan fabric.AsyncEvent, 16)
	d, err := New().Open(name, fabric.Options{RNRRetry: 7, Retry: 7}, func(ev fabric.AsyncEvent) { asyncs <- ev })
	assert.NilError(t, err)
	o := &opened{t: t, Device: d, dev: baseOf(d)}
	t.Cleanup(func() { assert.NilError(t, d.Close()) })
	o.pd, err = d.AllocPD()
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, o.pd.Close()) })
	o.cq, err = d.CreateCQ(16)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, o.cq.Close()) })
	l, requests := o.listen()
	conn, events := o.connect(l.Addr())
	r := receive(t, requests)
	accepted := make(chan fabric.ConnEvent, 16)
	passive, err := r.Accept(o.newQP(), fabric.AcceptParams{}, func(ev fabric.ConnEvent) { accepted <- ev })
	assert.NilError(t, err)
	assert.Equal(t, receive(t, events).Kind, fabric.EventEstablished)
	assert.Equal(t, receive(t, accepted).Kind, fabric.EventEstablished)
	for range 2 { // as the kernel tells it: by the context and by every id
		o.dev.post(func() { o.dev.asyncEvent(cverbs.AsyncEvent{Type: cverbs.AsyncDeviceFatal}) })
	}
	assert.Equal(t, receive(t, asyncs).Kind, fabric.AsyncDeviceFatal)
	assert.Equal(t, receive(t, events).Kind, fabric.EventRemoved)
	assert.Equal(t, receive(t, accepted).Kind, fabric.EventRemoved)
	assert.NilError(t, conn.Disconnect())
	assert.NilError(t, conn.Close())
	assert.NilError(t, passive.Close())
	select {
	case ev := <-events:
		t.Errorf("and then %+v", ev)
	case ev := <-asyncs:
		t.Errorf("and then %+v", ev)
	case <-time.After(50 * time.Millisecond):
	}
}

// A request whose peer's departure is known before the answer: the accept succeeds and fails later,
// a reject does nothing. Kernels drop such events until the accept; this is for those that will
// not.
func TestLostRequest(t *testing.T) {
	o := openDevice(t)
	l, requests := o.listen()
	for _, accept := range []bool{true, false} {
		active, _ := o.connect(l.Addr())
		r := receive(t, requests).(*request)
		r.c.handle(cverbs.CMEvent{Type: cverbs.CMEventRejected, Status: cverbs.RejectConsumerDefined})
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

// TestCloseBesideReject closes a device while its requests are rejected.
func TestCloseBesideReject(t *testing.T) {
	o := openDevice(t)
	for range 10 {
		d, err := New().Open(testDevice(t), fabric.Options{RNRRetry: 7, Retry: 7}, nil)
		assert.NilError(t, err)
		requests := make(chan fabric.Request, 16)
		l, err := d.Listen(0, func(r fabric.Request) { requests <- r })
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
