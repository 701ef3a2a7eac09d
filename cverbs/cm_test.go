package cverbs

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Two queue pairs that were not created on their ids, but from an ordinary context, are connected,
// exchange data, and are disconnected.
func TestCMExternalQP(t *testing.T) {
	ctx := openDevice(t)
	addrs := localAddrs(t, ctx)
	assert.Assert(t, len(addrs) > 0)
	for _, addr := range addrs { // IPv4, IPv6, IPv6 link-local with its zone
		t.Run(addr.String(), func(t *testing.T) {
			a, b := newEnd(t, ctx), newEnd(t, ctx)
			client, server, cch, sch := meet(t, ctx, addr, a.qp, b.qp)
			assert.Equal(t, client.Device(), ctx.Name())
			assert.Equal(t, client.Port(), uint8(1))
			assert.Equal(t, client.RemoteAddr(), server.LocalAddr())
			assert.Equal(t, client.LocalAddr(), server.RemoteAddr())
			assert.Equal(t, client.LocalAddr().Addr(), addr)

			fill(a.buf[:5000], 1)
			b.recv(1, b.sge(0, 5000))
			a.send(SendWR{Opcode: OpSend}, a.sge(0, 5000))
			a.sent()
			b.received()
			assert.Assert(t, bytes.Equal(a.buf[:5000], b.buf[:5000]))
			b.send(SendWR{Opcode: OpRDMARead, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()}, b.sge(10000, 5000))
			b.sent()
			assert.Assert(t, bytes.Equal(a.buf[:5000], b.buf[10000:15000]))

			assert.NilError(t, client.Disconnect())
			assert.Equal(t, want(t, sch, CMEventDisconnected).ID, server)
			assert.NilError(t, server.Disconnect()) // answers the peer's Disconnect
			want(t, cch, CMEventDisconnected)
		})
	}
}

// Queue pairs that were created on their ids: librdmacm moves them through their states.
func TestCMOwnQP(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	sch, lid := listen(t, localAddr(t, ctx))
	cch := closing[*EventChannel](t)(CreateEventChannel())
	client := resolve(t, cch, lid.LocalAddr())

	type side struct {
		pd *PD
		cq *CQ
		qp *QP
		mr *MR
	}
	buf := make([]byte, 200)
	build := func(id *CMID) (s side) {
		c, err := id.Context()
		assert.NilError(t, err)
		isErr(t, c.Close(), ErrInUse)
		s.pd = closing[*PD](t)(c.AllocPD())
		s.cq = closing[*CQ](t)(c.CreateCQ(16, nil, 0))
		s.mr = closing[*MR](t)(s.pd.RegMR(buf, AccessLocalWrite))
		s.qp = closing[*QP](t)(id.CreateQP(s.pd, QPInit{SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap}))
		_, err = id.CreateQP(s.pd, QPInit{SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap})
		assert.ErrorContains(t, err, "has a queue pair already")
		isErr(t, id.Close(), ErrInUse)
		return s
	}
	a := build(client)
	assert.NilError(t, client.Connect(ConnParam{RetryCount: 7, RNRRetryCount: 7}))
	server := closing[*CMID](t)(want(t, sch, CMEventConnectRequest).ID, nil)
	b := build(server)
	_, err := b.qp.PostRecv([]RecvWR{{ID: 1, NumSGE: 1}}, []SGE{{Addr: b.mr.Addr() + 100, Length: 100, LKey: b.mr.LKey()}})
	assert.NilError(t, err)
	assert.NilError(t, server.Accept(ConnParam{RNRRetryCount: 7}))
	want(t, cch, CMEventEstablished)
	want(t, sch, CMEventEstablished)
	copy(buf, "through the id's own queue pair")
	_, err = a.qp.PostSend([]SendWR{{Opcode: OpSend, NumSGE: 1, Flags: SendSignaled}},
		[]SGE{{Addr: a.mr.Addr(), Length: 100, LKey: a.mr.LKey()}})
	assert.NilError(t, err)
	assert.Equal(t, poll(t, b.cq, 1)[0].Status, WCSuccess)
	assert.Assert(t, bytes.Equal(buf[:100], buf[100:]))
	poll(t, a.cq, 1)

	own, err := ctx.AllocPD()
	assert.NilError(t, err)
	defer own.Close()
	_, err = closing[*CMID](t)(cch.CreateID(PortSpaceTCP)).CreateQP(own, QPInit{SendCQ: a.cq, RecvCQ: a.cq})
	isErr(t, err, syscall.EINVAL)
	assert.NilError(t, client.Disconnect())
	want(t, sch, CMEventDisconnected)
	assert.NilError(t, server.Disconnect())
	want(t, cch, CMEventDisconnected)
	state, err := a.qp.State()
	assert.NilError(t, err)
	assert.Assert(t, state == QPStateErr || isIWARP(t, ctx), "%v", state)
}

