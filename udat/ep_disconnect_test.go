package udat_test

import (
	"errors"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

func TestDisconnectRefused(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _ := pair(t, dev, setup{})
		refused(t, a.ep.Disconnect(2), udat.InvalidParameter, udat.SubArg2)
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		assert.NilError(t, a.ep.Free())
		refused(t, a.ep.Disconnect(udat.CloseAbrupt), udat.InvalidHandle, udat.SubHandleEP)
		refused(t, a.ep.Reset(), udat.InvalidHandle, udat.SubHandleEP)
		refused(t, a.ep.Free(), udat.InvalidHandle, udat.SubHandleEP)
		_, _, _, err := a.ep.GetStatus()
		refused(t, err, udat.InvalidHandle, udat.SubHandleEP)
		var none *udat.EP
		refused(t, none.Disconnect(udat.CloseAbrupt), udat.InvalidHandle, udat.SubHandleEP)
		refused(t, none.Reset(), udat.InvalidHandle, udat.SubHandleEP)
		refused(t, none.Free(), udat.InvalidHandle, udat.SubHandleEP)
		rule.Proves(t, "EP-DISC-11", "EP-RESET-04", "EP-FREE-05", "EP-STATUS-04", "GEN-01", "GEN-02", "GEN-03")
	})
}

// TestGraceful: all requests that were posted reach a slow peer. Meanwhile new requests are
// refused, but messages are received.
func TestGraceful(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		needAcknowledged(t, a)
		want := a.put(0, 8*1000, 2)
		for i := range 8 {
			assert.NilError(t, a.ep.PostSend(a.iov(i*1000, 1000), udat.Cookie(i), 0))
		}
		assert.NilError(t, a.ep.PostRDMARead(a.iov(10000, 1000), 8, b.mem.RMRTriplet(10000, 1000), 0))
		read := b.put(10000, 1000, 5)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 1000), 9, b.mem.RMRTriplet(12000, 1000), 0))
		// soft-RoCE, the only device without ExactBounds, resends nothing once a bind waits behind
		// a Send without a receive.
		binds := udat.DeviceAttr(a.ia).MaxMW > 0 && udat.DeviceAttr(a.ia).ExactBounds
		if binds {
			_, err := a.window(t).Bind(a.mem.Triplet(0, 8), bothRights, a.ep, 10, 0)
			assert.NilError(t, err)
		}
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
		rule.Proves(t, "EPST-29", "EP-DISC-04")

		for i, p := range posters {
			if !p.recv {
				refused(t, p.post(a, b, a.iov(0, 8), 90, 0), udat.InvalidState, udat.SubStateEPDiscPending)
			} else {
				assert.NilError(t, p.post(a, b, a.iov(20000, 8), udat.Cookie(90+i), 0))
				assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 91, 0))
				completion(t, a.recv, udat.Cookie(90+i)) // a message still comes in
				completion(t, b.request, 91)
				assert.NilError(t, p.post(a, b, a.iov(20000, 8), 92, 0)) // to be flushed
			}
		}
		empty(t, a.conn)
		assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
		rule.Proves(t, "EPST-54", "C-31")

		for i := range 8 {
			time.Sleep(5 * time.Millisecond)
			assert.NilError(t, b.ep.PostRecv(b.iov(i*1000, 1000), udat.Cookie(i), 0))
		}
		expect(t, a.conn, udat.EventConnectionDisconnected)
		for i := range 10 {
			completion(t, a.request, udat.Cookie(i))
		}
		if binds {
			bound(t, a.request, 10)
		}
		sameBytes(t, a.get(10000, 1000), read)
		sameBytes(t, b.get(12000, 1000), want[:1000])
		flushed(t, a.recv, 92)
		expect(t, b.conn, udat.EventConnectionDisconnected)
		for i := range 8 {
			completion(t, b.recv, udat.Cookie(i))
		}
		sameBytes(t, b.get(0, 8000), want)
		for _, evd := range []*udat.EVD{a.recv, a.request, a.conn, b.recv, b.request, b.conn} {
			empty(t, evd)
		}
		rule.Proves(t, "EPST-30", "EP-DISC-02", "EP-DISC-04", "EP-DISC-10", "EP-DISC-12", "EPST-33", "GAP-46", "GAP-47")
	})
}

