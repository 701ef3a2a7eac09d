package softnic

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// waits is a Waker that counts its calls, and calls a function of the test.
type waits struct {
	woken atomic.Int32
	wake  func()
}

func (w *waits) Wake() {
	w.woken.Add(1)
	if w.wake != nil {
		w.wake()
	}
}

// post adds n receives.
func post(t *testing.T, r *recvQueue, n int) {
	t.Helper()
	got, err := r.push("post_recv", make([]fabric.RecvWR, n), nil)
	assert.NilError(t, err)
	assert.Equal(t, got, n)
}

// finds checks whether a sender finds a receive. If not, it waits.
func finds(t *testing.T, r *recvQueue, w Waker, want bool) {
	t.Helper()
	var rx receive
	got, _ := r.pop(&rx, w)
	assert.Equal(t, got, want)
}

// TestRecvQueueWakesOnce: a receive wakes one waiting sender, and the next receive the next sender,
// also if that sender was woken before and waits again because another has taken its receive.
func TestRecvQueueWakesOnce(t *testing.T) {
	var r recvQueue
	r.init(4, 1)
	var all [3]*waits
	for i := range all {
		w := new(waits)
		w.wake = func() {
			var rx receive
			ok, _ := r.pop(&rx, nil) // for somebody else
			assert.Assert(t, ok)
			finds(t, &r, w, false)
		}
		all[i] = w
		finds(t, &r, w, false)
	}
	for n := range 5 {
		post(t, &r, 1)
		for i, w := range all {
			want := n / len(all)
			if i <= n%len(all) {
				want++
			}
			assert.Equal(t, int(w.woken.Load()), want, "waiter %d after %d receives", i, n+1)
		}
	}
}

// TestRecvQueueUntaken: a sender that was woken, and does not take its receive, does not keep the
// others from it for long; meanwhile it is its turn, and not theirs. It is woken once.
func TestRecvQueueUntaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recvQueue
		r.init(4, 1)
		var all [5]*waits
		for i := range all {
			all[i] = new(waits)
			finds(t, &r, all[i], false)
		}
		woken := func(want ...int) {
			t.Helper()
			synctest.Wait()
			for i, w := range all {
				assert.Equal(t, int(w.woken.Load()), want[i], "waiter %d", i)
			}
		}
		post(t, &r, 1)
		post(t, &r, 1)
		woken(1, 1, 0, 0, 0)
		time.Sleep(untaken - time.Nanosecond)
		woken(1, 1, 0, 0, 0)
		var rx receive
		r.pop(&rx, nil)
		time.Sleep(time.Nanosecond)
		woken(1, 1, 1, 0, 0)
		time.Sleep(untaken)
		woken(1, 1, 1, 1, 0)
		post(t, &r, 1)
		woken(1, 1, 1, 1, 1)
		time.Sleep(10 * untaken)
		woken(1, 1, 1, 1, 1)
	})
}

// TestRecvQueueTakesTwo: if the first sender takes the receives of both, the second sleeps on.
func TestRecvQueueTakesTwo(t *testing.T) {
	var r recvQueue
	r.init(4, 1)
	first, second := new(waits), new(waits)
	first.wake = func() {
		var rx receive
		for range 2 {
			ok, _ := r.pop(&rx, nil)
			assert.Assert(t, ok)
		}
	}
	finds(t, &r, first, false)
	finds(t, &r, second, false)
	post(t, &r, 2)
	assert.Equal(t, int(second.woken.Load()), 0)
	assert.Equal(t, len(r.waiters), 1)
}

// TestRecvQueueBadBatch: the receives of a batch before a bad one, or before the one that finds the
// queue full, wake who waits.
func TestRecvQueueBadBatch(t *testing.T) {
	for _, bad := range []fabric.RecvWR{{NumSGE: 2}, {}} {
		var r recvQueue
		r.init(1, 1)
		w := new(waits)
		finds(t, &r, w, false)
		n, err := r.push("post_recv", []fabric.RecvWR{{}, bad}, make([]fabric.SGE, 2))
		assert.Assert(t, err != nil)
		assert.Equal(t, n, 1)
		assert.Equal(t, int(w.woken.Load()), 1)
	}
}

// TestRecvQueueForget: a forgotten sender is not woken, at any place among those that wait.
func TestRecvQueueForget(t *testing.T) {
	for gone := range 3 {
		var r recvQueue
		r.init(4, 1)
		var all [3]*waits
		for i := range all {
			all[i] = new(waits)
			finds(t, &r, all[i], false)
		}
		r.forget(all[gone])
		post(t, &r, len(all))
		for i, w := range all {
			assert.Equal(t, w.woken.Load() == 0, i == gone, "sender %d without %d", i, gone)
		}
	}
}

// TestRecvQueueLimit: an armed limit is reported once, by the first pop that leaves fewer receives.
func TestRecvQueueLimit(t *testing.T) {
	var r recvQueue
	r.init(4, 1)
	post(t, &r, 4)
	r.limit = 3
	for _, want := range []bool{false, true, false, false} {
		var rx receive
		ok, low := r.pop(&rx, nil)
		assert.Assert(t, ok)
		assert.Equal(t, low, want)
	}
}

// TestRecvQueueOrder: senders are woken in the order in which they began to wait, as long as there
// are receives. A sender that waits twice is woken once, and a forgotten sender is not woken.
func TestRecvQueueOrder(t *testing.T) {
	var r recvQueue
	r.init(4, 1)
	var order []int
	var all [5]*waits
	for i := range all {
		all[i] = &waits{wake: func() {
			var rx receive
			ok, _ := r.pop(&rx, nil)
			assert.Assert(t, ok)
			order = append(order, i)
		}}
		finds(t, &r, all[i], false)
	}
	finds(t, &r, all[0], false) // it keeps its place
	r.forget(all[2])
	r.forget(all[2])
	post(t, &r, 2)
	assert.Assert(t, slices.Equal(order, []int{0, 1}), "%v", order)
	post(t, &r, 3)
	assert.Assert(t, slices.Equal(order, []int{0, 1, 3, 4}), "%v", order)
	assert.Equal(t, r.len(), 1)
}
