package udat

import "github.com/godat/godat/udat/internal/fabric"

// This file decides which requests make a completion. Most suppressed requests make none. So that
// the library learns when they are done, at least one of MaxRequestDTOs/2 consecutive suppressed
// requests makes a completion, and the library can post a zero-length RDMA write after the last
// one.

// marking reports whether a request that the library posted is in flight.
func (q *requestQueue) marking() bool {
	q.marked = q.marked && !q.inflight.done(q.marker+1)
	return q.marked
}

// signal returns the fabric's flags for request seq. A suppressed request asks for a completion if
// it is the last of limit/2 consecutive suppressed requests, or takes the last free slot. Without
// these completions nothing would prove that the suppressed requests are done.
func (q *requestQueue) signal(f CompletionFlags, seq uint32) fabric.SendFlags {
	var flags fabric.SendFlags
	if f&CompletionBarrierFence != 0 {
		flags |= fabric.Fence
		q.fenced, q.fence = true, seq
	}
	if f&CompletionSolicitedWait != 0 {
		flags |= fabric.Solicited
	}
	if f&CompletionSuppress != 0 {
		q.suppressed++
		last := q.taken()+1 >= int(q.inflight.limit)
		if 2*q.suppressed < q.inflight.limit && !last {
			return flags
		}
	}
	q.suppressed = 0
	return flags | fabric.Signaled
}

// flushTail posts a request that makes a completion, which proves that the suppressed requests are
// done. It does nothing if the latest request makes a completion anyway, or if a request that the
// library posted is still in flight; q.mu is held.
func (q *requestQueue) flushTail() {
	if q.suppressed > 0 && q.inflight.count() > 0 {
		q.mark()
	}
}

// mark posts a zero-length RDMA write, which makes a completion but no event. It does nothing if
// such a write is in flight; q.mu is held.
func (q *requestQueue) mark() {
	if q.qp == nil || q.marking() {
		return
	}
	q.suppressed = 0
	seq := q.inflight.tail
	q.marked, q.marker = true, seq
	q.inflight.entry(seq).set(0, 0, DTORDMAWrite, entryInternal, 0)
	q.wrs = append(q.wrs, fabric.SendWR{ID: q.inflight.workID(seq), Opcode: fabric.OpWrite, Flags: fabric.Signaled})
	q.submit()
}

// taken returns the number of the Consumer's requests that are in flight or in the batch. The
// number is exact if fewer than two slots are free. Otherwise it may include requests that have
// completed.
func (q *requestQueue) taken() int {
	n := int(q.inflight.tail-q.inflight.freed) + len(q.wrs)
	if n+1 >= int(q.inflight.limit) {
		n = q.inflight.count() + len(q.wrs)
	}
	if q.marking() {
		n--
	}
	return n
}

// submit posts the batch; q.mu is held.
func (q *requestQueue) submit() (int, error) {
	if len(q.wrs) == 0 {
		return 0, nil
	}
	posted, err := q.qp.PostSend(q.wrs, q.sges)
	q.inflight.tail += uint32(posted)
	if err != nil {
		q.suppressed = max(q.suppressed, 1) // the request that asked for the completion may not have been posted
		err = failAs("ep_post", err, SubResourceTEP)
	}
	q.wrs, q.sges = q.wrs[:0], q.sges[:0]
	return posted, err
}