// TestGracefulUnseen: a request is in flight until the library has seen its completion. The test
// hides the completion, so that an endpoint stays in DISCONNECT_PENDING on any device.
func TestGracefulUnseen(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, abrupt := range []bool{false, true} {
			var script faultfabric.Script
			a, b := pair(t, dev, setup{script: &script})
			b.receive(0, 1)
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
			completion(t, b.recv, 1)
			for range 2 {
				assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
				assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
			}
			for _, p := range posters {
				if err := p.post(a, b, a.iov(0, 8), 3, 0); p.recv {
					assert.NilError(t, err)
				} else {
					refused(t, err, udat.InvalidState, udat.SubStateEPDiscPending)
				}
			}
			if udat.DeviceAttr(a.ia).MaxMW > 0 {
				_, err := a.window(t).Bind(a.mem.Triplet(0, 8), bothRights, a.ep, 3, 0)
				refused(t, err, udat.InvalidState, udat.SubStateEPDiscPending)
			}
			assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 5, 0)) // a message still comes in
			completion(t, b.request, 5)
			completion(t, a.recv, 3)
			assert.NilError(t, a.ep.PostRecv(nil, 4, 0)) // to be flushed
			time.Sleep(quiet)
			assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
			empty(t, a.conn)
			if abrupt {
				assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
				assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
			}
			hidden.Stop()
			expect(t, a.conn, udat.EventConnectionDisconnected)
			assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
			assert.Equal(t, expect(t, a.request, udat.EventDTOCompletion).Cookie, udat.Cookie(2))
			flushed(t, a.recv, 4)
			expect(t, b.conn, udat.EventConnectionDisconnected)
			for _, evd := range []*udat.EVD{a.recv, a.request, a.conn, b.conn} {
				empty(t, evd)
			}
		}
		rule.Proves(t, "EPST-29", "EPST-30", "EPST-31", "EPST-32", "EPST-54", "EP-DISC-05", "C-31")
	})
}

// TestGracefulIdle: with no request in flight a graceful disconnect ends at once.
func TestGracefulIdle(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		part(t, a, b, udat.CloseGraceful)
		for _, flags := range []udat.CloseFlags{udat.CloseAbrupt, udat.CloseGraceful} {
			assert.NilError(t, a.ep.Disconnect(flags))
			assert.NilError(t, b.ep.Disconnect(flags))
		}
		assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
		empty(t, a.conn)
		empty(t, b.conn)
		rule.Proves(t, "EPST-35", "EP-DISC-08")
	})
}

// TestBothDisconnect: both ends disconnect at once, each gets one event.
func TestBothDisconnect(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for i := range 20 {
			connect(t, a, b)
			var wg sync.WaitGroup
			for _, e := range []*end{a, b} {
				wg.Go(func() {
					if err := e.ep.Disconnect(udat.CloseFlags(i % 2)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, e := range []*end{a, b} {
				expect(t, e.conn, udat.EventConnectionDisconnected)
				assert.NilError(t, e.ep.Reset())
				empty(t, e.conn)
			}
		}
		rule.Proves(t, "EPST-33", "EP-DISC-01", "EP-CONNECT-12")
	})
}

// TestAbruptInTheMiddle: an abrupt disconnect in the middle of long writes is DISCONNECTED at the
// peer, which has nothing in flight.
func TestAbruptInTheMiddle(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		const long = 1 << 20
		a, b := pair(t, dev, setup{})
		from, to := a.lmr(long, udat.PrivAll), b.lmr(long, udat.PrivAll)
		for i := range 40 {
			if i > 0 {
				connect(t, a, b)
			}
			for c := range udat.Cookie(8) {
				assert.NilError(t, a.ep.PostRDMAWrite([]udat.LMRTriplet{from.Triplet(0, long)}, c, to.RMRTriplet(0, long),
					udat.CompletionDefault))
			}
			assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
			for _, e := range []*end{a, b} {
				expect(t, e.conn, udat.EventConnectionDisconnected)
			}
			for range 8 {
				expect(t, a.request, udat.EventDTOCompletion)
			}
			for _, e := range []*end{a, b} {
				assert.NilError(t, e.ep.Reset())
			}
		}
		rule.Proves(t, "EPST-33")
	})
}

