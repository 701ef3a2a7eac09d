package udat_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
)

// longSpin is the greatest spin time: all events of a test come while the call spins.
const longSpin = time.Second

func spinning(d time.Duration) setup { return setup{opts: []udat.Option{udat.WithSpin(d)}} }

// TestSpinOrNot: waits have the same results with and without spinning.
func TestSpinOrNot(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, d := range []time.Duration{0, time.Microsecond, 50 * time.Microsecond, longSpin} {
			a, b := pair(t, dev, spinning(d))
			const rounds = 50
			echoed := make(chan error, 1)
			b.receive(0, 0)
			go func() {
				for i := range udat.Cookie(rounds) {
					ev, _, err := b.recv.Wait(patience, 1)
					if err == nil && i+1 < rounds {
						err = b.ep.PostRecv(b.iov(0, 8), i+1, 0)
					}
					if err == nil {
						err = b.ep.PostSend(b.iov(0, 8), ev.Cookie, udat.CompletionSuppress)
					}
					if err != nil {
						echoed <- err
						return
					}
				}
				echoed <- nil
			}()
			for i := range udat.Cookie(rounds) {
				assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), i, 0))
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, udat.CompletionSuppress))
				completion(t, a.recv, i)
			}
			assert.NilError(t, <-echoed)
			empty(t, a.recv)
			// Fewer events than the threshold, and then as many.
			a.receive(0, 1, 2, 3)
			done := make(chan int, 1)
			go func() {
				ev, nmore, err := a.recv.Wait(patience, 3)
				if err != nil || ev.Cookie != 1 {
					nmore = -1
				}
				done <- nmore
			}()
			for range 3 {
				time.Sleep(time.Millisecond)
				assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 0, udat.CompletionSuppress))
			}
			assert.Equal(t, <-done, 2)
		}
	})
}

// TestSpinEnds: everything that ends a blocked Wait also ends a Wait that spins, before it would
// park.
func TestSpinEnds(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{opts: []udat.Option{udat.WithSpin(longSpin)},
			streams: udat.EVDSoftware | udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind})
		evd := e.recv
		begun := func(end func()) {
			time.AfterFunc(20*time.Millisecond, end)
		}
		inTime := func(what string, wait func() error, want error) {
			t.Helper()
			start := time.Now()
			err := wait()
			if want == nil {
				assert.NilError(t, err, what)
			} else {
				assert.ErrorIs(t, err, want, what)
			}
			assert.Assert(t, time.Since(start) < longSpin, "%s: it spun to its end", what)
		}
		inTime("timeout", func() error { _, _, err := evd.Wait(20*time.Millisecond, 1); return err }, udat.ErrTimeoutExpired)
		begun(func() { soft(t, evd, 7) })
		inTime("software event", func() error { _, _, err := evd.Wait(patience, 1); return err }, nil)
		ctx, cancel := context.WithCancel(t.Context())
		begun(cancel)
		inTime("context", func() error { _, _, err := evd.WaitContext(ctx, 1); return err }, udat.ErrInterruptedCall)
		begun(func() { evd.SetUnwaitable() })
		inTime("unwaitable", func() error { _, _, err := evd.Wait(patience, 1); return err }, udat.ErrInvalidState)
		assert.NilError(t, evd.ClearUnwaitable())
		begun(func() { e.ia.Close(udat.CloseAbrupt) })
		inTime("destroyed", func() error { _, _, err := evd.Wait(patience, 1); return err }, udat.ErrAbort)
	})
}

// TestSpinUnsignalled: a completion that does not notify does not end a Wait that spins, or that
// could spin.
func TestSpinUnsignalled(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{udat.CompletionUnsignalled, udat.CompletionSolicitedWait} {
			s := withFlags(flags, 0)
			s.opts = []udat.Option{udat.WithSpin(100 * time.Millisecond)} // the wait goes on after it
			a, b := pair(t, dev, s)
			if flags == udat.CompletionSolicitedWait {
				needSolicited(t, b)
			}
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, flags&udat.CompletionUnsignalled))
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 2, 0))
			w := waitOn(t, b.recv, patience, 1)
			a.send(8, 1, quietly)
			w.still(t)
			a.send(8, 2, quietly|flags&udat.CompletionSolicitedWait)
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Cookie, udat.Cookie(1))
			completionNow(t, b.recv, 2)
		}
	})
}

