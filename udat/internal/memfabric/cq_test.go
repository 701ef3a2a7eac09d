package memfabric

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// notified reports whether a notification has come by now.
func (e *end) notified() bool {
	e.t.Helper()
	fired, err := e.cq.Wait(time.Now().Add(time.Millisecond))
	if err != nil {
		assert.ErrorIs(e.t, err, os.ErrDeadlineExceeded)
	}
	return fired
}

func TestArmNotifiesOnceOfTheNextCompletion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		for id := range uint64(8) {
			b.recv(id)
		}
		a.send(1)
		assert.Assert(t, !b.notified(), "not armed")
		assert.NilError(t, b.cq.Arm(false))
		assert.Assert(t, !b.notified(), "what was queued before causes none")
		a.send(2)
		assert.Assert(t, b.notified())
		a.send(3)
		assert.Assert(t, !b.notified(), "one for each arming")
		b.completions(3)
	})
}

// With one processor an empty queue yields once in 64 polls: often enough for a peer that polls,
// and rarely enough to be cheap.
func TestEmptyPollsYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a, b := pair(t, endOptions{})
	turns, ended := 0, make(chan struct{})
	var stop atomic.Bool
	go func() {
		defer close(ended)
		for ; !stop.Load(); turns++ {
			runtime.Gosched()
		}
	}()
	poll := func(e *end) int {
		var wcs [1]fabric.WC
		n, err := e.cq.Poll(wcs[:], 1)
		assert.Check(t, err)
		return n
	}
	const polls = 100 * softnic.EmptyPolls
	for range polls {
		assert.Equal(t, poll(a), 0)
	}
	stop.Store(true)
	<-ended
	// The scheduler's own interruptions add some turns.
	assert.Assert(t, turns >= 50 && turns < polls/4, "%d turns of another goroutine in %d empty polls", turns, polls)

	// Two ends only poll. Without a yield each message would wait until the scheduler interrupts
	// the other end, after 10 ms or about 100,000 polls.
	const rounds = 50
	echo := func(e *end, first bool) (polled int) {
		for i := range rounds {
			if i > 0 || !first {
				for got := false; !got; polled++ {
					got = poll(e) == 1
				}
			}
			e.qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{e.at(0, 64)})
			e.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend, NumSGE: 1}}, []fabric.SGE{e.at(0, 64)})
		}
		return polled
	}
	b.qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{b.at(0, 64)})
	others := make(chan int)
	go func() { others <- echo(b, false) }()
	polled := echo(a, true) + <-others
	assert.Assert(t, polled < rounds*2000, "%d polls for %d round trips", polled, rounds)
}

func TestArmSolicited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		solicited := func() {
			a.post(fabric.SendWR{Opcode: fabric.OpSend, Flags: fabric.Solicited})
		}
		for id := range uint64(8) {
			b.recv(id)
		}
		solicited()
		assert.Assert(t, !b.notified(), "not armed")
		assert.NilError(t, b.cq.Arm(true))
		a.send(1)
		assert.Assert(t, !b.notified())
		solicited()
		assert.Assert(t, b.notified())
		// Arming for all completions prevails over arming for solicited ones, in either order.
		assert.NilError(t, b.cq.Arm(true))
		assert.NilError(t, b.cq.Arm(false))
		assert.NilError(t, b.cq.Arm(true))
		a.send(2)
		assert.Assert(t, b.notified())
		assert.NilError(t, b.cq.Arm(true))
		assert.NilError(t, b.qp.SetError())
		assert.Assert(t, b.notified(), "an error notifies")
	})
}

func TestWake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEnd(t, New(), endOptions{})
		e.cq.Wake()
		e.cq.Wake()
		fired, err := e.cq.Wait(time.Time{})
		assert.NilError(t, err)
		assert.Assert(t, !fired)
		assert.Assert(t, !e.notified(), "two wakes are one")
		start := time.Now()
		time.AfterFunc(time.Hour, e.cq.Wake)
		fired, err = e.cq.Wait(time.Time{})
		assert.NilError(t, err)
		assert.Assert(t, !fired)
		assert.Equal(t, time.Since(start), time.Hour)
	})
}

func TestWaitIsBoundedAndExclusive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEnd(t, New(), endOptions{})
		start := time.Now()
		for i := range 3 {
			fired, err := e.cq.Wait(start.Add(time.Duration(i) * time.Second))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.Assert(t, !fired)
			assert.Equal(t, time.Since(start), time.Duration(i)*time.Second)
		}
		second := make(chan error)
		time.AfterFunc(time.Second, func() {
			fired, err := e.cq.Wait(time.Time{})
			assert.Check(t, !fired)
			second <- err
			e.cq.Wake()
		})
		go func() { assert.ErrorIs(t, <-second, fabric.ErrInUse) }()
		_, err := e.cq.Wait(time.Time{})
		assert.NilError(t, err)
	})
}

func TestCloseEndsAWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEnd(t, New(), endOptions{})
		assert.ErrorIs(t, e.cq.Close(), fabric.ErrInUse)
		assert.NilError(t, e.qp.Close())
		time.AfterFunc(time.Second, func() { assert.NilError(t, e.cq.Close()) })
		fired, err := e.cq.Wait(time.Time{})
		assert.ErrorIs(t, err, fabric.ErrClosed)
		assert.Assert(t, !fired)
		_, err = e.cq.Poll(make([]fabric.WC, 1), 1)
		assert.ErrorIs(t, err, fabric.ErrClosed)
		assert.ErrorIs(t, e.cq.Arm(false), fabric.ErrClosed)
		nicfault.Of(e.dev).Overrun(e.cq) // too late for an event
		synctest.Wait()
		assert.Equal(t, len(e.async), 0)
	})
}

