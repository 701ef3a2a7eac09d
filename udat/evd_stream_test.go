package udat_test

import (
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestStreamsNeedTheirFlag shows that a dispatcher accepts only the streams for which it was made.
func TestStreamsNeedTheirFlag(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		dto, conn, cr := e.evd(4, udat.EVDDTO), e.evd(4, udat.EVDConnection), e.evd(4, udat.EVDCR)
		for _, c := range []struct {
			recv, request, connect *udat.EVD
			sub                    udat.Subtype
		}{
			{conn, dto, conn, udat.SubHandleEVDRecv},
			{dto, cr, conn, udat.SubHandleEVDRequest},
			{dto, dto, dto, udat.SubHandleEVDConn},
		} {
			_, err := e.ia.CreateEP(e.pz, c.recv, c.request, c.connect, nil)
			assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, c.sub))
		}
		_, _, err := e.ia.CreatePSPAny(conn, udat.PSPConsumer)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDCR))
		_, err = udat.Open(dev, udat.WithAsyncEVD(conn))
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDAsync))
		rule.Proves(t, "EVD-03", "EVD-01")
		for _, evd := range []*udat.EVD{dto, conn, cr} { // the failed calls have left no reference
			assert.NilError(t, evd.Free())
		}
	})
}

// TestStreamFlagsAgree shows which completion flags are allowed together on a dispatcher.
func TestStreamFlagsAgree(t *testing.T) {
	const (
		def         = udat.CompletionDefault
		unsignalled = udat.CompletionUnsignalled
		solicited   = udat.CompletionSolicitedWait
		threshold   = udat.CompletionEVDThreshold
	)
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		pz, err := ia.CreatePZ()
		assert.NilError(t, err)
		srq, err := ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
		if !errors.Is(err, udat.ErrModelNotSupported) {
			assert.NilError(t, err)
		}
		type stream struct {
			recv    bool // else request
			flags   udat.CompletionFlags
			onQueue bool // of an endpoint with a shared receive queue
		}
		attach := func(evd *udat.EVD, s stream) (*udat.EP, error) {
			other, err := ia.CreateEVD(8, udat.EVDDTO, nil)
			assert.NilError(t, err)
			if !s.recv {
				return ia.CreateEP(pz, other, evd, nil, &udat.EPAttr{RequestCompletionFlags: s.flags})
			}
			attr := &udat.EPAttr{RecvCompletionFlags: s.flags}
			if s.onQueue {
				return ia.CreateEPWithSRQ(pz, evd, other, nil, srq, attr)
			}
			return ia.CreateEP(pz, evd, other, nil, attr)
		}
		together := func(streams udat.EVDFlags, first, second stream, allowed bool) {
			t.Helper()
			if srq == nil && (first.onQueue || second.onQueue) {
				return
			}
			evd, err := ia.CreateEVD(8, streams, nil)
			assert.NilError(t, err)
			one, err := attach(evd, first)
			assert.NilError(t, err)
			two, err := attach(evd, second)
			if allowed {
				assert.NilError(t, err, "%+v then %+v", first, second)
				assert.NilError(t, two.Free())
			} else {
				assert.ErrorIs(t, err, udat.ErrInvalidParameter, "%+v then %+v", first, second)
			}
			assert.NilError(t, one.Free())
			assert.NilError(t, evd.Free())
		}
		all := []udat.CompletionFlags{def, unsignalled, solicited, threshold}
		for _, f := range all {
			for _, g := range all {
				together(udat.EVDDTO, stream{recv: true, flags: f}, stream{recv: true, flags: g}, f == g)
				if g != solicited {
					together(udat.EVDDTO, stream{recv: true, flags: f}, stream{flags: g}, f == g)
					together(udat.EVDDTO, stream{flags: g}, stream{recv: true, flags: f}, f == g)
				}
			}
			together(udat.EVDDTO, stream{true, threshold, true}, stream{recv: true, flags: f}, f == threshold)
			together(udat.EVDDTO, stream{true, threshold, true}, stream{true, f, true}, f == threshold)
			if f != solicited {
				together(udat.EVDDTO, stream{true, threshold, true}, stream{flags: f}, f == threshold)
			}
		}
		together(udat.EVDDefault, stream{true, threshold, true}, stream{recv: true, flags: threshold}, true)
		rule.Proves(t, "EVD-10", "EVD-12", "EVD-13", "EVD-14", "EVD-15")
		for _, other := range []udat.EVDFlags{udat.EVDSoftware, udat.EVDCR, udat.EVDConnection, udat.EVDAsync} {
			for _, f := range all {
				evd, err := ia.CreateEVD(8, udat.EVDDTO|other, nil)
				assert.NilError(t, err)
				ep, err := attach(evd, stream{recv: true, flags: f})
				if f == def || f == threshold {
					assert.NilError(t, err)
					assert.NilError(t, ep.Free())
				} else {
					assert.ErrorIs(t, err, udat.ErrInvalidParameter)
				}
				assert.NilError(t, evd.Free())
			}
		}
		rule.Proves(t, "EVD-11", "EVD-13", "EVD-15")
		// Both queues of one endpoint on one dispatcher.
		evd, err := ia.CreateEVD(8, udat.EVDDTO, nil)
		assert.NilError(t, err)
		_, err = ia.CreateEP(pz, evd, evd, nil, &udat.EPAttr{RecvCompletionFlags: unsignalled})
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		ep, err := ia.CreateEP(pz, evd, evd, nil, &udat.EPAttr{RecvCompletionFlags: unsignalled,
			RequestCompletionFlags: unsignalled})
		assert.NilError(t, err)
		assert.NilError(t, ep.Free())
		assert.NilError(t, evd.Free())
		rule.Proves(t, "EVD-10", "EVD-12")
	})
}

