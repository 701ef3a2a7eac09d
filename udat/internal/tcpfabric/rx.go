package tcpfabric

import (
	"errors"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// rx is the receiving half of a link, guarded by QP.In. Headers are read into buf, with the payload
// that comes along; what is missing of a long payload is read straight into its place. With
// checksums a frame is whole, and right, before anything is done with it.
type rx struct {
	buf  []byte
	lent *[]byte // buf; nil while there is nothing in it

	lender *buffers
	r, w   int // what has been read and not used is buf[r:w]

	h     iwarp.Header
	head  [iwarp.MaxHeader]byte
	left  int // bytes of the frame's payload that are not in their place
	off   uint64
	trail int // bytes that follow it

	missing int // bytes of a large frame that must be whole

	in      softnic.Inbound // the peer's message
	wr      fabric.SendWR
	out     softnic.Outbound // where an answer goes
	into    target
	iov     [][]byte
	one     [1][]byte
	queues  [iwarp.Queues]uint32 // the latest message of each
	size    uint64               // bytes of the message so far
	open    bool                 // a send has not come whole
	openOp  iwarp.Opcode         // its opcode
	fresh   bool                 // the latest write has come whole
	word    [8]byte
	written uint64        // bytes of the latest write
	got     uint64        // bytes of the answer that is coming
	bytes   int           // since the last acknowledgement
	spoil   fabric.Status // of the receive taken, if the frame is refused
	ignore  bool          // requests, until ControlResume
	skip    bool          // this frame
	frames  uint64        // in all
	greeted bool          // the first frame has come
	due     iwarp.Fault   // why to refuse the frame once the answers are sent; 0: nothing
	stop    bool          // what comes is of no interest any more
	last    []byte        // of a terminate message to send: its payload
	lastBuf [iwarp.MaxTerminate]byte

	ready bool // the connection is to be told of the peer's first frame
}

// end is how the peer's stream has ended; nil is in order.
type end struct{ err error }

// target is where the payload of the frame goes.
type target uint8

const (
	nowhere target = iota
	toReceive
	toRegion
	toAnswer
)

func (x *rx) start(sums bool) {
	x.lender = choose(sums, &received, &receivedSums)
	x.last = x.lastBuf[:0]
}

// fault refuses the frame, after the answers that the peer waits for.
func (x *rx) fault(l *link, f iwarp.Fault) {
	x.release()
	if f == halted {
		return
	}
	if l.served.Load() < l.tx.pushed.Load() {
		x.due = f
		l.stalled.Store(true)
		return
	}
	x.refuse(l, f)
}

func (x *rx) release() {
	x.in.Release()
	x.out.Release()
}

// refuse ends the connection for the frame whose headers came last.
func (x *rx) refuse(l *link, f iwarp.Fault) {
	if x.stop {
		return
	}
	x.stop = true
	x.release()
	x.last = x.lastBuf[:iwarp.PutTerminate(x.lastBuf[:], f, x.head[:])]
	l.refusing.Store(true)
}

func asFault(err error) iwarp.Fault {
	var f iwarp.Fault
	if !errors.As(err, &f) {
		return iwarp.FaultLocal
	}
	return f
}

// fail ends the queue pair for what has been refused.
func (x *rx) fail(l *link) {
	l.inside.Store(true)
	if x.spoil != fabric.StatusSuccess {
		l.qp.Spoil(&x.in, x.spoil)
	}
	l.qp.Fatal()
	l.inside.Store(false)
}

// halt stops receiving because a request of this end has failed with status st, which becomes the
// link's verdict unless it has one.
func (x *rx) halt(l *link, st fabric.Status) iwarp.Fault {
	l.verdict.CompareAndSwap(0, uint32(st))
	x.stop = true
	return halted
}

// halted is no fault of the peer's.
const halted iwarp.Fault = 0xFFFE

// fine is no fault.
const fine iwarp.Fault = 0xFFFF

var errMidFrame = errors.New("the peer's stream ends within a message")