func TestOverrun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{depth: 3})
		for id := range uint64(5) {
			b.recv(id)
		}
		for range 4 {
			a.post(fabric.SendWR{Opcode: fabric.OpSend})
		}
		assert.Equal(t, b.wantsAsync(fabric.AsyncCQError).CQ, b.cq)
		assert.Equal(t, b.wantsAsync(fabric.AsyncQPFatal).QP, b.qp)
		b.completions(3) // what was there is still there
		b.quiet()
		b.recv(9) // and nothing more comes, although there is room
		b.quiet()
		a.send(7)
		a.completion(7, fabric.StatusRetryExceeded)
	})
}

// TestOverrunOnce: an overrun fails all queue pairs of the queue, and is reported once.
func TestOverrunOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEnd(t, New(), endOptions{})
		failed := map[fabric.QP]bool{e.qp: true}
		for range 3 {
			e.renew()
			failed[e.qp] = true
		}
		for range 2 {
			nicfault.Of(e.dev).Overrun(e.cq)
		}
		assert.Equal(t, e.wantsAsync(fabric.AsyncCQError).CQ, e.cq)
		for range 4 {
			q := e.wantsAsync(fabric.AsyncQPFatal).QP
			assert.Assert(t, failed[q])
			delete(failed, q)
		}
		e.quiet()
	})
}

// TestShortestQueue: a queue of one entry takes one completion after the other.
func TestShortestQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{depth: 1})
		for id := range uint64(3) {
			b.recv(id)
			a.send(id)
			b.completion(id, fabric.StatusSuccess)
			a.completion(id, fabric.StatusSuccess)
			n, err := a.cq.Poll(make([]fabric.WC, 4), 1)
			assert.NilError(t, err)
			assert.Equal(t, n, 0)
		}
	})
}

// TestQueueWraps: completions stay in order when the queue's ring wraps around.
func TestQueueWraps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{depth: 3})
		send := func(id uint64) {
			b.recv(id)
			a.send(id)
			a.completion(id, fabric.StatusSuccess)
		}
		for id := range uint64(3) {
			send(id)
		}
		for id := range uint64(20) {
			b.completion(id, fabric.StatusSuccess)
			send(id + 3)
		}
	})
}

// TestCQDepths: a queue has 1 to MaxCQE entries, as created or resized.
func TestCQDepths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		f.Attr.MaxCQE = 64
		e := newEnd(t, f, endOptions{})
		for depth, good := range map[int]bool{-1: false, 0: false, 1: true, 64: true, 65: false} {
			c, err := e.dev.CreateCQ(depth)
			other, otherErr := e.dev.CreateCQ(7)
			assert.NilError(t, otherErr)
			resized := other.Resize(depth)
			if !good {
				assert.ErrorIs(t, err, fabric.ErrInvalid, "%d", depth)
				assert.ErrorIs(t, resized, fabric.ErrInvalid, "%d", depth)
			} else {
				assert.NilError(t, err, "%d", depth)
				assert.NilError(t, resized, "%d", depth)
				assert.Equal(t, c.Depth(), depth)
				assert.Equal(t, other.Depth(), depth)
				assert.NilError(t, c.Close())
			}
			assert.NilError(t, other.Close())
			assert.ErrorIs(t, other.Resize(5), fabric.ErrClosed)
		}
	})
}

func TestCQResizeKeepsWhatIsQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{depth: 4})
		for id := range uint64(9) {
			b.recv(id)
		}
		send := func(n int) {
			for range n {
				a.send(1)
				a.completion(1, fabric.StatusSuccess)
			}
		}
		send(3)
		b.completion(0, fabric.StatusSuccess)
		b.completion(1, fabric.StatusSuccess)
		send(3) // the ring has wrapped and is full
		assert.ErrorContains(t, b.cq.Resize(3), "below the 4 completions queued")
		assert.NilError(t, b.cq.Resize(6))
		assert.Equal(t, b.cq.Depth(), 6)
		send(2)
		for id := uint64(2); id < 8; id++ {
			b.completion(id, fabric.StatusSuccess)
		}
		b.quiet()
	})
}

// TestCQResizeBelowItsMemory: a queue whose ring is longer than the new depth gets exactly the new
// depth, and keeps the queued completions in order, even if the ring has wrapped.
func TestCQResizeBelowItsMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		sent, taken := uint64(0), uint64(0)
		send := func(n int) {
			for range n {
				b.recv(sent)
				a.send(sent)
				a.completion(sent, fabric.StatusSuccess)
				sent++
			}
		}
		take := func(n int) {
			for range n {
				b.completion(taken, fabric.StatusSuccess)
				taken++
			}
		}
		send(14)
		take(12)
		send(4)
		assert.ErrorIs(t, b.cq.Resize(5), fabric.ErrInvalid)
		assert.NilError(t, b.cq.Resize(6))
		take(1)
		send(1)
		take(1)
		send(1)
		synctest.Wait()
		assert.Equal(t, len(b.async), 0)
		send(1)
		b.wantsAsync(fabric.AsyncCQError)
		b.wantsAsync(fabric.AsyncQPFatal)
		take(6)
		b.quiet()
	})
}
