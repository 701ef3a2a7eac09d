package udat_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestCRQuery shows what Query returns for a request, and for how long.
func TestCRQuery(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		cr := ask(t, a, b, []byte("a\x00b"))
		p, err := cr.Query()
		assert.NilError(t, err)
		assert.Equal(t, p.RemoteAddr, a.ia.Addr())
		assert.Assert(t, p.RemotePortQual != 0)
		assert.Equal(t, p.PrivateDataSize, 3)
		assert.Equal(t, string(p.PrivateData), "a\x00b")
		assert.Assert(t, p.LocalEP == nil)
		rule.Proves(t, "CR-QUERY-01")
		q, err := a.ep.Query()
		assert.NilError(t, err)
		assert.Equal(t, q.State, udat.EPActiveConnectionPending)
		assert.Equal(t, q.LocalPortQual, p.RemotePortQual)
		assert.Equal(t, q.RemoteAddr, b.ia.Addr())
		rule.Proves(t, "EPST-11", "EP-CONNECT-01", "EP-CONNECT-05")
		assert.NilError(t, cr.Accept(b.ep, []byte("reply")))
		everyCallFails(t, []udat.Handle{cr}, reflect.Zero)
		rule.Proves(t, "CR-ACCEPT-05", "OBJ-06", "EVD-WAIT-24")
		ev := expect(t, b.conn, udat.EventConnectionEstablished)
		assert.Equal(t, len(ev.PrivateData()), 0)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		rule.Proves(t, "EVT-04", "EPST-25")
		private := expect(t, a.conn, udat.EventConnectionEstablished).PrivateData()
		assert.Equal(t, string(private), "reply")
		rule.Proves(t, "CR-ACCEPT-02")
		assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
		assert.Equal(t, len(expect(t, a.conn, udat.EventConnectionDisconnected).PrivateData()), 0)
		assert.Equal(t, string(private), "reply")
		rule.Proves(t, "OBJ-07")
	})
}

// TestCRAcceptErrors shows that an accept that fails changes nothing.
func TestCRAcceptErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		connected, far := pair(t, dev, setup{})
		cr := ask(t, a, b, []byte("hello"))
		unzoned, err := b.ia.CreateEP(nil, b.recv, b.request, b.conn, nil)
		assert.NilError(t, err)
		freed := b.another(nil)
		assert.NilError(t, freed.Free())
		reserved := b.another(nil)
		listenReserved(t, b, reserved)
		for _, c := range []struct {
			name    string
			ep      *udat.EP
			private int
			want    *udat.Error
		}{
			{"nil", nil, 0, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEP)},
			{"freed", freed, 0, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEP)},
			{"of another adapter", far.ep, 0, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEP)},
			{"no zone", unzoned, 0, udat.WithSubtype(udat.InvalidState, udat.SubStateEPNotReady)},
			{"reserved", reserved, 0, udat.WithSubtype(udat.InvalidState, udat.SubStateEPReserved)},
			{"private data", b.ep, udat.DeviceAttr(b.ia).MaxConnData + 1, udat.ErrInvalidParameter},
		} {
			before := accepting(t, cr, b.ep)
			err := cr.Accept(c.ep, make([]byte, c.private))
			assert.ErrorIs(t, err, c.want, c.name)
			assert.Equal(t, accepting(t, cr, b.ep), before)
			assert.Equal(t, state(t, a.ep), udat.EPActiveConnectionPending)
			empty(t, a.conn)
		}
		assert.ErrorIs(t, ask(t, newEnd(t, dev, setup{}), connected, nil).Accept(connected.ep, nil),
			udat.WithSubtype(udat.InvalidState, udat.SubStateEPConnected))
		rule.Proves(t, "CR-ACCEPT-01", "CR-ACCEPT-07")
		assert.Equal(t, state(t, b.ep), udat.EPUnconnected)
		assert.NilError(t, cr.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
	})
}

// accepting returns, as text, everything that an accept may change.
func accepting(t *testing.T, cr *udat.CR, ep *udat.EP) string {
	t.Helper()
	c, err := cr.Query()
	assert.NilError(t, err)
	return fmt.Sprintf("%+v %+v", c, param(t, ep))
}

