package udat_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// The tests in this file are about defects of reference implementations of uDAPL that no other test
// here would notice; docs/conformance/dapl-defects.md has the whole list.

// TestSoftwareEventWakes: an event from elsewhere wakes who waits for completions, and so does an
// end of waiting.
func TestSoftwareEventWakes(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		_, b := pair(t, dev, setup{streams: udat.EVDDefault | udat.EVDSoftware, unkept: true})
		w := waitOn(t, b.recv, udat.Infinite, 1)
		soft(t, b.recv, 7)
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Software, any(7))
		w = waitOn(t, b.recv, udat.Infinite, 1)
		assert.NilError(t, b.recv.SetUnwaitable())
		assert.ErrorIs(t, w.result(t).err, udat.ErrInvalidState)
		rule.Proves(t, "EVD-POSTSE-02", "EVD-WAIT-18")
	})
}

// TestWaitLeavesNothing: however a Wait ends, the next call finds no waiter and no lock held. A
// Wait with a short timeout really waits.
func TestWaitLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{streams: udat.EVDDefault | udat.EVDSoftware, qlen: 4})
		p, err := e.recv.Query()
		assert.NilError(t, err)
		for range p.QLen {
			soft(t, e.recv, 1)
		}
		for name, call := range map[string]func() error{
			"threshold 0":     func() error { _, _, err := e.recv.Wait(0, 0); return err },
			"threshold -1":    func() error { _, _, err := e.recv.Wait(patience, -1); return err },
			"above the queue": func() error { _, _, err := e.recv.Wait(patience, p.QLen+1); return err },
			"full queue":      func() error { return e.recv.PostSE(udat.Event{Number: udat.EventSoftware}) },
		} {
			assert.Assert(t, call() != nil, name)
			n := udat.Queued(e.recv)
			_, nmore, err := e.recv.Wait(patience, n)
			assert.NilError(t, err, name)
			assert.Equal(t, nmore, n-1, name)
			soft(t, e.recv, 1)
			_, err = e.recv.Dequeue()
			assert.NilError(t, err, name)
			soft(t, e.recv, 1)
		}
		e.drain(e.recv)
		begin := time.Now()
		_, _, err = e.recv.Wait(700*time.Microsecond, 1)
		assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		assert.Assert(t, time.Since(begin) >= 700*time.Microsecond)
		empty(t, e.recv)
		rule.Proves(t, "EVD-WAIT-03", "EVD-WAIT-04", "EVD-WAIT-06", "EVD-WAIT-11", "EVD-POSTSE-04")
	})
}

// TestRefusedPostKeepsOthers: a post that the device refuses returns an error, and the requests in
// flight keep their slots and cookies.
func TestRefusedPostKeepsOthers(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		const limit = 4
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: limit, MaxRecvDTOs: limit}})
		for i := range udat.Cookie(2) {
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0)) // the peer has no receive yet
		}
		a.faults().FailPost(1)
		assert.Assert(t, a.ep.PostSend(a.iov(0, 8), 90, 0) != nil)
		a.faults().FailPost(2)
		n, err := a.ep.PostBatch([]udat.Op{{IOV: a.iov(0, 8), Cookie: 2}, {IOV: a.iov(0, 8), Cookie: 91}})
		assert.Equal(t, n, 1)
		assert.Assert(t, err != nil)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 3, 0))
		// all places are taken
		refused(t, a.ep.PostSend(a.iov(0, 8), 92, 0), udat.InsufficientResources, udat.SubResourceCredits)
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 0, 0))
		completion(t, a.request, 0)
		completion(t, b.recv, 0)
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
		b.faults().FailPost(1)
		var told *udat.Error
		assert.Assert(t, errors.As(b.ep.PostRecv(b.iov(0, 8), 93, 0), &told))
		for i := udat.Cookie(2); i <= limit; i++ {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), i, 0))
		}
		for i := udat.Cookie(1); i < limit; i++ {
			completion(t, a.request, i)
			completion(t, b.recv, i)
		}
		empty(t, a.request)
		empty(t, b.recv)
		rule.Proves(t, "POST-01", "POST-03", "POST-10")
	})
}

// TestTimedOutIsOver: a connect that has timed out is given up: an end that accepts its request
// later is not connected.
func TestTimedOutIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		psp := listen(t, b)
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), 300*time.Millisecond, nil, udat.QoSBestEffort,
			udat.ConnectDefault))
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		expect(t, a.conn, udat.EventConnectionTimedOut)
		assert.NilError(t, cr.Accept(b.ep, nil))
		told := acceptedInVain(t, b)
		assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
		assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
		empty(t, a.conn)
		empty(t, b.conn)
		rule.Proves(t, "EPST-16")
		if told {
			rule.Proves(t, "EPST-26")
		}
	})
}

// TestGracefulFullDispatcher: a graceful disconnect ends although nobody dequeues the completions
// for which it waits, and although there are more completions than the dispatcher can queue.
func TestGracefulFullDispatcher(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n = 12
		a, b := newEnd(t, dev, setup{qlen: 2}), newEnd(t, dev, setup{qlen: 2})
		connect(t, a, b)
		for i := range udat.Cookie(n) {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), i, 0))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
		}
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		expect(t, a.conn, udat.EventConnectionDisconnected)
		expect(t, b.conn, udat.EventConnectionDisconnected)
		assert.Equal(t, expect(t, a.ia.AsyncEVD(), udat.EventAsyncEVDOverflow).Object, udat.Handle(a.request))
		assert.Equal(t, expect(t, b.ia.AsyncEVD(), udat.EventAsyncEVDOverflow).Object, udat.Handle(b.recv))
		for i := range udat.Cookie(n) {
			completion(t, a.request, i)
			completion(t, b.recv, i)
		}
		rule.Proves(t, "EP-DISC-04", "EPST-42", "EVD-50")
	})
}

