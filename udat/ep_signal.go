package udat

import "github.com/godat/godat/udat/internal/fabric"

// This file decides which requests make a completion. A suppressed request makes none of its own.
// Therefore one in every half queue makes one all the same, and a zero-length RDMA write can follow
// the last one.

// marking reports whether a request of the library is in flight.
func (q *requestQueue) marking() bool {
	q.marked = q.marked && !q.inflight.done(q.marker+1)
	return q.marked
}

// signal returns the fabric's flags for request seq. A suppressed request asks for no completion,
// except every half queue and in the last free slot: only a completion proves that the work before
// it is done.
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

// flushTail posts a request that makes a completion behind the suppressed ones, unless the latest
// request makes one or such a request is in flight; q.mu is held.
func (q *requestQueue) flushTail() {
	if q.suppressed > 0 && q.inflight.count() > 0 {
		q.mark()
	}
}

// mark posts a zero-length RDMA write, which makes a completion and no event, unless one is in
// flight; q.mu is held.
func (q *requestQueue) mark() {
	if q.qp == nil || q.marking() {
		return
	}
	q.suppressed = 0
	seq := q.inflight.tail
	q.marked, q.marker = true, seq
	q.inflight.entry(seq).set(0, 0, DTORDMAWrite, entryInternal, nil)
	q.wrs = append(q.wrs, fabric.SendWR{ID: q.inflight.workID(seq), Opcode: fabric.OpWrite, Flags: fabric.Signaled})
	q.submit()
}

// taken is the number of the Consumer's requests posted plus batched; it may overcount while two
// slots are free.
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
		q.suppressed = max(q.suppressed, 1) // the failed post may have been the one with the completion
		err = failAs("ep_post", err, SubResourceTEP)
	}
	q.wrs, q.sges = q.wrs[:0], q.sges[:0]
	return posted, err
}