// TestAbruptPrefix ends a stream of transfers: in each queue a first part has succeeded, and the
// rest is flushed in order, before the event on the same dispatcher.
func TestAbruptPrefix(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const work = 64
		all := udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind
		for round := range 10 {
			s := setup{attr: &udat.EPAttr{MaxRequestDTOs: work, MaxRecvDTOs: work}, streams: all, qlen: 512}
			a, b := newEnd(t, dev, s), newEnd(t, dev, s)
			connect(t, a, b)
			for i := range work {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 1000), udat.Cookie(i), 0))
			}
			for i := range work {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 1000), udat.Cookie(i), 0))
			}
			leaves := []*end{a, b}[round%2]
			assert.NilError(t, leaves.ep.Disconnect(udat.CloseAbrupt))
			for _, e := range []*end{a, b} {
				failed, ownFault := false, false
				for i := range work {
					ev := expect(t, e.conn, udat.EventDTOCompletion)
					assert.Equal(t, ev.Cookie, udat.Cookie(i))
					if ev.Status != udat.DTOSuccess {
						failed = true
					}
					assert.Equal(t, ev.Status == udat.DTOSuccess, !failed, describe(ev))
					ownFault = ownFault || failed && ev.Status != udat.DTOErrFlushed
				}
				want := udat.EventConnectionDisconnected
				if ownFault && e != leaves { // the device may find that the peer does not answer before the disconnect arrives
					want = udat.EventConnectionBroken
				}
				expect(t, e.conn, want)
				empty(t, e.conn)
			}
			assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
			assert.NilError(t, b.ia.Close(udat.CloseAbrupt))
		}
		rule.Proves(t, "EPST-28", "EPST-42", "EPST-43", "EP-DISC-03", "EP-DISC-10", "GAP-48")
	})
}

// TestReset resets an endpoint after connections, and checks that Reset of an unconnected endpoint
// does nothing.
func TestReset(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: 3, MaxRecvDTOs: 4}}), newEnd(t, dev, setup{})
		fresh := param(t, a.ep)
		for range 2 {
			for i := range 3 {
				assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
			}
			assert.NilError(t, a.ep.Reset())
			assert.Equal(t, state(t, a.ep), udat.EPUnconnected)
			holds(t, a.ep, 3)
			rule.Proves(t, "EPST-37", "EP-RESET-03")

			connect(t, a, b)
			for i := range 3 {
				assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 5, 0))
				completion(t, b.request, 5)
				completion(t, a.recv, udat.Cookie(i))
			}
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 7, 0))
			if acknowledged(a) {
				assert.NilError(t, a.ep.PostSend(nil, 8, 0)) // no receive for it
			}
			part(t, a, b, udat.CloseAbrupt)
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			assert.Equal(t, state(t, a.ep), udat.EPUnconnected)
			flushed(t, a.recv, 7) // nothing is lost
			if acknowledged(a) {
				flushed(t, a.request, 8)
			}
			holds(t, a.ep, 0)
			assert.Assert(t, reflect.DeepEqual(param(t, a.ep), fresh), "%+v, was %+v", param(t, a.ep), fresh)
			for i := range 4 {
				assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
			}
			refused(t, a.ep.PostRecv(a.iov(0, 8), 9, 0), udat.InsufficientResources) // the attributes are as before
			connect(t, a, b)
			part(t, b, a, udat.CloseGraceful)
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			for i := range 4 {
				flushed(t, a.recv, udat.Cookie(i))
			}
			empty(t, a.conn)
		}
		rule.Proves(t, "EPST-36", "EP-RESET-01", "EP-RESET-02", "EP-RESET-05", "EPST-44", "GAP-35", "V-25")
	})
}

// TestResetAtOnce: if Reset is called before the event has come, the event and all flushed
// completions are queued when Reset returns.
func TestResetAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for range 30 {
			for i := range 10 {
				assert.NilError(t, a.ep.PostRecv(nil, udat.Cookie(i), 0))
			}
			connect(t, a, b)
			assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
			assert.NilError(t, a.ep.Reset())
			ev, err := a.conn.Dequeue()
			assert.NilError(t, err)
			assert.Equal(t, ev.Number, udat.EventConnectionDisconnected, describe(ev))
			for i := range 10 {
				ev, err := a.recv.Dequeue()
				assert.NilError(t, err)
				assert.Equal(t, ev.Cookie, udat.Cookie(i))
				assert.Equal(t, ev.Status, udat.DTOErrFlushed)
			}
			expect(t, b.conn, udat.EventConnectionDisconnected)
			assert.NilError(t, b.ep.Reset())
		}
		empty(t, a.conn)
		rule.Proves(t, "EP-RESET-02", "EP-DISC-10", "EP-CONNECT-12", "GAP-35")
	})
}