// TestStreamsEveryKind shows a dispatcher that takes all six streams, and the contents of their
// events, by Wait and by Dequeue.
func TestStreamsEveryKind(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		t.Run("wait", func(t *testing.T) { everyKind(t, dev, next, "EVD-WAIT-02") })
		t.Run("dequeue", func(t *testing.T) { everyKind(t, dev, polled, "EVD-DEQ-04") })
	})
}

// polled is next by Dequeue.
func polled(t *testing.T, evd *udat.EVD) (ev udat.Event) {
	t.Helper()
	eventually(t, func() (ok bool) {
		var err error
		ev, err = evd.Dequeue()
		return err == nil
	}, "no event")
	return ev
}

func everyKind(t *testing.T, dev string, take func(*testing.T, *udat.EVD) udat.Event, proves string) {
	expect := func(t *testing.T, evd *udat.EVD, number udat.EventNumber) udat.Event {
		t.Helper()
		ev := take(t, evd)
		assert.Equal(t, ev.Number, number, "%s", describe(ev))
		return ev
	}
	a := newEnd(t, dev, setup{streams: udat.EVDDefault | udat.EVDSoftware})
	evd := a.conn
	class := func(ev udat.Event, bits udat.EventNumber) {
		t.Helper()
		assert.Equal(t, ev.Number&^0xfff, bits)
		assert.Equal(t, ev.EVD, evd)
	}
	b := newEnd(t, dev, setup{qlen: 1, opts: []udat.Option{udat.WithAsyncEVD(evd)}})
	psp := listen(t, a)
	assert.NilError(t, b.ep.Connect(a.ia.Addr(), psp.Qual(), patience, []byte("hello"), udat.QoSBestEffort,
		udat.ConnectDefault))
	ev := expect(t, evd, udat.EventConnectionRequest)
	class(ev, 0x2000)
	assert.Equal(t, ev.Object, udat.Handle(psp))
	assert.Equal(t, ev.ConnQual(), psp.Qual())
	assert.Equal(t, ev.LocalAddr(), a.ia.Addr())
	asked, err := ev.CR.Query()
	assert.NilError(t, err)
	assert.Equal(t, string(asked.PrivateData), "hello")
	assert.NilError(t, ev.CR.Accept(a.ep, []byte("welcome")))
	ev = expect(t, evd, udat.EventConnectionEstablished)
	class(ev, 0x4000)
	assert.Equal(t, ev.EP, a.ep)
	assert.Equal(t, string(expect(t, b.conn, udat.EventConnectionEstablished).PrivateData()), "welcome")
	assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), 7, b.mem.RMRTriplet(0, 100), 0))
	ev = expect(t, evd, udat.EventDTOCompletion)
	assert.Assert(t, ev.Status == udat.DTOSuccess && ev.Cookie == 7, "%s", describe(ev))
	class(ev, 0)
	assert.Equal(t, ev.EP, a.ep)
	assert.Equal(t, ev.Length, uint64(100))
	assert.Equal(t, ev.Operation, udat.DTORDMAWrite)
	soft(t, evd, "payload")
	ev = expect(t, evd, udat.EventSoftware)
	class(ev, 0x10000)
	assert.Equal(t, ev.Software, any("payload"))
	for i := range udat.Cookie(3) { // overflow a queue of one
		assert.NilError(t, b.ep.PostRDMAWrite(b.iov(0, 1), i, a.mem.RMRTriplet(0, 1), 0))
	}
	until(t, "the writes complete", func() bool {
		_, _, idle, err := b.ep.GetStatus()
		assert.NilError(t, err)
		return idle
	})
	ev = expect(t, evd, udat.EventAsyncEVDOverflow)
	class(ev, 0x8000)
	assert.Equal(t, ev.Object, udat.Handle(b.request))
	assert.Equal(t, ev.Reason, uint32(udat.ReasonEVDOverflow))
	rmr, err := a.pz.CreateRMR()
	if errors.Is(err, udat.ErrModelNotSupported) {
		t.Log(err)
	} else {
		assert.NilError(t, err)
		_, err = rmr.Bind(a.mem.Triplet(0, 64), udat.PrivRemoteRead, a.ep, 9, 0)
		assert.NilError(t, err)
		ev = expect(t, evd, udat.EventRMRBindCompletion)
		class(ev, 0x1000)
		assert.Equal(t, ev.RMR, rmr)
		assert.Equal(t, ev.Cookie, udat.Cookie(9))
		assert.Equal(t, ev.Status, udat.DTOSuccess)
	}
	assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
	ev = expect(t, evd, udat.EventConnectionDisconnected)
	class(ev, 0x4000)
	empty(t, evd)
	rule.Proves(t, proves, "EVD-06", "EVD-02", "EVT-01")
	assert.Equal(t, udat.EventAsyncSRQLowWatermark&^0xfff, udat.EventNumber(0x8000))
	assert.Equal(t, udat.EventAsyncEPSoftHighWatermark&^0xfff, udat.EventNumber(0x8000))
}

