package softnic

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// waits is a Waker that counts its calls, and calls a function of the test.
type waits struct {
	woken int
	wake  func()
}

func (w *waits) Wake() {
	w.woken++
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

// TestRecvQueueWakesOnce: a push wakes each waiting sender at most once, even if the sender takes
// no receive, or waits again because another sender has taken it.
func TestRecvQueueWakesOnce(t *testing.T) {
	var r recvQueue
	r.init(4, 1)
	var all [3]*waits
	for i := range all {
		w := new(waits)
		w.wake = func() {
			var rx receive
			if r.n > 0 {
				r.pop(&rx, nil) // for somebody else
			}
			assert.Assert(t, !r.await(w))
		}
		all[i] = w
		assert.Assert(t, !r.await(w))
	}
	for n := range 5 { // each time the next one
		post(t, &r, 1)
		for i, w := range all {
			want := n / len(all)
			if i <= n%len(all) {
				want++
			}
			assert.Equal(t, w.woken, want, "waiter %d after %d receives", i, n+1)
		}
	}
	for _, w := range all {
		w.woken, w.wake = 0, nil
	}
	post(t, &r, 1) // which stays
	for i, w := range all {
		assert.Equal(t, w.woken, 1, "waiter %d", i)
	}
	assert.Equal(t, len(r.waiters), 0)
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
		assert.Assert(t, !r.await(all[i]))
	}
	assert.Assert(t, !r.await(all[0])) // it waits behind the others now
	r.forget(all[2])
	r.forget(all[2])
	post(t, &r, 2)
	assert.Assert(t, slices.Equal(order, []int{1, 3}), "%v", order)
	post(t, &r, 3)
	assert.Assert(t, slices.Equal(order, []int{1, 3, 4, 0}), "%v", order)
	assert.Equal(t, r.len(), 1)
}