func TestCMReject(t *testing.T) {
	ctx := openDevice(t)
	addr := localAddr(t, ctx)
	e := newEnd(t, ctx)
	sch, lid := listen(t, addr)
	cch := closing[*EventChannel](t)(CreateEventChannel())
	client := resolve(t, cch, lid.LocalAddr())
	assert.NilError(t, client.Connect(ConnParam{QPNum: e.qp.Num()}))
	server := closing[*CMID](t)(want(t, sch, CMEventConnectRequest).ID, nil)
	if !isIWARP(t, ctx) && ctx.Name() != "loop0" { // these carry more
		assert.ErrorContains(t, server.Reject(make([]byte, 149)), "private data is 149 bytes, the limit is 148")
	}
	assert.NilError(t, server.Reject([]byte("no room")))
	ev := want(t, cch, CMEventRejected)
	assert.Equal(t, ev.ID, client)
	assert.Equal(t, string(ev.PrivateData[:7]), "no room")
	isErr(t, ev.Err(), syscall.ECONNREFUSED)

	// Nobody listens on that port any more.
	to := lid.LocalAddr()
	assert.NilError(t, server.Close())
	assert.NilError(t, lid.Close())
	client = resolve(t, cch, to)
	if err := client.Connect(ConnParam{QPNum: e.qp.Num()}); err != nil {
		isErr(t, err, syscall.ECONNREFUSED) // on iWARP Connect itself may return it
		return
	}
	ev = want(t, cch, CMEventRejected)
	isErr(t, ev.Err(), syscall.ECONNREFUSED)
	assert.Assert(t, ev.Status == RejectNoListener || isIWARP(t, ctx), "%d", ev.Status)
}

// A listener closes while a request is pending: the peer is rejected and the request's event is
// dropped.
func TestCMListenerGone(t *testing.T) {
	ctx := openDevice(t)
	e := newEnd(t, ctx)
	sch, lid := listen(t, localAddr(t, ctx))
	cch := closing[*EventChannel](t)(CreateEventChannel())
	client := resolve(t, cch, lid.LocalAddr())
	assert.NilError(t, client.Connect(ConnParam{QPNum: e.qp.Num()}))
	time.Sleep(100 * time.Millisecond)
	assert.NilError(t, lid.Close())
	want(t, cch, CMEventRejected)
	_, err := sch.Get(time.Now().Add(10 * time.Millisecond))
	isErr(t, err, os.ErrDeadlineExceeded)
	assert.NilError(t, sch.Close())
}

