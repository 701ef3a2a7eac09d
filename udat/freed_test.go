package udat_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"weak"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// inUse returns the bytes of the heap that are in use.
func inUse() int {
	var m runtime.MemStats
	for range 3 { // the memory of finalized objects is free after the next collection
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestUnreadEventsKeepLittle: an unread event keeps neither the queues nor the connection of its
// endpoint when the endpoint has been freed. The event still names the endpoint, and the endpoint
// its context.
func TestUnreadEventsKeepLittle(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		const count, most = 60, 8 << 10
		e := newEnd(t, dev, setup{})
		psp := listen(t, e)
		nobody := psp.Qual()
		assert.NilError(t, psp.Free())
		attr := &udat.EPAttr{MaxRecvDTOs: 1000, MaxRequestDTOs: 1000}
		for name, c := range map[string]struct {
			evd   *udat.EVD
			event func(t *testing.T, ep *udat.EP)
		}{
			"asynchronous": {e.ia.AsyncEVD(), func(t *testing.T, ep *udat.EP) {
				e.nic().Report(fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: ep.QP()})
			}},
			"connection": {e.conn, func(t *testing.T, ep *udat.EP) {
				assert.NilError(t, ep.Connect(e.ia.Addr(), nobody, patience, nil, 0, 0))
			}},
			"completion": {e.request, func(t *testing.T, ep *udat.EP) {
				assert.NilError(t, ep.Connect(e.ia.Addr(), nobody, patience, nil, 0, 0))
				expect(t, e.conn, udat.EventConnectionNonPeerRejected)
				assert.NilError(t, ep.PostSend(e.iov(0, 8), 1, 0))
			}},
		} {
			e.another(attr).Free() // the dispatchers have grown
			before := inUse()
			for i := range count {
				ep := e.another(attr)
				assert.NilError(t, udat.SetConsumerContext(ep, uint64(i)))
				c.event(t, ep)
				eventually(t, func() bool { state(t, ep); return udat.Queued(c.evd) == i+1 }, "event %d", i)
				assert.NilError(t, ep.Free())
			}
			// At once, one or two of the last endpoints are still held. When time has passed they are not.
			eventually(t, func() bool { return (inUse()-before)/count < most }, "%s: an unread event keeps too much", name)
			for i := range count {
				ev := next(t, c.evd)
				context, err := udat.GetConsumerContext(ev.EP)
				assert.ErrorIs(t, err, udat.ErrInvalidHandle)
				assert.Equal(t, context, uint64(i), name)
			}
		}
	})
}

// TestAsyncOverflow: the asynchronous dispatcher keeps as many events as its length, and then one
// that says how many are lost. When there is room again, events are queued again.
func TestAsyncOverflow(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		const qlen = 4
		e := newEnd(t, dev, setup{opts: []udat.Option{udat.WithAsyncQLen(qlen)}})
		async := e.ia.AsyncEVD()
		fail := func() {
			t.Helper()
			queued, lost := udat.Queued(async), udat.Lost(async)
			e.nic().Report(fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: e.ep.QP()})
			eventually(t, func() bool { return udat.Queued(async) > queued || udat.Lost(async) > lost }, "nothing came")
		}
		for round := range 3 {
			lost := 3 + round
			for range qlen + lost {
				fail()
			}
			assert.Equal(t, udat.Queued(async), qlen+1)
			for range qlen {
				expect(t, async, udat.EventAsyncEPBroken)
			}
			fail() // behind the report
			ev := expect(t, async, udat.EventAsyncEVDOverflow)
			assert.Equal(t, ev.Object, udat.Handle(async))
			assert.ErrorContains(t, ev.Err(), fmt.Sprintf("the queue of %d events was full, and %d later", qlen, lost))
			expect(t, async, udat.EventAsyncEPBroken)
			empty(t, async)
		}
		rule.Proves(t, "EVD-54")
	})
}

