package udat_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// kinds are a dispatcher with a completion queue and one without: they park in different places.
var kinds = []struct {
	name    string
	streams udat.EVDFlags
}{{"software", udat.EVDSoftware}, {"merged", udat.EVDSoftware | udat.EVDDTO}}

// onEachKind runs a test on an unused dispatcher of 8 events, of each kind on each device.
func onEachKind(t *testing.T, test func(t *testing.T, ia *udat.IA, evd *udat.EVD)) {
	for _, dev := range devices() {
		t.Run(dev, func(t *testing.T) {
			for _, k := range kinds {
				t.Run(k.name, func(t *testing.T) {
					on(t, dev, synctest.Test, func(t *testing.T, dev string) {
						ia := open(t, dev)
						evd, err := ia.CreateEVD(8, k.streams, nil)
						assert.NilError(t, err)
						test(t, ia, evd)
					})
				})
			}
		})
	}
}

func TestWaitArguments(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		soft(t, evd, 1)
		refused := func(timeout time.Duration, threshold int) {
			t.Helper()
			_, _, err := evd.Wait(timeout, threshold)
			assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		}
		refused(0, 0)
		refused(patience, -1)
		rule.Proves(t, "EVD-WAIT-03")
		refused(0, queueLength(t, evd)+1)
		rule.Proves(t, "EVD-WAIT-04")
		refused(-time.Nanosecond, 1)
		_, _, err := evd.WaitContext(nil, 1) //lint:ignore SA1012 that is the test
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		var none *udat.EVD
		_, _, err = none.Wait(0, 1)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		ev, nmore, err := evd.Wait(0, 1)
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any(1))
		assert.Equal(t, nmore, 0)
		assert.NilError(t, evd.Free())
		_, _, err = evd.Wait(0, 1)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, _, err = evd.Wait(-1, 0)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "EVD-WAIT-21", "GEN-01", "GEN-02")
	})
}

func TestWaitTakesTheFirst(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		for i := range 5 {
			soft(t, evd, i)
		}
		for i, c := range []struct{ threshold, nmore int }{{5, 4}, {1, 3}, {3, 2}} {
			ev, nmore, err := evd.Wait(udat.Infinite, c.threshold)
			assert.NilError(t, err)
			assert.Equal(t, ev.Software, any(i))
			assert.Equal(t, ev.EVD, evd)
			assert.Equal(t, nmore, c.nmore)
		}
		rule.Proves(t, "EVD-WAIT-01", "EVD-WAIT-10", "EVD-WAIT-11")
		ev, nmore, err := evd.Wait(0, 3)
		assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		assert.Equal(t, nmore, 2)
		assert.Assert(t, ev.EVD == nil)
		rule.Proves(t, "EVD-WAIT-08")
		_, nmore, err = evd.Wait(20*time.Millisecond, 3)
		assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		assert.Equal(t, nmore, 2)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, nmore, err = evd.WaitContext(ctx, 3)
		assert.ErrorIs(t, err, udat.ErrInterruptedCall)
		assert.Equal(t, nmore, 2)
		rule.Proves(t, "EVD-WAIT-13")
		for i := 3; i < 5; i++ { // nothing was taken
			ev, err := evd.Dequeue()
			assert.NilError(t, err)
			assert.Equal(t, ev.Software, any(i))
		}
		empty(t, evd)
		rule.Proves(t, "EVD-WAIT-07")
	})
}

func TestWaitBlocks(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		w := waitOn(t, evd, udat.Infinite, 3)
		soft(t, evd, 0)
		soft(t, evd, 1)
		w.still(t)
		soft(t, evd, 2)
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Software, any(0))
		assert.Equal(t, r.nmore, 2)
		rule.Proves(t, "EVD-WAIT-06", "EVD-WAIT-11", "EVD-POSTSE-02", "EVD-26")
	})
}