func TestCMMigrate(t *testing.T) {
	ctx := openDevice(t)
	sch, lid := listen(t, localAddr(t, ctx))
	one := closing[*EventChannel](t)(CreateEventChannel())
	two := closing[*EventChannel](t)(CreateEventChannel())
	id := closing[*CMID](t)(one.CreateID(PortSpaceTCP))
	assert.NilError(t, id.ResolveAddr(netip.AddrPort{}, lid.LocalAddr(), time.Second))
	want(t, one, CMEventAddrResolved)
	assert.NilError(t, id.Migrate(two))
	assert.NilError(t, one.Close()) // no id uses the channel any more
	isErr(t, two.Close(), ErrInUse)
	assert.NilError(t, id.ResolveRoute(time.Second))
	want(t, two, CMEventRouteResolved)
	isErr(t, id.Migrate(one), ErrClosed)
	isErr(t, id.Migrate(nil), syscall.EINVAL)

	// The id moves to another channel and back: only the latest channel is in use, and delivers the
	// events.
	three := closing[*EventChannel](t)(CreateEventChannel())
	for _, to := range []*EventChannel{three, two, two, three} {
		assert.NilError(t, id.Migrate(to))
		assert.ErrorContains(t, to.Close(), "in use by 1 CMID")
	}
	assert.NilError(t, two.Close())
	// A listener moves, too: its requests come to its current channel.
	four := closing[*EventChannel](t)(CreateEventChannel())
	assert.NilError(t, lid.Migrate(four))
	assert.NilError(t, sch.Close())
	e := newEnd(t, ctx)
	assert.NilError(t, id.Connect(ConnParam{QPNum: e.qp.Num()}))
	server := closing[*CMID](t)(want(t, four, CMEventConnectRequest).ID, nil)
	assert.ErrorContains(t, four.Close(), "in use by 2 CMID")
	assert.NilError(t, server.Reject(nil))
	assert.Equal(t, want(t, three, CMEventRejected).ID, id)
	for _, c := range []closer{id, server, lid, three, four} {
		assert.NilError(t, c.Close())
	}
}

// Calls in which librdmacm would crash, and calls with arguments out of range, return an error that
// names the argument.
func TestCMBadInput(t *testing.T) {
	openDevice(t)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	for name, f := range map[string]func() error{
		"resolve_route": func() error { return id.ResolveRoute(time.Second) },
		"connect":       func() error { return id.Connect(ConnParam{}) },
		"accept":        func() error { return id.Accept(ConnParam{}) },
		"reject":        func() error { return id.Reject(nil) },
		"establish":     func() error { return id.Establish() },
		"disconnect":    func() error { return id.Disconnect() },
		"notify":        func() error { return id.Notify(AsyncCommEst) },
		"init_qp_attr":  func() error { _, _, err := id.InitQPAttr(QPStateInit); return err },
	} {
		err := f()
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, "rdma_"+name)
		assert.ErrorContains(t, err, " on an id after CreateID: it needs ")
	}
	_, err := id.Context()
	assert.ErrorContains(t, err, "not bound")
	assert.Equal(t, id.Device(), "")
	assert.Equal(t, Live()["EventChannel"], 1)

	unicast, group := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("239.1.2.3")
	assert.ErrorContains(t, id.JoinMulticast(unicast, JoinFullMember), "192.0.2.1 is not a multicast address")
	assert.ErrorContains(t, id.JoinMulticast(group, JoinFullMember), "not bound to a device")
	assert.ErrorContains(t, id.BindAddr(netip.AddrPort{}), "not a valid address")
	assert.ErrorContains(t, id.BindAddr(netip.MustParseAddrPort("[fe80::1%nosuch]:0")), `no network interface "nosuch"`)
	assert.ErrorContains(t, id.BindAddr(netip.MustParseAddrPort("203.0.113.9:0")), "no RDMA device")
	assert.ErrorContains(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPort{}, time.Second), "dst")
	assert.ErrorContains(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.1:1"), 0), "timeout 0s")
	assert.ErrorContains(t, id.Listen(-1), "backlog -1")
	assert.ErrorContains(t, id.Connect(ConnParam{PrivateData: make([]byte, 256)}), "256 bytes of private data")
	assert.ErrorContains(t, id.Connect(ConnParam{RNRRetryCount: 8}), "RNRRetryCount 8")
	assert.ErrorContains(t, id.SetAckTimeout(32), "timeout 32")
	assert.NilError(t, id.SetTOS(4))
	assert.NilError(t, id.SetReuseAddr(true))
	assert.NilError(t, id.SetAFOnly(true))
	assert.NilError(t, id.SetAckTimeout(10))
	id.SetData("mine")
	assert.Equal(t, id.Data(), "mine")
}

// Resolving an address without a host ends in an error event.
func TestCMUnreachableAddress(t *testing.T) {
	openDevice(t)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("203.0.113.77:5000"), 200*time.Millisecond)
	if err != nil {
		t.Log(err) // this host has no route
		return
	}
	ev := want(t, ch, CMEventAddrError)
	assert.Assert(t, ev.Err() != nil)
	assert.Assert(t, ev.Status < 0)
}

