package softnic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/fabric"
)

type qpState uint32

const (
	qpInit      qpState = iota // receives can be posted
	qpConnected                // sends and receives
	qpError                    // flushes
	qpClosed
)

// QP is a queue pair. The first three groups of fields are one cache line each: the fields that
// posters and the transport write, the fields that posters and the transport only read, and the
// fields that incoming messages use. This saves cache misses if many queue pairs are used in turn.
type QP struct {
	mu    sync.Mutex    // held during a post, and during a change of state
	state atomic.Uint32 // qpState; changed under mu, and only upwards
	sq    SendQueue
	link  Link

	dev        *Device
	num        uint32
	readOut    int // the largest number of outstanding reads and atomics, as initiator
	pd         *pd
	sendCQ     *CQ
	maxSendSGE int
	maxInline  int
	lacks      uint64 // the set of operations that the peer does not support; a post of such an operation returns lackErr
	lackErr    error
	lastWQE    bool          // AsyncQPLastWQE has been reported; only the transport uses it
	left       chan struct{} // Close waits until Leave closes it; set before the state is qpClosed

	// In is held while a message or a part of a message is received, and while receives are
	// flushed.
	In     sync.Mutex
	readIn int // the largest number of outstanding reads and atomics, as target
	recvCQ *CQ
	srq    *srq
	rq     *recvQueue // the queue pair's own queue, or that of srq
	object
	claimed bool // used by a connection, or by an attempt to connect; guarded by Adapter.Mu

	held holding
}

func (q *QP) Num() uint32    { return q.num }
func (q *QP) MaxInline() int { return q.maxInline }

func (q *QP) Path() (fabric.Path, error) {
	return fabric.Path{}, fmt.Errorf("%w: the device has no packets", fabric.ErrNotSupported)
}

// Device returns the device of the queue pair.
func (q *QP) Device() *Device { return q.dev }

// Link returns the queue pair's end of the transport.
func (q *QP) Link() Link { return q.link }

// CQs returns the completion queues for send requests and for receives.
func (q *QP) CQs() (send, recv *CQ) { return q.sendCQ, q.recvCQ }

// Sends returns the queue of the send requests.
func (q *QP) Sends() *SendQueue { return &q.sq }

// ReadDepths returns the largest numbers of outstanding reads and atomics: those that the queue
// pair serves as target, and those that it starts as initiator.
func (q *QP) ReadDepths() (in, out int) { return q.readIn, q.readOut }

// Connected reports whether the queue pair is connected.
func (q *QP) Connected() bool { return q.is(qpConnected) }

// Leave records that the transport no longer uses the closed queue pair or its memory. Close waits
// for this call.
func (q *QP) Leave() {
	select {
	case <-q.left:
	default:
		close(q.left)
	}
}

// Gone reports whether the queue pair is closed.
func (q *QP) Gone() bool { return q.is(qpClosed) }

func (q *QP) is(s qpState) bool { return qpState(q.state.Load()) == s }

// usable returns an error if nothing can be posted, because the state s is qpClosed or the device
// has been removed.
func (q *QP) usable(op string, s qpState) error {
	switch {
	case s == qpClosed:
		return Failed(op, fabric.ErrClosed)
	case q.dev.Faults.removed.Load():
		return Failed(op, fabric.ErrDeviceRemoved)
	}
	return nil
}
