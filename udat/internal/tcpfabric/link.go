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
// receiving half (rx). Each half tells the other by atomic fields: tx writes those of sent, rx
// those of heard.
type link struct {
	turn
	qp *softnic.QP
	setting
	sent  sent
	heard heard
	course
	timers
	attention
	usage   usage
	unacked atomic.Bool   // TCP may have data of this end that the peer's host has not acknowledged
	timeout time.Duration // TCP's user timeout; 0: off; only Device.check uses it

	tx tx
	rx rx
}

// setting is what the set-up has decided. It is set before the queue pair is connected.
type setting struct {
	sock    socket
	dev     *Device
	conn    *softnic.Conn
	own     bool   // the peer is an end of this library
	crc     bool   // frames have checksums
	sinkKey uint32 // base of the keys that identify this end's reads and atomics in the peer's answers
	asked   []ask  // this end's reads and atomics in flight: a ring as long as the read depth
}

// sent is what this end has sent. The file verify.go compares with it what the peer says.
type sent struct {
	// These count what has been written to the socket as a whole.
	requests atomic.Uint64 // requests, as the peer counts them
	reads    atomic.Uint64 // the reads and atomics among them
	answers  atomic.Uint64 // answers to the peer's reads and atomics
	asks     atomic.Uint64 // ControlAsk
	grants   atomic.Uint64 // ControlGrant
	writing  atomic.Bool   // a write is under way, so the socket may have more than these say
	recheck  atomic.Bool   // rx keeps a frame that is verified again when no write is under way

	// These are set when a frame is put into a batch.
	messages atomic.Uint64 // messages that have begun
	wanted   atomic.Uint64 // the last message that this end has asked a receive for
	executed atomic.Uint64 // the value of heard.executed that the peer is told
	limit    atomic.Uint64 // the last message for which the peer is told that there is a receive
}

// heard is what the peer has sent, all of which verify.go has checked.
type heard struct {
	greeted   atomic.Bool   // requests may be sent to the peer
	shared    atomic.Bool   // the peer's receives must be asked for
	window    atomic.Uint64 // how many receives the peer can have for messages at a time
	segment   atomic.Int64  // the largest segment that the peer accepts
	acked     atomic.Uint64 // this end's requests that the peer has executed
	answered  atomic.Uint64 // this end's reads and atomics that the peer has answered
	limit     atomic.Uint64 // the last message for which the peer has a receive
	grants    atomic.Uint64 // ControlGrant
	executed  atomic.Uint64 // the peer's requests that this end has executed
	delivered atomic.Uint64 // the value of executed after the latest request that completed a receive
	messages  atomic.Uint64 // the peer's messages that have begun
	reads     atomic.Uint64 // the peer's reads and atomics
	wanted    atomic.Uint64 // the last message that the peer has asked a receive for
	asks      atomic.Uint64 // ControlAsk
}

// course is where the connection stands.
type course struct {
	live    atomic.Bool // the link has an open socket
	ending  atomic.Bool // the peer's stream has ended, after the bytes that can still be read
	leaving atomic.Bool // this end has disconnected, or must do so now
	killed  atomic.Bool // the socket must be closed now
	lost    atomic.Bool // requests in flight must fail
	inside  atomic.Bool // rx is at work; if the queue pair fails now, rx's caller flushes it

	// From rx to tx.
	ackNow   atomic.Bool         // what is due must be told now, even in a frame of its own
	stalled  atomic.Bool         // rx waits until all answers are written
	refusing atomic.Bool         // a frame of the peer has been refused, so the queue pair must fail
	verdict  atomic.Uint32       // the status for the oldest request that is not done; 0: none
	end      atomic.Pointer[end] // how the peer's stream has ended; nil: it has not ended

	exhausted atomic.Uint64 // the message that has waited for a receive for too long; from the timer rnr

	eof bool // the connection has been told that the peer's stream has ended; only tx uses it
}

// timers belong to the goroutine that runs link.work, except first, which belongs to the acceptor.
type timers struct {
	linger *time.Timer // bounds the steps from the queue pair's failure to the peer's end of the stream
	rnr    *time.Timer // bounds the wait for a receive at the peer
	first  *time.Timer // bounds the wait for the peer's first frame
	grace  *time.Timer // runs from the peer's end of the stream until lost is set
}

// attention is which calls of the program wait for what comes, or poll.
type attention struct {
	polled [2]*progress // of the queue pair's completion queues

	// Only the poller uses these.
	seen     uint32 // the number of polls of the receive queue at the last event
	attended bool   // a caller will answer or poll
}

// Indices of polled.
const (
	ofReceives = iota
	ofSends
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
)

// waitFirst lets this end, which has accepted, send after firstLimit even if the peer has sent
// nothing. By RFC 5044 the peer must send first, which shows that its device is ready for frames.
// But programs that also run on InfiniBand ignore this rule. Those of rdma-core work with
// soft-iWARP nevertheless, because soft-iWARP does not wait at all.
func (l *link) waitFirst() {
	l.first = time.AfterFunc(firstLimit, func() {
		l.heard.greeted.Store(true)
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
