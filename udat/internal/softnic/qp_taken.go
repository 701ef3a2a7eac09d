package softnic

import (
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// holding counts the receives that a queue pair has taken from its SRQ and not completed.
type holding struct {
	mu         sync.Mutex
	n          int
	soft, hard int       // the limits that SetTakenLimits armed; negative: not armed
	ahead      []receive // the receives of takeAhead, whose messages have not come; n counts them too; guarded by QP.In
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
	if err := q.usable(op, qpState(q.state.Load())); err != nil {
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

// takeAhead takes the receives that Faults.TakeAhead asks for; q.In is held.
func (q *QP) takeAhead() {
	for q.srq != nil && len(q.held.ahead) < int(q.dev.Faults.ahead.Load()) {
		var rx receive
		ok, low := q.rq.pop(&rx, nil)
		if !ok {
			return
		}
		q.held.ahead = append(q.held.ahead, rx)
		q.tookFromSRQ(low)
	}
}

func (q *QP) tookFromSRQ(low bool) {
	if low {
		q.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: q.srq})
	}
	q.hold(+1)
}

// popAhead moves a receive to rx: the oldest one of those that takeAhead has taken. It returns
// false if there is no such receive. q.In is held.
func (q *QP) popAhead(rx *receive) bool {
	if len(q.held.ahead) == 0 {
		return false
	}
	first := &q.held.ahead[0]
	rx.id, rx.sges = first.id, append(rx.sges[:0], first.sges...)
	q.held.ahead = q.held.ahead[1:]
	return true
}