func TestWaitIsExclusive(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		w := waitOn(t, evd, udat.Infinite, 2)
		soft(t, evd, 0)
		_, _, err := evd.Wait(0, 1)
		assert.ErrorIs(t, err, errWaiter)
		_, _, err = evd.Wait(patience, 2)
		assert.ErrorIs(t, err, errWaiter)
		_, _, err = evd.WaitContext(t.Context(), 1)
		assert.ErrorIs(t, err, errWaiter)
		rule.Proves(t, "EVD-WAIT-15")
		_, err = evd.Dequeue()
		assert.ErrorIs(t, err, errWaiter)
		_, err = evd.DequeueBatch(make([]udat.Event, 2))
		assert.ErrorIs(t, err, errWaiter)
		_, err = evd.DequeueSpin(make([]udat.Event, 2), 3)
		assert.ErrorIs(t, err, errWaiter)
		rule.Proves(t, "EVD-WAIT-15", "EVD-30", "EVD-DEQ-02")
		soft(t, evd, 1)
		assert.NilError(t, w.result(t).err)
		ev, err := evd.Dequeue() // other calls are allowed again
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any(1))
	})
}

func TestWaitUnwaitable(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		w := waitOn(t, evd, udat.Infinite, 2)
		soft(t, evd, 0)
		assert.NilError(t, evd.SetUnwaitable())
		ev, err := evd.Dequeue() // the waiter has left when the call returns
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any(0))
		assert.ErrorIs(t, w.result(t).err, errUnwaitable)
		rule.Proves(t, "EVD-WAIT-18", "EVD-SETUNW-01")
		soft(t, evd, 1)
		_, _, err = evd.Wait(0, 1)
		assert.ErrorIs(t, err, errUnwaitable)
		_, _, err = evd.Wait(udat.Infinite, 1)
		assert.ErrorIs(t, err, errUnwaitable)
		_, _, err = evd.Wait(0, 100)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		rule.Proves(t, "EVD-WAIT-17", "EVD-33")
		assert.NilError(t, evd.SetUnwaitable())
		assert.NilError(t, evd.ClearUnwaitable())
		assert.NilError(t, evd.ClearUnwaitable())
		rule.Proves(t, "EVD-SETUNW-03")
		ev, _, err = evd.Wait(0, 1)
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any(1))
		rule.Proves(t, "EVD-CLRUNW-01")
		// Neither Disable nor Enable has anything to do with it.
		assert.NilError(t, evd.Disable())
		w = waitOn(t, evd, udat.Infinite, 1)
		assert.NilError(t, evd.SetUnwaitable())
		assert.ErrorIs(t, w.result(t).err, errUnwaitable)
		assert.NilError(t, evd.Enable())
		_, _, err = evd.Wait(0, 1)
		assert.ErrorIs(t, err, errUnwaitable)
		assert.NilError(t, evd.ClearUnwaitable())
		rule.Proves(t, "EVD-32", "EVD-SETUNW-01")
		// A blocked call ends even if the dispatcher is waitable again before the call checks.
		var script faultfabric.Script
		evd, err = open(t, ia.Name(), udat.Through(script.Wrap)).CreateEVD(8, udat.EVDDTO, nil)
		assert.NilError(t, err)
		script.On(faultfabric.Wait).Times(1).After(func() { evd.ClearUnwaitable() })
		w = waitOn(t, evd, udat.Infinite, 1)
		assert.NilError(t, evd.SetUnwaitable())
		assert.ErrorIs(t, w.result(t).err, errUnwaitable)
		rule.Proves(t, "EVD-WAIT-18")
	})
}

