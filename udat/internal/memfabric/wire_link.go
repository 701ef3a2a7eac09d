package memfabric

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// link is a queue pair's end of the transport.
type link struct {
	qp      *softnic.QP
	dev     *Device
	peer    atomic.Pointer[link]   // the other end; set before the queue pair is connected, and never changed
	queued  atomic.Bool            // the link is in the engine's list
	awaited atomic.Pointer[func()] // called when the first message arrives, which shows that the peer is ready

	// Used by the engine only.
	try   try
	timer *time.Timer
}

// readyList holds the links of a device that have work for its engine, oldest first.
type readyList struct {
	mu     sync.Mutex
	links  []*link
	parked bool
	ended  bool

	bell chan struct{}
	done chan struct{}
}

func (l *readyList) init() {
	l.bell = make(chan struct{}, 1)
	l.done = make(chan struct{})
}

// stop ends the engine's goroutine, and waits until the goroutine has returned. All queue pairs
// must be closed.
func (l *readyList) stop() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	softnic.Ring(l.bell)
	<-l.done
}

func (l *readyList) add(k *link) {
	l.mu.Lock()
	l.links = append(l.links, k)
	wake := l.parked
	l.parked = false
	l.mu.Unlock()
	if wake {
		softnic.Ring(l.bell)
	}
}

// take removes and returns the queued links. The list then uses buf, an empty slice, for links that
// are queued later. If take returns no links, the engine waits for the bell, which the next call of
// add rings. The result ended says whether stop has been called.
func (l *readyList) take(buf []*link) (ready []*link, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready, l.links = l.links, buf
	l.parked = len(ready) == 0
	return ready, l.ended
}

func (d *Device) newLink(q *softnic.QP) softnic.Link { return &link{qp: q, dev: d} }

func linkOf(q *softnic.QP) *link { return q.Link().(*link) }

// Wake queues the queue pair for the engine.
func (l *link) Wake() {
	if !l.queued.Load() && l.queued.CompareAndSwap(false, true) {
		l.dev.ready.add(l)
	}
}

// Posted does nothing: a sender that found no receive waits in the queue of the receives.
func (*link) Posted() {}

// wakeAt calls Wake at the given time.
func (l *link) wakeAt(at time.Time) {
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(at), l.Wake)
	} else {
		l.timer.Reset(time.Until(at))
	}
}

// Failed wakes the link and its peer. The peer may be waiting for a receive that will never be
// posted.
func (l *link) Failed() {
	l.Wake()
	if p := l.peer.Load(); p != nil {
		p.Wake()
	}
}

// drain flushes the queue pair if it is in error, and calls QP.Leave if it is closed. The argument
// is scratch space.
func (l *link) drain(in *softnic.Inbound) {
	l.qp.Flush(in)
	if !l.qp.Gone() {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if p := l.peer.Load(); p != nil {
		p.qp.Forget(l)
	}
	l.qp.Leave()
}

// A call of heard establishes the connection of an accepting end, because a message of the peer has
// arrived.
func (l *link) heard() {
	if ready := l.awaited.Load(); ready != nil {
		l.awaited.Store(nil)
		l.dev.Events.Add(*ready)
	}
}

// A call of answers reports whether l can serve requests of its peer.
func (l *link) answers(peer *link) bool {
	return l.qp.Connected() && (l.dev.Hook == nil || l.dev.Hook.Reaches(l.qp, peer.qp))
}

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
