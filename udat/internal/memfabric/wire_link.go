package memfabric

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// link is a queue pair's end of the wire.
type link struct {
	qp      *softnic.QP
	dev     *Device
	peer    atomic.Pointer[link]   // in this process; set before the queue pair is connected, then fixed
	queued  atomic.Bool            // for the engine to look at
	cut     atomic.Bool            // fault: nothing passes to or from it
	awaited atomic.Pointer[func()] // called at the first message, which shows that the peer is ready

	// The engine's own.
	try      try
	timer    *time.Timer
	readDone []time.Time // when the latest reads were done: a ring of as many as may be outstanding
	reads    int
}

// readyList holds the links of a device that its engine is to look at, oldest first.
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

// stop ends the goroutine, after the queue pairs.
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

// take returns the queued links, and queues the next ones in the slice empty. If there are none,
// the engine parks next.
func (l *readyList) take(empty []*link) (ready []*link, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready, l.links = l.links, empty
	l.parked = len(ready) == 0
	return ready, l.ended
}

// newLink makes a queue pair's end of the wire.
func (d *Device) newLink(q *softnic.QP) softnic.Link { return &link{qp: q, dev: d} }

func linkOf(q *softnic.QP) *link { return q.Link().(*link) }

// Wake queues the queue pair for the engine.
func (l *link) Wake() {
	if !l.queued.Load() && l.queued.CompareAndSwap(false, true) {
		l.dev.ready.add(l)
	}
}

// wakeAt is Wake at the time given.
func (l *link) wakeAt(at time.Time) {
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(at), l.Wake)
	} else {
		l.timer.Reset(time.Until(at))
	}
}

// Failed wakes the peer too: it may wait for a receive that will never be posted.
func (l *link) Failed() {
	l.Wake()
	if p := l.peer.Load(); p != nil {
		p.Wake()
	}
}

// drain flushes a queue pair in error, and leaves one that is closed; in is scratch.
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

// heard reports to the accepting end that the peer is ready, because a message has come.
func (l *link) heard() {
	if ready := l.awaited.Load(); ready != nil {
		l.awaited.Store(nil)
		l.dev.Events.Add(0, *ready)
	}
}

// answers reports whether messages between l and its peer from arrive and l serves them.
func (l *link) answers(from *link) bool {
	return l.qp.Connected() && !l.cut.Load() && !from.cut.Load() &&
		!l.dev.faults.silent() && !from.dev.faults.silent()
}