func TestWaitAborts(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		w := waitOn(t, evd, udat.Infinite, 2)
		soft(t, evd, 0)
		assert.NilError(t, evd.Free())
		assert.ErrorIs(t, w.result(t).err, udat.ErrAbort)
		rule.Proves(t, "EVD-FREE-03")
		evd, err := ia.CreateEVD(4, udat.EVDDTO|udat.EVDSoftware, nil)
		assert.NilError(t, err)
		w = waitOn(t, evd, udat.Infinite, 1)
		async := waitOn(t, ia.AsyncEVD(), udat.Infinite, 1)
		assert.NilError(t, ia.Close(udat.CloseAbrupt))
		assert.ErrorIs(t, w.result(t).err, udat.ErrAbort)
		assert.ErrorIs(t, async.result(t).err, udat.ErrAbort)
		_, _, err = evd.Wait(0, 1)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		ia, err = udat.Open(ia.Name())
		assert.NilError(t, err)
		async = waitOn(t, ia.AsyncEVD(), udat.Infinite, 1)
		assert.NilError(t, ia.Close(udat.CloseGraceful))
		assert.ErrorIs(t, async.result(t).err, udat.ErrAbort)
		rule.Proves(t, "EVD-WAIT-19")
	})
}

func TestWaitContext(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		wait := func(ctx context.Context) *waiting {
			t.Helper()
			return blocking(t, evd, func() (udat.Event, int, error) { return evd.WaitContext(ctx, 2) })
		}
		soft(t, evd, 0)
		ctx, cancel := context.WithCancel(t.Context())
		w := wait(ctx)
		w.still(t)
		cancel()
		r := w.result(t)
		assert.ErrorIs(t, r.err, udat.ErrInterruptedCall)
		assert.ErrorIs(t, r.err, context.Canceled)
		assert.Equal(t, r.nmore, 1)
		rule.Proves(t, "EVD-WAIT-20", "EVD-WAIT-13")
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		for _, blocks := range []bool{true, false} { // the second call finds the deadline passed
			_, nmore, err := evd.WaitContext(ctx, 2)
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, nmore, 1, "%v", blocks)
		}
		_, _, err := evd.Wait(time.Millisecond, 2)
		assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		assert.Assert(t, !errors.Is(err, context.DeadlineExceeded), "no context has a part in it")
		w = wait(t.Context())
		soft(t, evd, 1)
		r = w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.ev.Software, any(0))
		assert.Equal(t, r.nmore, 1)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		ev, _, err := evd.WaitContext(ctx, 1) // a queued event is returned all the same
		assert.NilError(t, err)
		assert.Equal(t, ev.Software, any(1))
	})
}

// TestWaitTimeoutSpansWakes shows that events that are too few for the threshold do not prolong a
// Wait.
func TestWaitTimeoutSpansWakes(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, withFlags(udat.CompletionUnsignalled, 0))
		posted := 0
		w := waitOn(t, b.recv, 400*time.Millisecond, 1)
		end := time.Now().Add(patience)
		for len(w.done) == 0 {
			assert.Assert(t, time.Now().Before(end), "the wait of 400 ms lasts as long as events come")
			b.receive(udat.CompletionUnsignalled, udat.Cookie(posted))
			a.send(8, 0, 0)
			empty := make([]udat.Event, 8)
			_, err := a.request.DequeueBatch(empty)
			assert.NilError(t, err)
			posted++
			time.Sleep(50 * time.Millisecond)
		}
		r := w.result(t)
		assert.NilError(t, r.err, "enough events were queued when the time was up")
		assert.Equal(t, r.ev.Cookie, udat.Cookie(0))
		rule.Proves(t, "EVD-WAIT-31", "EVD-WAIT-09")
	})
}