// TestQueriesAreOnesOwn: the result of a query belongs to the caller: later queries do not change
// it.
func TestQueriesAreOnesOwn(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ias := []*udat.IA{open(t, dev), open(t, dev)}
		_, attr, prov, err := ias[0].Query()
		assert.NilError(t, err)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 50 {
					_, a, p, err := ias[i%2].Query()
					if err != nil || a.TransportAttr[0] != attr.TransportAttr[0] ||
						p.ProviderSpecificAttr[0] != prov.ProviderSpecificAttr[0] {
						t.Errorf("%v %v, %v", a.TransportAttr, p.ProviderSpecificAttr, err)
						return
					}
					a.TransportAttr[0].Value, p.ProviderSpecificAttr[0].Value, p.LMRMemTypesSupported[0] = "mine", "mine", 99
				}
			})
		}
		wg.Wait()
		rule.Proves(t, "GEN-10")
	})
}

// TestQualifierIsFree: the qualifier of a freed service point is free again, although connections
// made through it still exist.
func TestQualifierIsFree(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		psp := listen(t, b)
		qual := psp.Qual()
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
		assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(b.ep, nil))
		expect(t, b.conn, udat.EventConnectionEstablished)
		expect(t, a.conn, udat.EventConnectionEstablished)
		for range 3 {
			assert.NilError(t, psp.Free())
			var err error
			psp, err = b.ia.CreatePSP(qual, b.cr, udat.PSPConsumer)
			assert.NilError(t, err)
			late := newEnd(t, dev, setup{})
			assert.NilError(t, late.ep.Connect(b.ia.Addr(), qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault))
			assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Reject(nil))
			expect(t, late.conn, udat.EventConnectionPeerRejected)
		}
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		rule.Proves(t, "PSP-FREE-01", "PSP-FREE-03")
	})
}

// TestTwoDispatchersOneObject: events on several dispatchers may make one notification, whose
// dispatcher is a hint. A program that then polls all dispatchers gets all events, and later events
// notify again.
func TestTwoDispatchersOneObject(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		cno := newCNO(t, e.ia, nil)
		var evds []*udat.EVD
		for range 3 {
			evd, err := e.ia.CreateEVD(4, udat.EVDSoftware, cno)
			assert.NilError(t, err)
			evds = append(evds, evd)
		}
		for _, last := range evds {
			for _, evd := range evds {
				soft(t, evd, 1)
			}
			_, err := cno.Wait(patience)
			assert.NilError(t, err)
			for _, evd := range evds {
				_, err := evd.Dequeue()
				assert.NilError(t, err)
				empty(t, evd)
			}
			for err == nil { // triggers that were stored meanwhile
				_, err = cno.Wait(0)
			}
			soft(t, last, 2)
			hint, err := cno.Wait(patience)
			assert.NilError(t, err)
			assert.Equal(t, hint, last)
			_, err = last.Dequeue()
			assert.NilError(t, err)
		}
		_, err := cno.Wait(0)
		assert.ErrorIs(t, err, udat.ErrQueueEmpty)
		rule.Proves(t, "CNO-04", "CNO-08", "CNO-WAIT-02", "CNO-WAIT-03")
	})
}

// TestAsyncKinds: each asynchronous event of a device makes the right event, which names its
// object, or no event if nothing is wrong.
func TestAsyncKinds(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 4, 8, udat.EPAttr{})
		connect(t, a, b)
		async := b.ia.AsyncEVD()
		for _, kind := range []fabric.AsyncKind{fabric.AsyncPortActive, fabric.AsyncQPLastWQE} {
			b.faults().Report(fabric.AsyncEvent{Kind: kind, QP: b.ep.QP()})
		}
		b.faults().Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQError, SRQ: udat.FabricSRQ(s)})
		ev := expect(t, async, udat.EventAsyncProviderInternalError)
		assert.Assert(t, ev.Object == udat.Handle(s) && ev.Reason == udat.ReasonSRQTransferToError)
		assert.Equal(t, count(t, s).State, udat.SRQError)
		assert.NilError(t, s.SetLW(2))
		for range 3 {
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
		}
		ev = expect(t, async, udat.EventAsyncSRQLowWatermark)
		assert.Assert(t, ev.Object == udat.Handle(s) && ev.Reason == udat.ReasonSRQLowWatermark)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		empty(t, async)
		rule.Proves(t, "EVT-02", "EVT-03")
	})
}

// TestPollNeverSleeps: a call that dequeues the completion of a failure, or disconnects, does not
// wait for the consequences.
func TestPollNeverSleeps(t *testing.T) {
	inTime(t, func(t *testing.T) {
		a, b := pair(t, "mem0", setup{})
		atOnce := func(call func()) {
			t.Helper()
			begin := time.Now()
			call()
			assert.Equal(t, time.Since(begin), time.Duration(0))
		}
		b.faults().Kill() // nobody answers a disconnect
		a.faults().FailOp(1, fabric.StatusRemoteOp)
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		synctest.Wait()
		atOnce(func() {
			ev, err := a.request.Dequeue()
			assert.NilError(t, err)
			assert.Equal(t, ev.Status, udat.DTOErrRemoteResponder)
		})
		expect(t, a.conn, udat.EventConnectionBroken)
		atOnce(func() { assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt)) })
		expect(t, b.conn, udat.EventConnectionDisconnected)
	})
}
