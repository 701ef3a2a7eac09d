package softnic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

type qpState uint32

const (
	qpInit      qpState = iota // takes receives
	qpConnected                // sends and receives
	qpError                    // flushes
	qpClosed
)

// QP is a queue pair. The first three groups of fields are one cache line each: what posters and
// the wire write, what they read, and what messages that come in write. It matters with many queue
// pairs in turn.
type QP struct {
	mu    sync.Mutex    // of posters, and of changes of state
	state atomic.Uint32 // qpState; changed under mu, and only upwards
	sq    SendQueue
	link  Link

	dev        *Device
	num        uint32
	readOut    int // reads and atomics outstanding at the most, as initiator
	pd         *pd
	sendCQ     *CQ
	maxSendSGE int
	maxInline  int
	lacks      uint64 // operations that the peer does not know; a post of one returns lackErr
	lackErr    error
	lastWQE    bool          // AsyncQPLastWQE has been told; the wire's
	left       chan struct{} // Close waits on it until the wire has left; set before the state is closed

	// In is held while a message, or a part of it, comes in, and during a flush.
	In     sync.Mutex
	readIn int // reads and atomics outstanding at the most, as target
	recvCQ *CQ
	srq    *srq
	rq     *recvQueue // its own, or that of srq
	object
	claimed bool // by a connection or an attempt at one; guarded by Adapter.Mu

	held holding
}

func (q *QP) Num() uint32    { return q.num }
func (q *QP) MaxInline() int { return q.maxInline }

func (q *QP) Path() (fabric.Path, error) {
	return fabric.Path{}, fmt.Errorf("%w: the device has no packets", fabric.ErrNotSupported)
}

// Device is the device of the queue pair.
func (q *QP) Device() *Device { return q.dev }

// Link is its end of the wire.
func (q *QP) Link() Link { return q.link }

// CQs are its completion queues, of requests and of receives.
func (q *QP) CQs() (send, recv *CQ) { return q.sendCQ, q.recvCQ }

// Sends are the requests posted.
func (q *QP) Sends() *SendQueue { return &q.sq }

// ReadDepths are the numbers of reads and atomics that may be outstanding, as target and as
// initiator.
func (q *QP) ReadDepths() (in, out int) { return q.readIn, q.readOut }

// Connected reports whether the queue pair sends and receives.
func (q *QP) Connected() bool { return q.is(qpConnected) }

// Leave lets Close go on: the wire uses neither the closed queue pair nor memory through it any
// more.
func (q *QP) Leave() {
	select {
	case <-q.left:
	default:
		close(q.left)
	}
}

// Gone reports whether it is closed.
func (q *QP) Gone() bool { return q.is(qpClosed) }

func (q *QP) is(s qpState) bool { return qpState(q.state.Load()) == s }

// usable returns an error if nothing can be posted.
func (q *QP) usable(op string, s qpState) error {
	switch {
	case s == qpClosed:
		return Failed(op, fabric.ErrClosed)
	case q.dev.Faults.removed.Load():
		return Failed(op, fabric.ErrDeviceRemoved)
	}
	return nil
}
