package softnic

import (
	"slices"
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// holding counts the receives that a queue pair has taken from its SRQ and not completed.
type holding struct {
	mu         sync.Mutex
	n          int
	soft, hard int // the limits that SetTakenLimits armed; negative: not armed

	// Guarded by QP.In.
	ahead    []receive // receives whose messages have not come; n counts them too
	reserved int       // how many of them Reserve has promised to messages; the others are of takeAhead
}

// Posted returns the number of receives ever posted to the queue pair's own queue.
func (q *QP) Posted() uint64 { return q.rq.posted.Load() }

// Shared reports whether the queue pair takes its receives from an SRQ.
func (q *QP) Shared() bool { return q.srq != nil }

// RecvDepth returns how many receives the queue pair's queue holds.
func (q *QP) RecvDepth() int { return q.rq.size() }

// ownShare is the part of a shared queue's receives that one queue pair may reserve at a time. It
// may always reserve one.
const ownShare = 4

// Reserve takes a receive from the SRQ for a message that the peer has announced. It returns false
// if the queue pair has reserved its share, or if there is no receive; the next receive that is
// posted then wakes w. q.In is held.
func (q *QP) Reserve(w Waker) bool {
	h := &q.held
	if h.reserved > 0 && h.reserved >= q.rq.len()/ownShare {
		return false
	}
	if h.reserved == len(h.ahead) && !q.pullAhead(w) {
		return false
	}
	h.reserved++
	return true
}

// Taken returns the number of receives taken from the SRQ and not completed.
func (q *QP) Taken() int {
	q.held.mu.Lock()
	defer q.held.mu.Unlock()
	return q.held.n
}

// SetTakenLimits sets and arms both limits.
func (q *QP) SetTakenLimits(soft, hard int) error {
	const op = "arm limits of receives taken"
	if q.srq == nil {
		return Invalid(op, "the queue pair has no SRQ")
	}
	if err := usable(op, qpState(q.state.Load())); err != nil {
		return err
	}
	q.held.mu.Lock()
	defer q.held.mu.Unlock()
	q.held.soft, q.held.hard = soft, hard
	q.tellHeld()
	return nil
}

// A call of hold adds n, which may be negative, to the number of receives that are taken and not
// completed.
func (q *QP) hold(n int) {
	if q.srq == nil {
		return
	}
	q.held.mu.Lock()
	defer q.held.mu.Unlock()
	q.held.n += n
	q.tellHeld()
}

// tellHeld reports each armed limit that is exceeded, and disarms it; held.mu is held.
func (q *QP) tellHeld() {
	h := &q.held
	for _, l := range []struct {
		limit *int
		kind  fabric.AsyncKind
	}{{&h.soft, fabric.AsyncQPSoftLimit}, {&h.hard, fabric.AsyncQPHardLimit}} {
		if *l.limit >= 0 && h.n > *l.limit {
			*l.limit = -1
			q.dev.Report(fabric.AsyncEvent{Kind: l.kind, QP: q, Count: h.n})
		}
	}
}

// takeAhead takes the receives that the hook asks for; q.In is held.
func (q *QP) takeAhead() {
	for h := q.dev.Hook; h != nil && q.srq != nil && len(q.held.ahead)-q.held.reserved < h.Ahead(); {
		if !q.pullAhead(nil) {
			return
		}
	}
}

// pullAhead takes one receive from the SRQ before its message comes. If there is none, it returns
// false, and the next receive that is posted wakes w. q.In is held.
func (q *QP) pullAhead(w Waker) bool {
	h := &q.held
	n := len(h.ahead)
	h.ahead = slices.Grow(h.ahead, 1)[:n+1] // the place keeps the segments of an earlier receive
	ok, low := q.rq.pop(&h.ahead[n], w)
	if !ok {
		h.ahead = h.ahead[:n]
		return false
	}
	q.tookFromSRQ(low)
	return true
}

func (q *QP) tookFromSRQ(low bool) {
	if low {
		q.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: q.srq})
	}
	q.hold(+1)
}

// popAhead moves a receive to rx: the oldest one of those that were taken before their messages. It
// returns false if there is no such receive. q.In is held.
func (q *QP) popAhead(rx *receive) bool {
	if len(q.held.ahead) == 0 {
		return false
	}
	h := &q.held
	n := len(h.ahead) - 1
	first := h.ahead[0]
	rx.id, rx.sges = first.id, append(rx.sges[:0], first.sges...)
	copy(h.ahead, h.ahead[1:])
	h.ahead[n] = first
	h.ahead, h.reserved = h.ahead[:n], max(h.reserved-1, 0)
	return true
}
