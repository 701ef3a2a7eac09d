package softnic

import "github.com/godat/godat/udat/internal/fabric"

// claim returns the queue pair of this device that fq is, for one connection or attempt at one;
// Adapter.Mu is held.
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

// unclaim ends the claim on a queue pair that has never been connected, so that another attempt may
// use it, and reports whether it did; Adapter.Mu is held.
func (q *QP) unclaim() bool {
	if !q.is(qpInit) {
		return false
	}
	q.claimed = false
	return true
}

// Connect lets the queue pair send and receive, unless it is in error or closed.
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

// Opcodes is a set of operations.
func Opcodes(ops ...fabric.Opcode) (set uint64) {
	for _, op := range ops {
		set |= 1 << op
	}
	return set
}

// Lack refuses, before Connect, the operations that the peer does not know, with an error.
func (q *QP) Lack(ops uint64, why error) { q.lacks, q.lackErr = ops, why }

// Fail moves to the error state once, and reports whether this call did.
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

// Fatal moves to the error state for a reason that no completion reports.
func (q *QP) Fatal() {
	if q.Fail() {
		q.reportFatal()
	}
}

func (q *QP) reportFatal() { q.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncQPFatal, QP: q}) }

// SetError moves to the error state.
func (q *QP) SetError() error {
	if q.is(qpClosed) {
		return Failed("set QP to error", fabric.ErrClosed)
	}
	q.Fail()
	q.awaitMessage()
	q.link.Wake()
	return nil
}

// awaitMessage waits for the message that is coming in. After a change to error or closed it is the
// last one.
func (q *QP) awaitMessage() {
	q.In.Lock()
	q.In.Unlock() //lint:ignore SA2001 nothing is done under the lock: holding it once is the wait
}

// Await reports whether there is a receive for a message. If there is none, the next one wakes w.
func (q *QP) Await(w Waker) bool { return q.rq.await(w) }

// Forget drops a sender that no longer waits for a receive of the queue pair.
func (q *QP) Forget(w Waker) { q.rq.forget(w) }
