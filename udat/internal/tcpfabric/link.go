package tcpfabric

import (
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// turn passes work to one caller at a time. Whoever has something to do calls run. One of them
// works, and does what the others want too; they return at once. So nobody is blocked, and what
// only step uses needs no lock.
type turn struct {
	turns atomic.Int64 // calls of run since nobody worked
	step  func()
}

// run does the work, or, if another caller is doing it, has that one go round once more.
func (t *turn) run() {
	if t.turns.Add(1) > 1 {
		return
	}
	for n := int64(1); ; n = t.turns.Load() {
		t.step()
		if t.turns.CompareAndSwap(n, 0) {
			return
		}
	}
}

// link is a queue pair's end of the wire, and its one connection's stream of frames.
//
// The transmitting half (tx) belongs to the goroutine that has the turn. The receiving half (rx) is
// guarded by QP.In. What one half learns for the other goes through the atomic fields.
type link struct {
	turn
	qp *softnic.QP

	// Set before the queue pair is connected.
	sock socket
	dev  *Device
	conn *softnic.Conn
	own  bool // the peer is of this library
	crc  bool

	asks    []ask  // under way: a ring as large as the read depth
	sinkKey uint32 // where their names begin

	live   atomic.Bool // there is a socket
	ending atomic.Bool // the stream has ended, behind what can be read
	inside atomic.Bool // rx is at work: whoever fails the queue pair now leaves the clean-up to rx's caller

	// From rx to tx.
	greeted  atomic.Bool         // the peer may be sent requests
	segment  atomic.Int64        // the largest segment that it takes
	acked    atomic.Uint64       // requests that it has executed
	answered atomic.Uint64       // reads and atomics that it has answered
	executed atomic.Uint64       // the peer's requests executed here
	refusing atomic.Bool         // a request of the peer has been refused: the queue pair ends
	ackNow   atomic.Bool         // acknowledge executed now, even in a frame of its own
	starved  atomic.Int32        // the peer's request waits for a receive: states of starvation
	resumed  atomic.Bool         // ControlResume is due
	held     atomic.Bool         // ControlNotReady has come
	verdict  atomic.Uint32       // the status that the oldest request gets, after those before it; 0: none
	end      atomic.Pointer[end] // set: the peer sends nothing more
	lost     atomic.Bool         // requests in flight are given up
	leaving  atomic.Bool         // this end has disconnected, or should have
	killed   atomic.Bool         // the socket is to be closed now

	// From tx to rx.
	issued  atomic.Uint64 // requests sent
	asked   atomic.Uint64 // reads and atomics sent
	told    atomic.Uint64 // the value of executed that the peer knows
	served  atomic.Uint64 // answers sent to the peer's reads and atomics
	stalled atomic.Bool   // rx waits until all answers are sent

	polled [2]*hotSet             // of its completion queues
	hot    atomic.Pointer[hotSet] // whose polls read the socket
	seen   [2]uint32              // polls of each queue at the last event; the poller's own
	wins   atomic.Int32           // events with polls between them

	tx tx
	rx rx

	attended bool        // the poller's own: a caller waits for receives
	eof      bool        // the connection has been told of the end
	linger   *time.Timer // bounds the wait for the peer, after the end
	rnr      *time.Timer // bounds the wait for its receive
	first    *time.Timer // bounds the wait for its first frame
	grace    *time.Timer // between the peer's end and lost
	fault    *time.Timer // ends a delay of Faults
}

// The completion queues of polled.
const (
	ofReceives = iota
	ofSends
)

// States of starvation.
const (
	fed      int32 = iota
	hungry         // the peer must be told: ControlNotReady
	waiting        // it has been told; the next receive is to be announced
	promised       // a receive has been announced; ControlResume is awaited
)

func linkOf(q *softnic.QP) *link { return q.Link().(*link) }

func (l *link) Wake() { l.run() }

// Failed starts the flush. If rx itself has failed the queue pair, its caller does that.
func (l *link) Failed() {
	if !l.inside.Load() {
		l.run()
	}
}

// Bounds of waiting.
const (
	graceLimit  = 500 * time.Millisecond // after the peer's disconnect, until requests in flight fail
	partLimit   = time.Second            // after a failure, until this end disconnects by itself
	lingerLimit = 5 * time.Second        // after this end's disconnect, until the peer's
	firstLimit  = 100 * time.Millisecond // until the first frame of a peer that need not send first
	rnrTimer    = 4 * time.Millisecond   // between two retries that RNRRetry counts
)

// waitFirst lets this end, which has accepted, send if the peer does not. RFC 5044 demands that the
// peer sends first, so that its device is ready for frames. But programs that run on InfiniBand too
// do not care, and those of rdma-core run on soft-iWARP, which does not wait at all.
func (l *link) waitFirst() {
	l.first = time.AfterFunc(firstLimit, func() {
		l.greeted.Store(true)
		l.run()
	})
}

// depart ends the stream, and the queue pair with it.
func (l *link) depart() {
	l.leaving.Store(true)
	l.qp.Fail()
	l.run()
}

// kill closes the socket soon.
func (l *link) kill() {
	l.killed.Store(true)
	l.run()
}