// TestStreamsOverflow shows that each overflow is reported once, and that no event is lost.
func TestStreamsOverflow(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n = 12
		a, b := pair(t, dev, setup{})
		assert.NilError(t, a.request.Resize(4))
		assert.NilError(t, b.recv.Resize(4))
		for round := range 2 {
			for i := range udat.Cookie(n) {
				b.receive(0, i)
			}
			for i := range udat.Cookie(n) {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
			}
			for _, e := range []*end{a, b} {
				until(t, "all is done", func() bool {
					_, recv, request, err := e.ep.GetStatus()
					assert.NilError(t, err)
					return recv && request
				})
			}
			for _, c := range []struct {
				e   *end
				evd *udat.EVD
			}{{a, a.request}, {b, b.recv}} {
				ev := expect(t, c.e.ia.AsyncEVD(), udat.EventAsyncEVDOverflow)
				assert.Equal(t, ev.Object, udat.Handle(c.evd))
				assert.Equal(t, ev.Reason, uint32(udat.ReasonEVDOverflow))
				for i := range udat.Cookie(n) {
					completion(t, c.evd, i)
				}
				empty(t, c.evd)
				empty(t, c.e.ia.AsyncEVD())
			}
			assert.Equal(t, state(t, a.ep), udat.EPConnected, "round %d", round)
		}
		rule.Proves(t, "EVD-50", "EVT-03")
	})
}

// TestStreamsNoOverflow shows that a queue never overflows if it is as long as the number of
// operations that can be in flight.
func TestStreamsNoOverflow(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n = 16
		a, b := pair(t, dev, setup{qlen: n, attr: &udat.EPAttr{MaxRecvDTOs: n, MaxRequestDTOs: n}})
		for range 10 {
			for i := range udat.Cookie(n) {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), i, 0))
			}
			for i := range udat.Cookie(n) {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
			}
			for i := range udat.Cookie(n) {
				completion(t, a.request, i)
				completion(t, b.recv, i)
			}
		}
		empty(t, a.ia.AsyncEVD())
		empty(t, b.ia.AsyncEVD())
		rule.Proves(t, "EVD-53")
	})
}

// TestStreamsEstablishedFirst shows that a message that arrives before the end of the handshake is
// queued after ESTABLISHED.
func TestStreamsEstablishedFirst(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for range 5 {
			a := newEnd(t, dev, setup{})
			if dev == "mem0" {
				a.nic().Lose(softnic.MsgReady, 1) // the message itself must confirm the accept
			}
			b := newEnd(t, dev, setup{streams: udat.EVDDefault | udat.EVDSoftware})
			b.receive(0, 1, 2)
			psp := listen(t, b)
			assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
			req := expect(t, b.conn, udat.EventConnectionRequest)
			assert.NilError(t, req.CR.Accept(b.ep, nil))
			expect(t, a.conn, udat.EventConnectionEstablished)
			a.send(8, 0, 0)
			a.send(8, 0, 0)
			time.Sleep(time.Millisecond)
			expect(t, b.conn, udat.EventConnectionEstablished)
			completion(t, b.conn, 1)
			completion(t, b.conn, 2)
			empty(t, b.conn)
		}
		rule.Proves(t, "EVD-46")
	})
}

// TestStreamsMany uses up the generations of work request ids: completions of older streams must
// not appear.
func TestStreamsMany(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for _, generation := range []uint32{1<<11 - 2, 1<<11 - 1, 1<<12 - 2, 1<<12 - 1, 1<<32 - 1} {
			udat.SetGeneration(a.recv, generation)
			udat.SetGeneration(a.request, generation)
			assert.NilError(t, a.ep.Free())
			var err error
			a.ep, err = a.ia.CreateEP(a.pz, a.recv, a.request, a.conn, nil)
			assert.NilError(t, err)
			connect(t, a, b)
			a.receive(0, 1)
			b.send(8, 2, 0)
			completion(t, a.recv, 1)
			completion(t, b.request, 2)
			assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
			expect(t, a.conn, udat.EventConnectionDisconnected)
			expect(t, b.conn, udat.EventConnectionDisconnected)
			assert.NilError(t, b.ep.Reset())
		}
		rule.Proves(t, "OBJ-08")
	})
}