// TestCRAcceptStates shows that an accept with an endpoint in a wrong state is refused, and has no
// effect at either end.
func TestCRAcceptStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, s := range canBe(t, dev) {
			if s == udat.EPUnconnected {
				continue
			}
			b, _ := inState(t, dev, s, setup{})
			a := newEnd(t, dev, setup{})
			cr := ask(t, a, b, []byte("hello"))
			before := accepting(t, cr, b.ep)
			for range 2 {
				refused(t, cr.Accept(b.ep, []byte("no")), udat.InvalidState, subtypes[s])
				assert.Equal(t, accepting(t, cr, b.ep), before, "%v", s)
			}
			assert.Equal(t, state(t, a.ep), udat.EPActiveConnectionPending)
			empty(t, a.conn)
			empty(t, b.conn)
			b.conn = b.evd(8, udat.EVDConnection)
			assert.NilError(t, cr.Accept(b.another(nil), []byte("yes")))
			expect(t, b.conn, udat.EventConnectionEstablished)
			assert.Equal(t, string(expect(t, a.conn, udat.EventConnectionEstablished).PrivateData()), "yes")
			empty(t, a.conn)
		}
		rule.Proves(t, "CR-ACCEPT-03")
	})
}

// TestCRAcceptPending accepts with an endpoint in each allowed state, while the device delays the
// end of the handshake.
func TestCRAcceptPending(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, from := range []udat.EPState{udat.EPUnconnected, udat.EPPassiveConnectionPending,
			udat.EPTentativeConnection} {
			var script faultfabric.Script
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{script: &script})
			script.On(faultfabric.ConnEvent).With(int(fabric.EventEstablished)).Times(1).Drop()
			own := b.ep
			var cr *udat.CR
			switch from {
			case udat.EPUnconnected:
				cr = ask(t, a, b, nil)
			case udat.EPPassiveConnectionPending:
				qual, _ := listenReserved(t, b, b.ep)
				a.call(b, qual, "")
				cr, own = expect(t, b.cr, udat.EventConnectionRequest).CR, nil
			case udat.EPTentativeConnection:
				_, psp, err := b.ia.CreatePSPAny(b.cr, udat.PSPProvider)
				assert.NilError(t, err)
				a.call(b, psp.Qual(), "")
				cr, own = expect(t, b.cr, udat.EventConnectionRequest).CR, nil
				p, err := cr.Query()
				assert.NilError(t, err)
				b.ep = p.LocalEP
				assert.NilError(t, b.ep.Modify(udat.EPFieldPZ|udat.EPFieldConnectEVD, udat.EPParam{PZ: b.pz, ConnectEVD: b.conn}))
			}
			assert.Equal(t, state(t, b.ep), from)
			assert.NilError(t, cr.Accept(own, nil))
			assert.Equal(t, state(t, b.ep), udat.EPCompletionPending)
			assert.Assert(t, !live(cr))
			expect(t, a.conn, udat.EventConnectionEstablished)
			assert.Equal(t, state(t, b.ep), udat.EPCompletionPending, "%v", from)
			empty(t, b.conn)
		}
		rule.Proves(t, "EPST-04", "EPST-24", "CR-ACCEPT-05")
	})
}

// TestCRAcceptTooLate accepts a request whose peer has given up. On iWARP the peer's kernel gives
// up after another 10 s.
func TestCRAcceptTooLate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		told := false
		for _, pause := range []time.Duration{20 * time.Millisecond, 15 * time.Second} {
			if told {
				break
			}
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 1), 9, 0))
			cr := ask(t, a, b, nil)
			assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
			expect(t, a.conn, udat.EventConnectionDisconnected)
			time.Sleep(pause)
			assert.NilError(t, cr.Accept(b.ep, nil))
			told = acceptedInVain(t, b)
			assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
			flushed(t, b.recv, 9)
		}
		assert.Assert(t, told)
		rule.Proves(t, "CR-ACCEPT-04", "EPST-26")
	})
}

// TestCRAcceptLost loses messages of the handshake.
func TestCRAcceptLost(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		cr := ask(t, a, b, nil)
		b.faults().Lose(softnic.MsgReply, 1)
		assert.NilError(t, cr.Accept(b.ep, nil))
		assert.Equal(t, state(t, b.ep), udat.EPCompletionPending)
		q, err := b.ep.Query()
		assert.NilError(t, err)
		assert.Equal(t, q.State, udat.EPCompletionPending)
		assert.Equal(t, q.RemoteAddr, a.ia.Addr())
		assert.Assert(t, q.RemotePortQual != 0 && q.LocalPortQual != 0)
		rule.Proves(t, "EPST-04")
		assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
		expect(t, b.conn, udat.EventConnectionDisconnected)
		rule.Proves(t, "EPST-27")
	})
}

