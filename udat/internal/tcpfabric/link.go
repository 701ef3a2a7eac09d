package tcpfabric

import (
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// turn runs step in one goroutine at a time. A goroutine calls the method run when it has work for
// step. If another goroutine is running step, run makes that goroutine run step once more, and
// returns at once. So no goroutine blocks, and data that only step uses needs no lock.
type turn struct {
	turns atomic.Int64 // calls of run since step was last idle; 0: no goroutine runs step
	step  func()
}

// run runs step, or makes the goroutine that is running step run it once more.
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

// link is the transport of a queue pair: the stream of frames of its only connection.
//
// The transmitting half (tx) belongs to the goroutine that runs link.work. QP.In guards the
// receiving half (rx). The halves exchange information by the atomic fields.
type link struct {
	turn
	qp *softnic.QP

	// These fields are set before the queue pair is connected.
	sock socket
	dev  *Device
	conn *softnic.Conn
	own  bool // the peer is an end of this library
	crc  bool

	asks    []ask  // reads and atomics in flight: a ring as long as the read depth
	sinkKey uint32 // base of the keys that identify these reads and atomics in the peer's answers

	live   atomic.Bool // the link has an open socket
	ending atomic.Bool // the peer's stream has ended, after the bytes that can still be read
	inside atomic.Bool // rx is at work; if the queue pair fails now, rx's caller flushes it

	// From rx to tx.
	greeted   atomic.Bool         // requests may be sent to the peer
	segment   atomic.Int64        // the largest segment that the peer accepts
	acked     atomic.Uint64       // this end's requests that the peer has executed
	answered  atomic.Uint64       // this end's reads and atomics that the peer has answered
	executed  atomic.Uint64       // the peer's requests that this end has executed
	delivered atomic.Uint64       // the value of executed after the latest request that completed a receive
	refusing  atomic.Bool         // a request of the peer has been refused, so the queue pair must fail
	ackNow    atomic.Bool         // the acknowledgement of executed must be sent now, even in a frame of its own
	starved   atomic.Int32        // whether a request of the peer waits for a receive: a state of starvation
	resumed   atomic.Bool         // ControlReady has come, so ControlResume must be sent
	held      atomic.Bool         // ControlNotReady has come
	verdict   atomic.Uint32       // the status for the oldest request that is not done; 0: none
	end       atomic.Pointer[end] // how the peer's stream has ended; nil: it has not ended
	lost      atomic.Bool         // requests in flight must fail
	leaving   atomic.Bool         // this end has disconnected, or must do so now
	killed    atomic.Bool         // the socket must be closed now

	// From tx to rx.
	issued  atomic.Uint64 // requests sent
	asked   atomic.Uint64 // reads and atomics sent
	told    atomic.Uint64 // the value of executed that the peer knows
	served  atomic.Uint64 // answers sent to the peer's reads and atomics
	stalled atomic.Bool   // rx waits until all answers are sent

	polled [2]*hotSet             // the hot sets of the queue pair's completion queues
	hot    atomic.Pointer[hotSet] // the set whose polls read the socket; nil: none
	byWait atomic.Bool            // the link is hot for waits: see hotSet
	seen   [2]uint32              // the number of polls of each queue at the last event; only the poller uses it
	wins   atomic.Int32           // consecutive events with polls between them

	tx tx
	rx rx

	attended bool        // a caller will answer or poll; only the poller uses it
	eof      bool        // the connection has been told that the peer's stream has ended
	linger   *time.Timer // bounds the steps from the queue pair's failure to the peer's end of the stream
	rnr      *time.Timer // bounds the wait for a receive at the peer
	first    *time.Timer // bounds the wait for the peer's first frame
	grace    *time.Timer // runs from the peer's end of the stream until lost is set
	fault    *time.Timer // ends a delay of Faults
}

// Indices of polled.
const (
	ofReceives = iota
	ofSends
)

// States of starvation.
const (
	fed      int32 = iota
	hungry         // ControlNotReady must be sent
	waiting        // ControlNotReady has been sent; ControlReady must follow with the next receive
	promised       // ControlReady has been sent or is due; ControlResume must come next
)

func linkOf(q *softnic.QP) *link { return q.Link().(*link) }

func (l *link) Wake() { l.run() }

// Failed starts the flush of the queue pair. But while the receiving half (rx) is at work, it does
// nothing: the caller of the receiving half starts the flush afterwards.
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

// waitFirst lets this end, which has accepted, send after firstLimit even if the peer has sent
// nothing. By RFC 5044 the peer must send first, which shows that its device is ready for frames.
// But programs that also run on InfiniBand ignore this rule. Those of rdma-core work with
// soft-iWARP nevertheless, because soft-iWARP does not wait at all.
func (l *link) waitFirst() {
	l.first = time.AfterFunc(firstLimit, func() {
		l.greeted.Store(true)
		l.run()
	})
}

// depart disconnects: it fails the queue pair, and makes the goroutine that runs link.work end the
// stream.
func (l *link) depart() {
	l.leaving.Store(true)
	l.qp.Fail()
	l.run()
}

// kill makes the goroutine that runs link.work close the socket.
func (l *link) kill() {
	l.killed.Store(true)
	l.run()
}