// TestFreeConnected: the peer is notified, and the freed endpoint makes no more events.
func TestFreeConnected(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		if !acknowledged(a) {
			b.receive(0, 0, 1, 2) // a Send that finds no receive would end the connection before Free does
		}
		for i := range 3 {
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
			assert.NilError(t, a.ep.PostSend(nil, udat.Cookie(i), 0))
		}
		assert.NilError(t, a.ep.Free())
		leftOver(t, a.request, a.ep)
		expect(t, b.conn, udat.EventConnectionDisconnected)
		for _, evd := range []*udat.EVD{a.recv, a.request, a.conn} {
			empty(t, evd)
			assert.NilError(t, evd.Free())
		}
		assert.NilError(t, a.mem.Free())
		assert.NilError(t, a.pz.Free())
		rule.Proves(t, "EP-FREE-01", "EP-FREE-02", "EP-FREE-03", "EP-FREE-04", "EPST-38", "OBJ-08", "GAP-34")
	})
}

// TestFreeWhilePolled: work that Free flushes makes no event, even if a call polls meanwhile.
func TestFreeWhilePolled(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for range 30 {
			a, b := pair(t, dev, setup{})
			for i := range 8 {
				assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
			}
			freed, polled := make(chan struct{}), make(chan error, 2)
			for _, evd := range []*udat.EVD{a.recv, a.request} {
				go func() {
					for {
						select {
						case <-freed:
							polled <- nil
							return
						default:
						}
						if ev, err := evd.Dequeue(); err == nil {
							polled <- errors.New(describe(ev))
							return
						}
						runtime.Gosched()
					}
				}()
			}
			time.Sleep(100 * time.Microsecond)
			assert.NilError(t, a.ep.Free())
			close(freed)
			assert.NilError(t, <-polled)
			assert.NilError(t, <-polled)
			empty(t, a.recv)
			expect(t, b.conn, udat.EventConnectionDisconnected)
		}
		rule.Proves(t, "EP-FREE-02", "GAP-34")
	})
}

// leftOver dequeues events of a freed endpoint that were queued before it was freed; they may still
// be there (EP-FREE-02).
func leftOver(t *testing.T, evd *udat.EVD, freed *udat.EP) {
	t.Helper()
	for {
		ev, err := evd.Dequeue()
		if err != nil {
			assert.ErrorIs(t, err, udat.ErrQueueEmpty)
			return
		}
		assert.Equal(t, ev.EP, freed, describe(ev))
	}
}

// TestOneDispatcherForManyEndpoints: the completions of endpoints are not confused when some
// endpoints are freed and new ones are made.
func TestOneDispatcherForManyEndpoints(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{qlen: 512}), newEnd(t, dev, setup{qlen: 512})
		for range 3 {
			for i := range 5 {
				a.ep, b.ep = a.another(nil), b.another(nil)
				connect(t, a, b)
				assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
				assert.NilError(t, a.ep.PostSend(nil, 2, 0))
				assert.Equal(t, completion(t, b.recv, 1).EP, b.ep)
				assert.Equal(t, completion(t, a.request, 2).EP, a.ep)
				if i%2 == 0 { // with work that is flushed, or not, when the endpoint goes
					assert.NilError(t, a.ep.PostSend(nil, 3, 0))
				}
				assert.NilError(t, a.ep.Free())
				leftOver(t, a.request, a.ep)
				leftOver(t, a.conn, a.ep) // where a message that nobody takes ends the connection
				expect(t, b.conn, udat.EventConnectionDisconnected)
				assert.NilError(t, b.ep.Free())
			}
		}
		for _, evd := range []*udat.EVD{a.recv, a.request, b.recv, b.request} {
			empty(t, evd)
		}
		rule.Proves(t, "EP-FREE-04", "GAP-34")
	})
}

// TestCloseDuringFree: an adapter is closed while an endpoint is being freed.
func TestCloseDuringFree(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		e, _ := inState(t, dev, udat.EPUnconnected, setup{})
		release := e.ep.HoldPosts()
		freed, closed := make(chan error, 1), make(chan error, 1)
		go func() { freed <- e.ep.Free() }()
		eventually(t, func() bool { _, err := udat.GetConsumerContext(e.ep); return err != nil }, "the endpoint lives")
		go func() { closed <- e.ia.Close(udat.CloseAbrupt) }()
		time.Sleep(20 * time.Millisecond)
		release()
		assert.NilError(t, <-freed)
		assert.NilError(t, <-closed)
		rule.Proves(t, "IA-CLOSE-07")
	})
}
