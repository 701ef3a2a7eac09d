package tcpfabric

import (
	"errors"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// rx is the receiving half of a link. QP.In guards it. Headers are read into buf, together with the
// payload that has come by then. The missing part of a long payload is read directly into its
// destination: the memory of a receive, of a region or of a read. With checksums a frame is not
// used before it is complete and its checksum is checked.
type rx struct {
	buf  []byte // nil: none
	loan loan   // what buf uses
	r, w int    // buf[r:w] has been read and not used

	h     iwarp.Header
	head  [iwarp.MaxHeader]byte
	known int // bytes of head that are of this frame
	left  int // bytes of the frame's payload that are not in their destination
	off   uint64
	trail int // bytes of the frame's trailer that have not been skipped

	missing int // missing bytes of a large frame that must be complete before it is used

	in      softnic.Inbound  // the peer's request
	wr      fabric.SendWR    // the latest send, or immediate data
	atomic  fabric.SendWR    // the latest atomic, which may come within a send
	out     softnic.Outbound // the memory that an answer goes to
	into    target
	iov     [][]byte
	one     [1][]byte
	queues  [iwarp.Queues]uint32 // the number of the latest message of each queue
	size    uint64               // bytes of the message so far
	open    bool                 // the latest send is incomplete
	openOp  iwarp.Opcode         // the opcode of the latest send
	fresh   bool                 // the latest write is complete
	word    [8]byte
	written uint64        // bytes of the latest write
	got     uint64        // bytes of the incomplete answer
	answers *ask          // the request that the frame answers, if into is toAnswer
	bytes   int           // bytes of payload since the last acknowledgement
	spoil   fabric.Status // the status for the receive taken, if the frame is refused
	frames  uint64        // number of frames so far
	greeted bool          // the first frame has come
	early   bool          // the frame at buf[r] must be verified again, when the write under way has ended
	due     iwarp.Fault   // why the frame is refused once the answers are sent; 0: it is not refused
	refused error         // why a frame was refused
	stop    bool          // whatever comes is discarded
	last    []byte        // the payload of the terminate message to send
	lastBuf [iwarp.MaxTerminate]byte

	ready bool // the connection must be told of the peer's first frame
}

// end is how the peer's stream has ended. err is nil after an orderly end.
type end struct{ err error }

// target is the kind of destination of the frame's payload.
type target uint8

const (
	nowhere target = iota
	toReceive
	toRegion
	toAnswer
)

func (x *rx) start(sums bool) {
	x.loan.init(sums)
	x.last = x.lastBuf[:0]
}

// fault refuses the frame with the reason f. If answers to the peer's reads or atomics are pending,
// it postpones the refusal until they are sent. A frame that came early is not refused yet.
func (x *rx) fault(l *link, f iwarp.Fault) {
	x.release()
	if f == halted || x.early {
		return
	}
	if l.sent.answers.Load() < l.heard.reads.Load() {
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

// refuse refuses the frame whose headers came last. It makes a terminate message with the reason f,
// and makes the link end the connection.
func (x *rx) refuse(l *link, f iwarp.Fault) {
	if x.stop {
		return
	}
	x.stop = true
	x.release()
	x.refused = f
	x.last = x.lastBuf[:iwarp.PutTerminate(x.lastBuf[:], f, x.head[:x.known])]
	l.refusing.Store(true)
}

func asFault(err error) iwarp.Fault {
	var f iwarp.Fault
	if !errors.As(err, &f) {
		return iwarp.FaultLocal
	}
	return f
}

// fail moves the queue pair to the error state after a frame was refused.
func (x *rx) fail(l *link) {
	l.inside.Store(true)
	if x.spoil != fabric.StatusSuccess {
		l.qp.Spoil(&x.in, x.spoil)
	}
	l.qp.Fatal(x.refused)
	l.inside.Store(false)
}

// halt stops receiving, because a request of this end has failed with status st. The oldest request
// that is not done completes with this status, unless link.verdict has another one already.
func (x *rx) halt(l *link, st fabric.Status) iwarp.Fault {
	l.verdict.CompareAndSwap(0, uint32(st))
	x.stop = true
	return halted
}

// halted means that receiving has stopped without a fault of the peer.
const halted iwarp.Fault = 0xFFFE

// fine means that there is no fault.
const fine iwarp.Fault = 0xFFFF