// TestSpinPolls: a spinning Wait polls in bursts, DequeueSpin polls as often as requested, and
// other calls poll once.
func TestSpinPolls(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, processors := range []int{1, 2} {
			var script faultfabric.Script
			s := spinning(longSpin)
			s.unkept, s.script, s.opts = true, &script, append(s.opts, udat.WithProcessors(processors))
			a, b := pair(t, dev, s)
			cq := udat.CompletionQueue(b.recv)
			polls := script.On(faultfabric.Poll, cq).Count()
			batch := make([]udat.Event, 4)
			for _, n := range []int{1, 77, udat.MaxPolls} {
				_, err := b.recv.DequeueSpin(batch, n)
				assert.ErrorIs(t, err, udat.ErrQueueEmpty)
				assert.Equal(t, polls.Last(), n)
			}
			b.receive(0, 1)
			a.send(8, 1, quietly)
			eventually(t, func() bool { n, _ := b.recv.DequeueSpin(batch, udat.MaxPolls); return n == 1 }, "the message arrives")
			assert.Equal(t, batch[0].Cookie, udat.Cookie(1))
			_, err := b.recv.DequeueBatch(batch)
			assert.ErrorIs(t, err, udat.ErrQueueEmpty)
			assert.Equal(t, polls.Last(), 1)
			for _, call := range []func(){func() { b.recv.Dequeue() }, func() { b.ep.GetStatus() },
				func() { b.recv.Wait(0, 1) }} {
				_, err := b.recv.DequeueSpin(batch, 7)
				assert.ErrorIs(t, err, udat.ErrQueueEmpty)
				call()
				assert.Equal(t, polls.Last(), 1)
			}
			b.receive(0, 2)
			// A call polls twice before it spins, and spins at least eight times, however slow the machine.
			spun := script.On(faultfabric.Poll, cq).Skip(2).Times(8).Count()
			w := waitOn(t, b.recv, patience, 1)
			eventually(t, func() bool { return spun.Calls() == 8 }, "it spins")
			assert.Equal(t, spun.Last(), udat.SpinPolls)
			a.send(8, 2, quietly)
			r := w.result(t)
			assert.NilError(t, r.err)
			assert.Equal(t, r.ev.Cookie, udat.Cookie(2))
		}
	})
}

// TestSpinFindsMany: a spinning call takes all completions that it finds, and does not poll for
// more.
func TestSpinFindsMany(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		const n = 40 // more than one poll returns
		var script faultfabric.Script
		a, b := pair(t, dev, setup{unkept: true, script: &script, attr: &udat.EPAttr{MaxRecvDTOs: n, MaxRequestDTOs: n}})
		onTheDevice(t, a, b, n)
		polls := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Count()
		k, err := a.request.DequeueSpin(make([]udat.Event, 2*n), 9)
		assert.NilError(t, err)
		assert.Equal(t, k, n)
		assert.Equal(t, polls.Last(), 1)
	})
}

// TestSpinLearns: a dispatcher stops spinning if that does not make waits shorter, and starts again
// if it would.
func TestSpinLearns(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		alone := spinning(longSpin)
		alone.unkept, alone.script, alone.opts = true, &script, append(alone.opts, udat.WithProcessors(2))
		a, b := pair(t, dev, alone)
		for range 2 * udat.SpinRound {
			_, _, err := b.recv.Wait(time.Millisecond, 1)
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
		}
		assert.Assert(t, udat.Parks(b.recv))
		bursts := script.On(faultfabric.Poll, udat.CompletionQueue(b.recv)).With(udat.SpinPolls).Count()
		spun := 0
		for range 64 {
			before := bursts.Calls()
			_, _, err := b.recv.Wait(time.Millisecond, 1)
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			if bursts.Calls() > before {
				spun++
			}
		}
		assert.Assert(t, spun < 32, "it spins in %d of 64 waits", spun)
		eventually(t, func() bool {
			_, _, err := b.recv.Wait(time.Millisecond, 1)
			assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			return bursts.Calls() > 0
		}, "it tries again now and then")
		eventually(t, func() bool {
			b.receive(0, 1)
			time.AfterFunc(time.Millisecond, func() { a.ep.PostSend(a.iov(0, 8), 1, quietly) })
			completion(t, b.recv, 1)
			return !udat.Parks(b.recv)
		}, "it spins")
		off, _ := pair(t, dev, spinning(0))
		off.recv.Wait(time.Millisecond, 1)
		assert.Assert(t, !udat.Parks(off.recv)) // it does not even try
	})
}

// TestSpinArgument checks that invalid spin times are refused.
func TestSpinArgument(t *testing.T) {
	for _, d := range []time.Duration{-1, longSpin + 1} {
		_, err := udat.Open("mem0", udat.WithSpin(d))
		refused(t, err, udat.InvalidParameter, udat.SubArg2)
	}
}
