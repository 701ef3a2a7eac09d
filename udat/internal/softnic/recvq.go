package softnic

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Waker is a sender that waits for a receive. Each transport has its own type of sender.
type Waker interface{ Wake() }

// recvQueue is a bounded queue of receives. It belongs to one queue pair, or is shared.
type recvQueue struct {
	mu      sync.Mutex
	ids     []uint64
	counts  []uint32     // number of segments of each receive
	sges    []fabric.SGE // room for maxSGE segments for each receive
	maxSGE  int
	head, n int
	posted  atomic.Uint64 // receives ever added
	limit   int           // the armed limit: pop reports when fewer receives are left; 0: not armed
	waiters []Waker       // senders that found the queue empty, oldest first
	again   bool          // wake will be called again
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

// push adds receives of the batch in order, until the queue is full. Each receive wakes the sender
// that has waited longest. A sender that finds no receive when it runs waits again.
func (r *recvQueue) push(op string, wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	n, waits, err := r.add(op, wrs, sges)
	if waits {
		r.wake(n)
	}
	return n, err
}

// untaken is how long a receive may stay in the queue after a sender was woken for it. After that
// time another sender is woken.
const untaken = 4 * time.Millisecond

// wake wakes n of the senders that wait, as long as there are receives. If it woke all senders for
// one receive, all but one would find no receive. But a sender that was woken may be slow, or may
// have gone. So while receives are left, wake runs again after the time untaken, and wakes one more
// sender for each of these receives.
func (r *recvQueue) wake(n int) {
	for ; n > 0; n-- {
		w := r.waiter()
		if w == nil {
			return
		}
		w.Wake()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n > 0 && len(r.waiters) > 0 && !r.again {
		r.again = true
		time.AfterFunc(untaken, func() {
			r.mu.Lock()
			n := r.n
			r.again = false
			r.mu.Unlock()
			r.wake(n)
		})
	}
}

// waiter removes and returns the sender that has waited longest, if there is a receive for it.
func (r *recvQueue) waiter() Waker {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 || len(r.waiters) == 0 {
		return nil
	}
	w := r.waiters[0]
	r.waiters = slices.Delete(r.waiters, 0, 1)
	return w
}

func (r *recvQueue) add(op string, wrs []fabric.RecvWR, sges []fabric.SGE) (n int, waits bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		list, err := segments(op, sges, wr.FirstSGE, wr.NumSGE, r.maxSGE)
		if err != nil {
			return i, len(r.waiters) > 0, err
		}
		if r.n == len(r.ids) {
			return i, len(r.waiters) > 0, Failed(op, fabric.ErrQueueFull)
		}
		at := (r.head + r.n) % len(r.ids)
		r.ids[at] = wr.ID
		r.counts[at] = wr.NumSGE
		copy(r.sges[at*r.maxSGE:], list)
		r.n++
		r.posted.Add(1)
	}
	return len(wrs), len(r.waiters) > 0, nil
}

// pop moves the oldest receive to rx. If there is no receive, the next push wakes the waiter. The
// second result is true if fewer receives than the armed limit are left. It is true only once after
// the limit was armed.
func (r *recvQueue) pop(rx *receive, waiter Waker) (ok, low bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		if waiter != nil && !slices.Contains(r.waiters, waiter) {
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

// forget removes w from the waiting senders.
func (r *recvQueue) forget(w Waker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiters, w); i >= 0 {
		r.waiters = slices.Delete(r.waiters, i, i+1)
	}
}

func (r *recvQueue) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// size returns the depth.
func (r *recvQueue) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// resize changes the depth, and keeps the queued receives.
func (r *recvQueue) resize(op string, depth int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if depth < r.n { // this covers an armed limit too, which is at most r.n
		return Invalid(op, "depth %d is below the %d receives queued", depth, r.n)
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

type srq struct {
	object
	pd   *pd
	rq   recvQueue
	dead atomic.Bool
}

// CreateSRQ makes a shared receive queue of exactly depth entries.
func (p *pd) CreateSRQ(depth, maxSGE int) (fabric.SRQ, error) {
	const op = "create SRQ"
	a := &p.dev.HW.Attr
	switch {
	case a.MaxSRQ == 0:
		return nil, Failed(op, fabric.ErrNotSupported)
	case depth < 1 || depth > a.MaxSRQWR:
		return nil, Invalid(op, "depth %d is not in 1 to %d", depth, a.MaxSRQWR)
	case maxSGE < 0 || maxSGE > a.MaxSRQSGE:
		return nil, Invalid(op, "maxSGE %d is not in 0 to %d", maxSGE, a.MaxSRQSGE)
	}
	if err := p.dev.admit(op, SRQs, &p.object); err != nil {
		return nil, err
	}
	s := &srq{pd: p}
	s.rq.init(depth, maxSGE)
	return s, nil
}

func (s *srq) usable(op string) error {
	if s.dead.Load() {
		return Failed(op, fabric.ErrClosed)
	}
	return s.pd.dev.mayPost(op)
}

func (s *srq) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	const op = "post receive to SRQ"
	if err := s.usable(op); err != nil {
		return 0, err
	}
	return s.rq.push(op, wrs, sges)
}

// SetLimit arms the limit. If fewer receives than the limit are queued already, the event is raised
// at once.
func (s *srq) SetLimit(limit int) error {
	const op = "arm SRQ limit"
	if err := s.usable(op); err != nil {
		return err
	}
	s.rq.mu.Lock()
	if limit < 0 || limit > len(s.rq.ids) {
		s.rq.mu.Unlock()
		return Invalid(op, "limit %d is not in 0 to the depth", limit)
	}
	s.rq.limit = limit
	low := s.rq.lowLocked()
	s.rq.mu.Unlock()
	if low {
		s.pd.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: s})
	}
	return nil
}

func (s *srq) Resize(depth int) error {
	const op = "resize SRQ"
	if err := s.usable(op); err != nil {
		return err
	}
	a := &s.pd.dev.HW.Attr
	if !a.SRQResize {
		return Failed(op, fabric.ErrNotSupported)
	}
	if depth < 1 || depth > a.MaxSRQWR {
		return Invalid(op, "depth %d is not in 1 to %d", depth, a.MaxSRQWR)
	}
	return s.rq.resize(op, depth)
}

func (s *srq) Depth() int { return s.rq.size() }

func (s *srq) Available() int { return s.rq.len() }

func (s *srq) Close() error {
	if err := s.pd.dev.retire("destroy SRQ", &s.object); err != nil {
		return err
	}
	s.dead.Store(true)
	s.pd.dev.release(SRQs, &s.pd.object)
	return nil
}