// TestWaitThreshold waits with thresholds above 1, with each completion flag that allows it.
func TestWaitThreshold(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionEVDThreshold} {
			t.Run(fmt.Sprintf("flags=0x%x", uint32(flags)), func(t *testing.T) {
				a, b := pair(t, dev, withFlags(flags, flags))
				b.receive(0, 0, 1, 2, 3, 4)
				w := waitOn(t, b.recv, udat.Infinite, 1)
				a.send(8, 0, 0)
				r := w.result(t)
				assert.NilError(t, r.err)
				assert.Equal(t, r.ev.Cookie, udat.Cookie(0))
				if flags == 0 {
					rule.Proves(t, "EVD-WAIT-29", "EVD-20")
				}
				w = waitOn(t, b.recv, udat.Infinite, 3)
				a.send(8, 1, 0)
				a.send(8, 2, 0)
				w.still(t)
				a.send(8, 3, 0)
				r = w.result(t)
				assert.NilError(t, r.err)
				assert.Equal(t, r.ev.Cookie, udat.Cookie(1))
				assert.Equal(t, r.nmore, 2)
				if flags != 0 {
					rule.Proves(t, "EVD-25")
				}
				rule.Proves(t, "EVD-WAIT-03", "EVD-WAIT-11")
				// Completions of requests count the same way.
				w = waitOn(t, a.request, udat.Infinite, 5)
				a.send(8, 4, 0)
				r = w.result(t)
				assert.NilError(t, r.err)
				assert.Equal(t, r.ev.Cookie, udat.Cookie(0))
				assert.Equal(t, r.nmore, 4)
			})
		}
	})
}

func TestWaitConsumerControlled(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, c := range []struct {
			recv, request udat.CompletionFlags
			evd           func(*end) *udat.EVD
		}{
			{udat.CompletionUnsignalled, 0, func(e *end) *udat.EVD { return e.recv }},
			{udat.CompletionSolicitedWait, 0, func(e *end) *udat.EVD { return e.recv }},
			{0, udat.CompletionUnsignalled, func(e *end) *udat.EVD { return e.request }},
		} {
			e := newEnd(t, dev, withFlags(c.recv, c.request))
			evd := c.evd(e)
			for _, timeout := range []time.Duration{0, patience} {
				_, _, err := evd.Wait(timeout, 2)
				assert.ErrorIs(t, err, udat.ErrInvalidState)
				_, _, err = evd.Wait(timeout, 0)
				assert.ErrorIs(t, err, udat.ErrInvalidParameter)
				_, _, err = evd.Wait(timeout, queueLength(t, evd)+1)
				assert.ErrorIs(t, err, udat.ErrInvalidParameter)
			}
			_, _, err := evd.Wait(0, 1)
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			_, _, err = e.conn.Wait(0, 2) // another dispatcher
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			assert.NilError(t, e.ep.Free())
			_, _, err = evd.Wait(0, 2) // the stream is gone
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		}
		rule.Proves(t, "EVD-WAIT-05")
	})
}

// TestWaitKeepsItsThreshold lets a call wait for two events on a dispatcher. A stream whose
// completions notify at the Consumer's choice cannot be added then, because the call could not
// count its events.
func TestWaitKeepsItsThreshold(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{udat.CompletionUnsignalled, udat.CompletionSolicitedWait} {
			e := newEnd(t, dev, setup{})
			evd := e.evd(16, udat.EVDDTO)
			w := waitOn(t, evd, udat.Infinite, 2)
			attr := udat.EPAttr{RecvCompletionFlags: flags}
			mask, p := udat.EPFieldRecvEVD|udat.EPFieldRecvCompletionFlags, udat.EPParam{RecvEVD: evd, Attr: attr}
			for range 2 {
				_, err := e.ia.CreateEP(e.pz, evd, nil, nil, &attr)
				assert.ErrorIs(t, err, errWaiter)
				assert.ErrorIs(t, e.ep.Modify(mask, p), errWaiter)
				assert.Equal(t, param(t, e.ep).RecvEVD, e.recv)
			}
			if flags == udat.CompletionUnsignalled {
				_, err := e.ia.CreateEP(e.pz, nil, evd, nil, &udat.EPAttr{RequestCompletionFlags: flags})
				assert.ErrorIs(t, err, errWaiter)
			}
			w.still(t)
			counted, err := e.ia.CreateEP(e.pz, evd, nil, nil, nil)
			assert.NilError(t, err)
			assert.NilError(t, counted.Free())
			assert.NilError(t, evd.SetUnwaitable())
			assert.ErrorIs(t, w.result(t).err, errUnwaitable)
			assert.NilError(t, evd.ClearUnwaitable())
			w = waitOn(t, evd, udat.Infinite, 1)
			assert.NilError(t, e.ep.Modify(mask, p))
			w.still(t)
			assert.NilError(t, evd.SetUnwaitable())
			w.result(t)
		}
		rule.Proves(t, "EVD-WAIT-05")
	})
}

