package memfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// ackTimeout is the time between two tries of a message that was not answered. rnrTimer is the time
// between two tries of a message for which there was no receive. A peer that has disconnected does
// not answer. With 7 retries, the default, the peer's disconnect has half a second to arrive before
// a request fails.
const (
	ackTimeout = 64 * time.Millisecond
	rnrTimer   = 640 * time.Microsecond
)

// noAnswer means that the peer did not answer. A request with this status may be tried again, like
// one with softnic.NotReady.
const noAnswer = softnic.NotReady + 1

// unfinished means that a part of the request was executed, but not its last part.
const unfinished = noAnswer + 1

// try is the progress of the oldest request, if that request has to wait.
type try struct {
	placed    bool   // counted in reads and readDone
	sent      bool   // the request has been tried, and waits for the peer or for its turn
	moved     uint64 // bytes of the request that have been moved
	lost, rnr patience
}

// patience counts the retries for one cause of waiting.
type patience struct {
	taken int
	next  time.Time
}

// spend counts a retry if it is time for one. If the counted retry exceeds the limit, spend returns
// false. Otherwise it returns true.
func (p *patience) spend(limit int, every time.Duration) bool {
	now := time.Now()
	if now.Before(p.next) {
		return true
	}
	p.taken++
	p.next = now.Add(every)
	return p.taken <= limit
}

// retry schedules another try of the oldest request. If no retry is left, it returns the request's
// final status and true.
func (l *link) retry(why fabric.Status) (st fabric.Status, done bool) {
	t, o := &l.try, &l.dev.Opts
	t.sent = true
	st, p, limit, every := fabric.StatusRetryExceeded, &t.lost, int(o.Retry)+1, ackTimeout
	if why == softnic.NotReady {
		if o.RNRRetry == 7 { // without limit: a receive that is posted wakes the link
			return st, false
		}
		st, p, limit, every = fabric.StatusRNRExceeded, &t.rnr, int(o.RNRRetry), rnrTimer
	}
	if p.spend(limit, every) {
		l.wakeAt(p.next)
		return st, false
	}
	l.peer.Load().qp.Forget(l)
	return st, true
}