func TestCMTooMuchPrivateData(t *testing.T) {
	ctx := openRoCE(t)
	e := newEnd(t, ctx)
	_, lid := listen(t, localAddr(t, ctx))
	cch := closing[*EventChannel](t)(CreateEventChannel())
	client := resolve(t, cch, lid.LocalAddr())
	err := client.Connect(ConnParam{QPNum: e.qp.Num(), PrivateData: make([]byte, 200)})
	isErr(t, err, syscall.EINVAL)
	assert.ErrorContains(t, err, "private data")
}

func TestEventChannelWaits(t *testing.T) {
	openDevice(t)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	_, err := ch.Get(time.Now().Add(10 * time.Millisecond))
	isErr(t, err, os.ErrDeadlineExceeded)
	ch.Wake()
	_, err = ch.Get(time.Time{})
	isErr(t, err, os.ErrDeadlineExceeded)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = ch.GetContext(ctx)
	isErr(t, err, context.DeadlineExceeded)
	done := make(chan error)
	go func() { _, err := ch.Get(time.Time{}); done <- err }()
	time.Sleep(20 * time.Millisecond)
	assert.NilError(t, ch.Close())
	assert.Equal(t, <-done, ErrClosed)
	_, err = ch.CreateID(PortSpaceTCP)
	isErr(t, err, ErrClosed)
	assert.Assert(t, errors.Is(err, os.ErrClosed))
}

// Closing an id drops its pending events; an open id keeps its channel open.
func TestCMCloseWithPendingEvents(t *testing.T) {
	ctx := openDevice(t)
	ch := closing[*EventChannel](t)(CreateEventChannel())
	id := closing[*CMID](t)(ch.CreateID(PortSpaceTCP))
	isErr(t, ch.Close(), ErrInUse)
	assert.NilError(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(localAddr(t, ctx), 5000), time.Second))
	time.Sleep(50 * time.Millisecond)
	assert.NilError(t, id.Close())
	assert.Equal(t, id.Close(), ErrClosed)
	assert.Equal(t, id.Listen(1), ErrClosed)
	assert.Assert(t, !id.LocalAddr().IsValid())
	_, err := ch.Get(time.Now().Add(10 * time.Millisecond))
	isErr(t, err, os.ErrDeadlineExceeded)
	assert.NilError(t, ch.Close())
}

// ECE options reach both peers unchanged. Of VendorID only the low 24 bits reach the peer.
func TestCMECE(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	e, f := newEnd(t, ctx), newEnd(t, ctx)
	sch, lid := listen(t, localAddr(t, ctx))
	for _, c := range []struct{ set, want ECE }{
		{ECE{1 << 24, 0xDA7AC338}, ECE{0, 0xDA7AC338}},
		{ECE{0xFF123456, 0xFFFFFFFF}, ECE{0x123456, 0xFFFFFFFF}},
	} {
		cch := closing[*EventChannel](t)(CreateEventChannel())
		client := resolve(t, cch, lid.LocalAddr())
		isErr(t, client.SetLocalECE(ECE{Options: 1}), syscall.EINVAL)
		assert.NilError(t, client.SetLocalECE(c.set))
		assert.NilError(t, client.Connect(ConnParam{QPNum: e.qp.Num(), RetryCount: 7}))
		server := closing[*CMID](t)(want(t, sch, CMEventConnectRequest).ID, nil)
		got, err := server.RemoteECE()
		assert.NilError(t, err)
		assert.Equal(t, got, c.want)
		assert.NilError(t, server.SetLocalECE(ECE{1, 0x12345678}))
		assert.NilError(t, server.Accept(ConnParam{QPNum: f.qp.Num()}))
		want(t, cch, CMEventConnectResponse)
		got, err = client.RemoteECE()
		assert.NilError(t, err)
		assert.Equal(t, got, ECE{c.want.VendorID, 0x12345678})
		assert.NilError(t, server.Close())
		assert.NilError(t, client.Close())
	}
}