// TestCRAcceptReadDepths shows that the read depth in each direction is the smaller one of those
// that the two ends offer.
func TestCRAcceptReadDepths(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadOut: 4, MaxRDMAReadIn: udat.None}})
		b := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 2, MaxRDMAReadOut: 4}})
		connect(t, a, b)
		// More reads than the peer serves at once are queued, not failed.
		want := b.put(0, 8, 1)
		for i := range 8 {
			assert.NilError(t, a.ep.PostRDMARead(a.iov(i, 1), udat.Cookie(i), b.mem.RMRTriplet(i, 1), 0))
		}
		for i := range 8 {
			completion(t, a.request, udat.Cookie(i))
		}
		assert.DeepEqual(t, a.get(0, 8), want)
		// b may start no reads, because a serves none.
		assert.ErrorIs(t, b.ep.PostRDMARead(b.iov(0, 1), 1, a.mem.RMRTriplet(0, 1), 0), udat.ErrInvalidParameter)
		q, err := b.ep.Query()
		assert.NilError(t, err)
		assert.DeepEqual(t, []int{q.Attr.MaxRDMAReadIn, q.Attr.MaxRDMAReadOut}, []int{2, 4})
		q, err = a.ep.Query()
		assert.NilError(t, err)
		assert.DeepEqual(t, []int{q.Attr.MaxRDMAReadIn, q.Attr.MaxRDMAReadOut}, []int{0, 4})
		rule.Proves(t, "CR-ACCEPT-06", "ATTR-01", "ATTR-02", "EPST-45")
	})
}

// TestCRUntaken frees a dispatcher on which connection requests are still queued, for each kind of
// service point: each peer gets NON_PEER_REJECTED, the endpoint is UNCONNECTED again, and nothing
// leaks.
func TestCRUntaken(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		callers := []*end{newEnd(t, dev, setup{}), newEnd(t, dev, setup{}), newEnd(t, dev, setup{})}
		var b *end
		queue := func(qual udat.ConnQual, a *end) {
			t.Helper()
			queued := udat.Queued(b.cr)
			a.callAgain(b, qual, "")
			until(t, "the request is queued", func() bool { return udat.Queued(b.cr) == queued+1 })
		}
		public := func(flags udat.PSPFlags) func() {
			return func() {
				_, psp, err := b.ia.CreatePSPAny(b.cr, flags)
				assert.NilError(t, err)
				for _, a := range callers {
					queue(psp.Qual(), a)
				}
				assert.NilError(t, psp.Free())
			}
		}
		reserved := func(eps ...*udat.EP) func() {
			return func() {
				for i, ep := range eps {
					if ep != nil {
						ep = b.ep
					}
					qual, _ := listenReserved(t, b, ep)
					queue(qual, callers[i])
				}
			}
		}
		for _, c := range []struct {
			name     string
			requests int
			come     func()
		}{
			{"PSPConsumer", 3, public(udat.PSPConsumer)},
			{"PSPProvider", 3, public(udat.PSPProvider)},
			{"RSP", 2, reserved(new(udat.EP), nil)},
		} {
			b = newEnd(t, dev, setup{})
			c.come()
			assert.NilError(t, b.cr.Free(), c.name)
			for _, a := range callers[:c.requests] {
				expect(t, a.conn, udat.EventConnectionNonPeerRejected)
			}
			assert.Equal(t, state(t, b.ep), udat.EPUnconnected, c.name)
			a := newEnd(t, dev, setup{})
			b.cr = b.evd(4, udat.EVDCR)
			connect(t, a, b) // the endpoint can be used again
			part(t, a, b, udat.CloseAbrupt)
			for _, o := range []interface{ Free() error }{b.ep, b.mem, b.pz, b.recv, b.request, b.conn, b.cr} {
				assert.NilError(t, o.Free(), c.name)
			}
			assert.NilError(t, b.ia.Close(udat.CloseGraceful), c.name)
		}
		rule.Proves(t, "EVD-FREE-01", "IA-CLOSE-04", "OBJ-09")
	})
}

