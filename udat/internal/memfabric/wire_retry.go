package memfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// Retry intervals of an unanswered message, and of one that met no receive. A peer that has left
// does not answer. With 7 retries, the default, its disconnect has half a second to arrive before a
// request fails.
const (
	ackTimeout = 64 * time.Millisecond
	rnrTimer   = 640 * time.Microsecond
)

// noAnswer is, like softnic.NotReady, an outcome of an attempt after which the request may be tried
// again.
const noAnswer = softnic.NotReady + 1

// try is the progress of the oldest request if it had to wait.
type try struct {
	placed    bool // counted among the reads under way
	sent      bool // it has been tried: it waits for the peer
	lost, rnr patience
}

// patience counts the retries for one cause of waiting.
type patience struct {
	taken int
	next  time.Time
}

// spend uses a retry if one is due, and reports whether any is left.
func (p *patience) spend(limit int, every time.Duration) bool {
	now := time.Now()
	if now.Before(p.next) {
		return true
	}
	p.taken++
	p.next = now.Add(every)
	return p.taken <= limit
}

// retry schedules the oldest request again, or returns its final status.
func (l *link) retry(why fabric.Status) (st fabric.Status, done bool) {
	t, o := &l.try, &l.dev.Opts
	t.sent = true
	st, p, limit, every := fabric.StatusRetryExceeded, &t.lost, int(o.Retry)+1, ackTimeout
	if why == softnic.NotReady {
		if o.RNRRetry == 7 { // as often as it takes: the receive that is posted wakes it
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
