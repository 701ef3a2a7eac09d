package memfabric

import (
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// recvQueue is a bounded queue of receives: of one queue pair, or shared.
type recvQueue struct {
	mu      sync.Mutex
	ids     []uint64
	counts  []uint32     // segments of each
	sges    []fabric.SGE // maxSGE for each
	maxSGE  int
	head, n int
	limit   int   // armed: tell when fewer are left; 0 is not armed
	waiters []*qp // senders that found it empty
}

// receive is one receive taken from a queue.
type receive struct {
	id   uint64
	sges []fabric.SGE
}

func (r *recvQueue) init(depth, maxSGE int) {
	r.ids = make([]uint64, depth)
	r.counts = make([]uint32, depth)
	r.sges = make([]fabric.SGE, depth*maxSGE)
	r.maxSGE = maxSGE
}

// push adds as much of the batch as there is room for, in order, and wakes the waiting senders.
func (r *recvQueue) push(op string, wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		list, err := segments(op, sges, wr.FirstSGE, wr.NumSGE, r.maxSGE)
		if err != nil {
			return i, err
		}
		if r.n == len(r.ids) {
			return i, failed(op, fabric.ErrQueueFull)
		}
		at := (r.head + r.n) % len(r.ids)
		r.ids[at] = wr.ID
		r.counts[at] = wr.NumSGE
		copy(r.sges[at*r.maxSGE:], list)
		r.n++
		for j, q := range r.waiters {
			q.wake()
			r.waiters[j] = nil
		}
		r.waiters = r.waiters[:0]
	}
	return len(wrs), nil
}

// pop takes the oldest receive into rx. If there is none, the next push wakes waiter. low reports
// that the limit was passed, once for each arming.
func (r *recvQueue) pop(rx *receive, waiter *qp) (ok, low bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		if waiter != nil {
			r.forgetLocked(waiter)
			r.waiters = append(r.waiters, waiter)
		}
		return false, false
	}
	at := r.head
	rx.id = r.ids[at]
	first := at * r.maxSGE
	rx.sges = append(rx.sges[:0], r.sges[first:first+int(r.counts[at])]...)
	r.head = (at + 1) % len(r.ids)
	r.n--
	return true, r.lowLocked()
}

func (r *recvQueue) lowLocked() bool {
	if r.n >= r.limit {
		return false
	}
	r.limit = 0
	return true
}

// forget drops a sender that no longer waits.
func (r *recvQueue) forget(q *qp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetLocked(q)
}

func (r *recvQueue) forgetLocked(q *qp) {
	for i, w := range r.waiters {
		if w == q {
			last := len(r.waiters) - 1
			r.waiters[i], r.waiters[last] = r.waiters[last], nil
			r.waiters = r.waiters[:last]
			return
		}
	}
}

func (r *recvQueue) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// segments is the part of sges that a work request names.
func segments(op string, sges []fabric.SGE, first, n uint32, most int) ([]fabric.SGE, error) {
	if int64(n) > int64(most) {
		return nil, invalid(op, "%d segments are above the limit %d", n, most)
	}
	if uint64(first)+uint64(n) > uint64(len(sges)) {
		return nil, invalid(op, "segments %d to %d are not in the %d given", first, uint64(first)+uint64(n), len(sges))
	}
	list := sges[first : first+n]
	for i := range list {
		if list[i].Length == 0 {
			return nil, invalid(op, "segment %d is empty, which means 2 GiB to some devices", i)
		}
	}
	return list, nil
}

// resize changes the depth, keeping what is queued.
func (r *recvQueue) resize(op string, depth int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if depth < r.n { // and so below an armed limit
		return invalid(op, "depth %d is below the %d receives queued", depth, r.n)
	}
	ids, counts, sges := make([]uint64, depth), make([]uint32, depth), make([]fabric.SGE, depth*r.maxSGE)
	for i := range r.n {
		at := (r.head + i) % len(r.ids)
		ids[i], counts[i] = r.ids[at], r.counts[at]
		copy(sges[i*r.maxSGE:(i+1)*r.maxSGE], r.sges[at*r.maxSGE:])
	}
	r.ids, r.counts, r.sges, r.head = ids, counts, sges, 0
	return nil
}
