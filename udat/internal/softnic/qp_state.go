package softnic

import "github.com/godat/godat/udat/internal/fabric"

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

// unclaim ends the claim of an attempt, so that another attempt may use the queue pair. It returns
// false if the queue pair has left its first state. Adapter.Mu is held.
func (q *QP) unclaim() bool {
	if !q.is(qpInit) {
		return false
	}
	q.claimed = false
	return true
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

// Opcodes returns the set of the operations, one bit for each.
func Opcodes(ops ...fabric.Opcode) (set uint64) {
	for _, op := range ops {
		set |= 1 << op
	}
	return set
}

// Lack makes later posts of the operations in the set ops fail with the error cause, because the
// peer does not support these operations. It must be called before Connect.
func (q *QP) Lack(ops uint64, cause error) { q.lacks, q.lackErr = ops, cause }

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

// Forget removes w from the senders that wait for a receive of the queue pair.
func (q *QP) Forget(w Waker) { q.rq.forget(w) }
