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

// usable returns an error if nothing can be posted, because the state s is qpClosed.
func usable(op string, s qpState) error {
	if s == qpClosed {
		return Failed(op, fabric.ErrClosed)
	}
	return nil
}

// claim reserves the queue pair fq for a connection or an attempt to connect, and counts the
// connection. It returns an error if fq is not of this device, or was used before. Adapter.Mu is
// held.
func (d *Device) claim(op string, fq fabric.QP) (*QP, error) {
	q, _ := fq.(*QP)
	switch {
	case q == nil || q.dev != d:
		return nil, Invalid(op, "no queue pair of this device")
	case q.closed:
		return nil, Failed(op+": queue pair", fabric.ErrClosed)
	case q.claimed || !q.is(qpInit):
		return nil, Failed(op, fabric.ErrQPState)
	}
	if err := d.take(op, Conns); err != nil {
		return nil, err
	}
	q.claimed = true
	return q, nil
}

// Connect moves the queue pair to the connected state and sets its read depths. It returns false if
// the queue pair is in error or closed.
func (q *QP) Connect(in, out uint8) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.is(qpInit) {
		return false
	}
	q.readIn, q.readOut = int(in), int(out)
	q.state.Store(uint32(qpConnected))
	return true
}

// Lack makes later posts of the operations ops fail with the error cause, because the peer does not
// support these operations. It must be called before Connect.
func (q *QP) Lack(cause error, ops ...fabric.Opcode) {
	q.lackErr = cause
	for _, op := range ops {
		q.lacks |= 1 << op
	}
}

// Fail moves the queue pair to the error state. It returns false if the queue pair was in error or
// closed before.
func (q *QP) Fail() bool {
	q.mu.Lock()
	if q.is(qpError) || q.is(qpClosed) {
		q.mu.Unlock()
		return false
	}
	q.state.Store(uint32(qpError))
	q.mu.Unlock()
	q.link.Failed()
	return true
}

// Fatal is like Fail, for an error that no completion reports. It also reports AsyncQPFatal. The
// parameter cause is nil if the cause is not known.
func (q *QP) Fatal(cause error) {
	if q.Fail() {
		q.reportFatal(cause)
	}
}

func (q *QP) reportFatal(why error) {
	q.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q, Err: why})
}

// SetError moves the queue pair to the error state, and waits until the message that is being
// received is done.
func (q *QP) SetError() error {
	if q.is(qpClosed) {
		return Failed("set QP to error", fabric.ErrClosed)
	}
	q.Fail()
	q.awaitMessage()
	q.link.Wake()
	return nil
}

// awaitMessage waits until the message that is being received is done. If the queue pair is in
// error or closed, no other message follows.
func (q *QP) awaitMessage() {
	q.In.Lock()
	q.In.Unlock() //lint:ignore SA2001 nothing is done under the lock: holding it once is the wait
}

// mayPost returns an error if the hook refuses the post of a request.
func (q *QP) mayPost(op string) error {
	err := q.dev.mayPost(op)
	if err == nil && q.dev.Hook != nil {
		q.dev.Hook.Request(q)
	}
	return err
}

// Holds reports whether the hook holds request n back, and wakes the link later.
func (q *QP) Holds(n uint64) bool { return q.dev.Hook != nil && q.dev.Hook.Holds(q, n) }

// Forget removes w from the senders that wait for a receive of the queue pair.
func (q *QP) Forget(w Waker) { q.rq.forget(w) }