// TestCRRejectAlways rejects requests whose peers, service points and dispatchers no longer exist:
// the first Reject succeeds, later ones return InvalidHandle.
func TestCRRejectAlways(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for name, leave := range map[string]func(a *end) error{
			"stays":      func(*end) error { return nil },
			"disconnect": func(a *end) error { return a.ep.Disconnect(udat.CloseAbrupt) },
			"free":       func(a *end) error { return a.ep.Free() },
			"close":      func(a *end) error { return a.ia.Close(udat.CloseAbrupt) },
		} {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			cr := ask(t, a, b, nil) // its service point is free by now
			assert.NilError(t, leave(a), name)
			assert.NilError(t, b.cr.Free(), name)
			assert.NilError(t, cr.Reject(nil), name)
			for range 2 {
				refused(t, cr.Reject(nil), udat.InvalidHandle, udat.SubHandleCR)
			}
		}
		refused(t, (*udat.CR)(nil).Reject(nil), udat.InvalidHandle, udat.SubHandleCR)
		rule.Proves(t, "CR-REJECT-03")
	})
}

// TestCRAnsweredAtOnce: if several calls reject a request at the same time, exactly one succeeds.
func TestCRAnsweredAtOnce(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		cr := ask(t, a, b, nil)
		unlock := cr.Hold()
		answers := make(chan error, 3)
		for range 3 {
			go func() { answers <- cr.Reject(nil) }()
		}
		time.Sleep(20 * time.Millisecond) // by now all calls have found the request unanswered
		unlock()
		good := 0
		for range 3 {
			if err := <-answers; err == nil {
				good++
			} else {
				refused(t, err, udat.InvalidHandle, udat.SubHandleCR)
			}
		}
		assert.Equal(t, good, 1)
		expect(t, a.conn, udat.EventConnectionPeerRejected)
	})
}

// TestCRHandoff passes requests on to every kind of service point.
func TestCRHandoff(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		first := b.evd(4, udat.EVDCR)
		_, from, err := b.ia.CreatePSPAny(first, udat.PSPConsumer)
		assert.NilError(t, err)
		to := listen(t, b)
		a.call(b, from.Qual(), "mine")
		cr := expect(t, first, udat.EventConnectionRequest).CR
		free := listen(t, b)
		assert.NilError(t, free.Free())
		for _, qual := range []udat.ConnQual{0, free.Qual()} {
			assert.ErrorIs(t, cr.Handoff(qual), udat.ErrInvalidParameter)
		}
		assert.Assert(t, live(cr))
		rule.Proves(t, "CR-HANDOFF-02")
		assert.NilError(t, cr.Handoff(to.Qual()))
		everyCallFails(t, []udat.Handle{cr}, reflect.Zero)
		ev := expect(t, b.cr, udat.EventConnectionRequest)
		assert.Equal(t, ev.ConnQual(), to.Qual())
		assert.Equal(t, ev.Object, udat.Handle(to))
		p, err := ev.CR.Query()
		assert.NilError(t, err)
		assert.Equal(t, string(p.PrivateData), "mine")
		empty(t, first)
		rule.Proves(t, "OBJ-06", "EVD-WAIT-24")

		qual, rsp := listenReserved(t, b, b.ep)
		assert.NilError(t, from.Free())
		assert.NilError(t, ev.CR.Handoff(qual))
		ev = expect(t, b.cr, udat.EventConnectionRequest)
		assert.Assert(t, ev.Object == nil && !live(rsp))
		assert.Equal(t, state(t, b.ep), udat.EPPassiveConnectionPending)

		_, prov, err := b.ia.CreatePSPAny(b.cr, udat.PSPProvider)
		assert.NilError(t, err)
		assert.NilError(t, ev.CR.Handoff(prov.Qual()))
		assert.Equal(t, state(t, b.ep), udat.EPUnconnected)
		ev = expect(t, b.cr, udat.EventConnectionRequest)
		p, err = ev.CR.Query()
		assert.NilError(t, err)
		assert.Equal(t, state(t, p.LocalEP), udat.EPTentativeConnection)
		assert.NilError(t, ev.CR.Handoff(to.Qual()))
		assert.Assert(t, !live(p.LocalEP))
		rule.Proves(t, "EPST-39")

		ev = expect(t, b.cr, udat.EventConnectionRequest)
		assert.NilError(t, ev.CR.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
		rule.Proves(t, "CR-HANDOFF-01")
	})
}

// TestCRHandoffFull shows that a request for which there is no place at the other service point
// stays where it is.
func TestCRHandoffFull(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		small := b.evd(1, udat.EVDCR|udat.EVDSoftware)
		_, to, err := b.ia.CreatePSPAny(small, udat.PSPProvider)
		assert.NilError(t, err)
		assert.NilError(t, small.PostSE(udat.Event{Number: udat.EventSoftware}))
		cr := ask(t, a, b, nil)
		assert.ErrorIs(t, cr.Handoff(to.Qual()), udat.ErrInsufficientResources)
		assert.NilError(t, cr.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
	})
}