// TestFreedRegionKept: a region that has been freed keeps none of the program's memory, although
// endpoints and windows that used the region live on.
func TestFreedRegionKept(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		w := a.window(t)
		use := func(i int) weak.Pointer[byte] {
			buf := make([]byte, 1<<20)
			l, err := a.ia.CreateLMR(a.pz, buf, udat.PrivAll)
			assert.NilError(t, err)
			part := []udat.LMRTriplet{l.Triplet(0, 64)}
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 64), 1, 0))
			assert.NilError(t, a.ep.PostRecv(part, 1, 0))
			assert.NilError(t, a.ep.PostSend(part, 2, 0))
			completion(t, a.request, 2)
			completion(t, b.recv, 1)
			assert.NilError(t, b.ep.PostSend(b.iov(0, 64), 3, 0))
			completion(t, b.request, 3)
			completion(t, a.recv, 1)
			_, err = w.Bind(l.Triplet(0, 64), udat.PrivRemoteRead, a.ep, 4, 0)
			assert.NilError(t, err)
			expect(t, a.request, udat.EventRMRBindCompletion)
			_, err = w.Bind(udat.LMRTriplet{}, 0, a.ep, 5, 0)
			assert.NilError(t, err)
			expect(t, a.request, udat.EventRMRBindCompletion)
			assert.NilError(t, l.Free())
			return weak.Make(&buf[0])
		}
		for i := range 3 {
			mem := use(i)
			inUse()
			assert.Assert(t, mem.Value() == nil, "the memory of region %d is kept", i)
		}
	})
}

// TestUnconfirmedForgotten: the adapter forgets an accept when its connection is established, and
// when its endpoint is freed.
func TestUnconfirmedForgotten(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		connect(t, a, b)
		assert.Equal(t, udat.Unconfirmed(b.ia), 0)
		for range 3 {
			c, ep := newEnd(t, dev, setup{}), b.another(nil)
			cr := ask(t, c, b, nil)
			c.faults().Kill()
			assert.NilError(t, cr.Accept(ep, nil))
			assert.Equal(t, udat.Unconfirmed(b.ia), 1)
			assert.NilError(t, ep.Free())
			assert.Equal(t, udat.Unconfirmed(b.ia), 0)
		}
	})
}

// TestFreedRoomReturned: a freed endpoint gives back all the room that it took on the completion
// queues of its dispatchers, so that the queues do not grow with the number of endpoints that have
// been.
func TestFreedRoomReturned(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{qlen: 1})
		attr := &udat.EPAttr{MaxRecvDTOs: 4, MaxRequestDTOs: 4}
		made := []func() *udat.EP{func() *udat.EP { return e.another(attr) }}
		if udat.DeviceAttr(e.ia).MaxSRQ > 0 {
			srq, err := e.ia.CreateSRQ(e.pz, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
			assert.NilError(t, err)
			made = append(made, func() *udat.EP {
				ep, err := e.ia.CreateEPWithSRQ(e.pz, e.recv, e.request, e.conn, srq, attr)
				assert.NilError(t, err)
				return ep
			})
		}
		for _, make := range made {
			assert.NilError(t, make().Free())
			was := [2]int{udat.Capacity(e.recv), udat.Capacity(e.request)}
			for i := range 3 {
				a, b := make(), make()
				assert.NilError(t, a.Free())
				assert.NilError(t, b.Free())
				assert.Equal(t, [2]int{udat.Capacity(e.recv), udat.Capacity(e.request)}, was, "after %d", i)
			}
		}
	})
}

// TestWaitLeavesContext: a wait leaves nothing on its context, however it ends.
func TestWaitLeavesContext(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		cancelable, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx := leaktest.Count(cancelable)
		e := newEnd(t, dev, setup{})
		cno, err := e.ia.CreateCNO(nil)
		assert.NilError(t, err)
		both := e.evd(8, udat.EVDDTO|udat.EVDSoftware)
		soft, err := e.ia.CreateEVD(8, udat.EVDSoftware, cno)
		assert.NilError(t, err)
		for _, c := range []struct {
			post *udat.EVD
			wait func() error
		}{
			{both, func() error { _, _, err := both.WaitContext(ctx, 1); return err }},
			{soft, func() error { _, _, err := soft.WaitContext(ctx, 1); return err }},
			{soft, func() error { _, err := cno.WaitContext(ctx); soft.Dequeue(); return err }},
		} {
			for range 3 {
				done := make(chan error)
				go func() { done <- c.wait() }()
				eventually(t, func() bool { return udat.Blocked(c.post) || udat.CNOWaiters(cno) > 0 }, "the call waits")
				assert.NilError(t, c.post.PostSE(udat.Event{Number: udat.EventSoftware}))
				assert.NilError(t, <-done)
				assert.Equal(t, ctx.Callbacks(), 0)
			}
		}
		assert.Assert(t, ctx.All() > 0, "the calls watched another context")
		done := make(chan error)
		go func() { _, _, err := both.WaitContext(ctx, 1); done <- err }()
		eventually(t, func() bool { return udat.Blocked(both) }, "the call waits")
		cancel()
		assert.ErrorIs(t, <-done, udat.ErrInterruptedCall)
		assert.Equal(t, ctx.Callbacks(), 0)
	})
}