// TestWaitStreamOrder shows that the events of a stream come in order, whichever call dequeues
// them.
func TestWaitStreamOrder(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n = 60
		a, b := pair(t, dev, setup{qlen: 4 * n, attr: &udat.EPAttr{MaxRecvDTOs: n, MaxRequestDTOs: n}})
		for i := range n {
			assert.NilError(t, b.ep.PostRecv(b.iov(64*i, 64), udat.Cookie(i), 0))
		}
		for i := range n {
			a.put(64*i, 64, byte(i))
			assert.NilError(t, a.ep.PostSend(a.iov(64*i, 1+i%64), udat.Cookie(i), 0))
		}
		ordered := func(evd *udat.EVD) {
			t.Helper()
			batch := make([]udat.Event, 5)
			for i := 0; i < n; {
				ev, _, err := evd.Wait(patience, 1)
				assert.NilError(t, err)
				batch[0] = ev
				got := 1
				switch i % 3 {
				case 1:
					if k, err := evd.DequeueBatch(batch[1:]); err == nil {
						got += k
					}
				case 2:
					if ev, err := evd.Dequeue(); err == nil {
						batch[1] = ev
						got++
					}
				}
				for _, ev := range batch[:got] {
					assert.Equal(t, ev.Status, udat.DTOSuccess, "%s", describe(ev))
					assert.Equal(t, ev.Cookie, udat.Cookie(i))
					assert.Equal(t, ev.Length, uint64(1+i%64))
					i++
				}
			}
			empty(t, evd)
		}
		ordered(b.recv)
		for i := range n {
			assert.DeepEqual(t, b.get(64*i, 1+i%64), a.get(64*i, 1+i%64))
		}
		rule.Proves(t, "EVD-44")
		ordered(a.request)
		rule.Proves(t, "EVD-WAIT-22", "EVD-40", "EVD-45")
	})
}

// TestWaitAllocatesNothing shows that calls that find an event do not allocate.
func TestWaitAllocatesNothing(t *testing.T) {
	if udat.CheckingLocks {
		t.Skip("the checker of locks allocates")
	}
	onEach(t, func(t *testing.T, dev string) {
		const n = 100
		a, b := pair(t, dev, setup{qlen: n, attr: &udat.EPAttr{MaxRecvDTOs: n, MaxRequestDTOs: n}})
		ctx := t.Context()
		batch := make([]udat.Event, 2)
		var failures atomic.Int32
		check := func(err error) {
			if err != nil {
				failures.Add(1)
			}
		}
		for name, take := range map[string]func(){
			"Dequeue":      func() { _, err := b.recv.Dequeue(); check(err) },
			"DequeueBatch": func() { _, err := b.recv.DequeueBatch(batch); check(err) },
			"Wait":         func() { _, _, err := b.recv.Wait(udat.Infinite, 1); check(err) },
			"WaitContext":  func() { _, _, err := b.recv.WaitContext(ctx, 1); check(err) },
		} {
			for i := range n {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
			}
			for i := range n {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), udat.Cookie(i), 0))
			}
			for range n {
				next(t, a.request)
			}
			if allocs := testing.AllocsPerRun(n/2-1, take); allocs > 0 {
				t.Errorf("%s: %v allocations per call", name, allocs)
			}
			assert.Equal(t, failures.Load(), int32(0), "%s", name)
			for name != "DequeueBatch" && len(batch) > 0 { // the rest
				if _, err := b.recv.DequeueBatch(batch); err != nil {
					break
				}
			}
		}
	})
}
