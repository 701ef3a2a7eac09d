package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// PostSend sends the segments of iov, in order, as one message. The message consumes one receive of
// the peer. If iov is empty the message has no data. The call copies iov. Do not change the memory
// until the completion, which is queued on the request dispatcher with the cookie. PostSend neither
// blocks nor allocates.
//
// In DISCONNECTED the operation is flushed at once. In any other state but CONNECTED the call
// returns InvalidState. The flags may be suppress, solicited wait, barrier fence and, if it is the
// endpoint's request completion flag, unsignalled.
//
// Errors: InvalidParameter for another flag, too many segments, a segment outside its region, or a
// message longer than MaxMessageSize; PrivilegesViolation if a region lacks local read or has been
// freed; ProtectionViolation if a region is in another zone; InsufficientResources if
// MaxRequestDTOs requests are in flight; InvalidHandle.
//
// Implements: dat_ep_post_send.
func (ep *EP) PostSend(iov []LMRTriplet, cookie Cookie, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSend, IOV: iov, Cookie: cookie, Flags: flags})
}

// PostRDMARead reads memory of the peer into the segments of iov, in order. The parameter remote
// describes the memory of the peer. If iov is longer than this memory, the rest of iov stays
// unchanged. If iov is shorter, the call returns LengthError.
//
// States, flags and errors are those of PostSend, with these differences: solicited wait is not
// allowed, the local regions need local write, iov must not be empty, and the limits are
// MaxRDMAReadIOV and MaxRDMASize. The device executes at most as many reads at once as the
// connection's read depth; further reads wait. On a connection with depth 0 the call returns
// InvalidParameter. If remote is outside the peer's region, or the peer's privileges or zone do not
// allow the read, the completion has an error status and the connection breaks.
//
// Implements: dat_ep_post_rdma_read.
func (ep *EP) PostRDMARead(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMARead, IOV: iov, Cookie: cookie, Remote: remote, Flags: flags})
}

// PostRDMAWrite writes the segments of iov, in order, to memory of the peer. The parameter remote
// describes the memory of the peer. This memory may be longer than iov. If it is shorter, the call
// returns LengthError. The peer gets no event. When the peer has received a later Send of this
// endpoint, the data has arrived. States, flags and errors are those of PostRDMARead, but the local
// regions need local read, the limit of segments is MaxRDMAWriteIOV, and a read depth of 0 is no
// error.
//
// Implements: dat_ep_post_rdma_write.
func (ep *EP) PostRDMAWrite(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMAWrite, IOV: iov, Cookie: cookie, Remote: remote, Flags: flags})
}

// PostBatch posts the operations in order, in chunks of up to 64. Each chunk takes one call into C
// and one doorbell. PostBatch returns the number of operations posted. If this number is less than
// len(ops), the error is that of the next operation, and no later operation is posted. The caller
// may reuse ops and its IOV slices when the call returns.
//
// Extension.
func (ep *EP) PostBatch(ops []Op) (int, error) {
	if ep == nil || !ep.obj.live.Load() {
		return 0, badHandle("ep_post_batch", HandleEP, ep.object())
	}
	q := &ep.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserve(len(ops), ep.attr.requestIOV(), q.inflight)
	posted := 0
	for posted < len(ops) {
		var bad error
		chunk := ops[posted:min(len(ops), posted+cap(q.wrs))]
		for i := 0; i < len(chunk) && bad == nil; i++ {
			if !q.addFast(ep, &chunk[i]) {
				bad = q.add(ep, &chunk[i])
			}
		}
		n, err := q.submit()
		posted += n
		if err != nil {
			return posted, err
		}
		if bad != nil {
			return posted, bad
		}
	}
	return posted, nil
}

func (ep *EP) post(o *Op) error {
	if ep == nil || !ep.obj.live.Load() {
		return badHandle(opRules[o.Kind].call, HandleEP, ep.object())
	}
	q := &ep.requests
	q.mu.Lock()
	var err error
	if !q.addFast(ep, o) {
		err = q.add(ep, o)
	}
	if err == nil {
		_, err = q.submit()
	}
	q.mu.Unlock()
	return err
}

// add checks an operation and adds it to the batch; q.mu is held.
func (q *requestQueue) add(ep *EP, o *Op) error {
	if o.Kind >= opKinds {
		return fail("ep_post_batch", InvalidParameter, SubArg2, "operation kind %d is not known", o.Kind)
	}
	r := &opRules[o.Kind]
	if err := r.check(ep, o); err != nil {
		return err
	}
	first := len(q.sges)
	limit := uint64(math.MaxUint64)
	if r.opcode == fabric.OpRead {
		limit = o.Remote.SegmentLength
	}
	sges, length, total, err := appendSegments(q.sges, r.call, o.IOV, r.need, ep.pz, limit)
	if err != nil {
		return err
	}
	if err := r.checkLength(&ep.attr, o, total, length); err != nil {
		return err
	}
	if !q.room() {
		return fail(r.call, InsufficientResources, SubResourceCredits, "all %d requests (MaxRequestDTOs) are in flight",
			q.inflight.limit)
	}
	n := len(q.wrs)
	seq := q.inflight.tail + uint32(n)
	flags := q.signal(o.Flags, seq)
	if r.inline && length <= uint64(q.inline) && length > 0 && !q.behindFence() {
		flags |= fabric.Inline
	}
	q.inflight.entry(seq).set(o.Cookie, length, r.dto, entryOf(o.Flags), keyOf(o.IOV))
	// The request is written directly into q.wrs. Fields that the operation does not use are left
	// as they are, because devices do not read them.
	wrs := q.wrs[:n+1]
	wr := &wrs[n]
	wr.ID, wr.Opcode, wr.Flags, wr.Imm = q.inflight.workID(seq), r.opcode, flags, rawImmediate(o.Immediate)
	wr.FirstSGE, wr.NumSGE = uint32(first), uint32(len(sges)-first)
	switch {
	case r.remote:
		wr.RemoteAddr, wr.RKey = o.Remote.TargetAddress, o.Remote.RMRContext
		wr.CompareAdd, wr.Swap = o.CompareAdd, o.Swap
	case r.opcode == fabric.OpSendInv:
		wr.RKey = o.InvalidateContext
	}
	q.sges, q.wrs = sges, wrs
	return nil
}

// addFast does the same as add, but only for the most frequent operations: Sends, RDMA writes, and
// RDMA writes with immediate data, each of one segment. It returns false if a check fails or the
// operation is of another kind. The caller then calls add, which adds the operation or returns the
// error.
func (q *requestQueue) addFast(ep *EP, o *Op) bool {
	if len(o.IOV) != 1 || ep.exactState() != EPConnected {
		return false
	}
	t, a := &o.IOV[0], &ep.attr
	length := t.SegmentLength
	flags, opcode, dto, allowed := fabric.Signaled, fabric.OpSend, DTOSend, sendFlags&^CompletionUnsignalled
	switch o.Kind {
	case OpSend:
		if length > a.MaxMessageSize || a.MaxRequestIOV < 1 {
			return false
		}
	case OpRDMAWrite, OpRDMAWriteImmediate:
		if length > a.MaxRDMASize || a.MaxRDMAWriteIOV < 1 || length > o.Remote.SegmentLength {
			return false
		}
		opcode, dto, allowed = fabric.OpWrite, DTORDMAWrite, rdmaFlags&^CompletionUnsignalled
		if o.Kind == OpRDMAWriteImmediate {
			if !ep.obj.ia.has.WriteImmediate {
				return false
			}
			opcode, dto, allowed = fabric.OpWriteImm, DTORDMAWriteImm, sendFlags&^CompletionUnsignalled
		}
	default:
		return false
	}
	if o.Flags&^allowed != 0 || length == 0 || length > math.MaxUint32 || !t.valid(PrivLocalRead, ep.pz) {
		return false
	}
	work, n, first := q.inflight, len(q.wrs), len(q.sges)
	seq := work.tail + uint32(n)
	if work.mayBeFull(n) && work.full(n) {
		return false
	}
	if o.Flags != 0 {
		flags = q.signal(o.Flags, seq)
	} else {
		q.suppressed = 0
	}
	if length <= uint64(q.inline) && (!q.fenced || !q.behindFence()) {
		flags |= fabric.Inline
	}
	work.entry(seq).set(o.Cookie, length, dto, entryOf(o.Flags), t.LMR.lkey)
	q.sges = q.sges[:first+1]
	q.sges[first] = t.sge()
	q.wrs = q.wrs[:n+1]
	wr := &q.wrs[n]
	wr.ID, wr.Opcode, wr.Flags, wr.FirstSGE, wr.NumSGE = work.workID(seq), opcode, flags, uint32(first), 1
	if opcode != fabric.OpSend {
		wr.RemoteAddr, wr.RKey = o.Remote.TargetAddress, o.Remote.RMRContext
	}
	if opcode == fabric.OpWriteImm {
		wr.Imm = rawImmediate(o.Immediate)
	}
	return true
}

func (r *opRule) checkLength(a *EPAttr, o *Op, total, length uint64) error {
	if most, name := r.maxLength(a); length > most {
		return fail(r.call, InvalidParameter, SubArg2, "%d bytes, %s is %d", length, name, most)
	}
	if !r.remote {
		return nil
	}
	switch remote := o.Remote.SegmentLength; {
	case r.opcode == fabric.OpRead && total < remote:
		return fail(r.call, LengthError, SubNone, "the local segments have %d bytes, the remote buffer %d", total, remote)
	case r.opcode != fabric.OpRead && total > remote:
		return fail(r.call, LengthError, SubNone, "the remote buffer has %d bytes, the local segments %d", remote, total)
	}
	return nil
}

// room reports whether one more request may be posted. If the queue seems full, room first drains
// the dispatcher, because a Consumer that suppresses all completions never dequeues.
func (q *requestQueue) room() bool {
	if q.taken() < int(q.inflight.limit) {
		return true
	}
	q.source.evd.poll()
	return q.taken() < int(q.inflight.limit)
}

// behindFence reports whether the request that is being added is fenced, or follows a fenced one
// that has not completed. Such a request must not be inline. Inline data is copied when the request
// is posted, but the RDMA reads for which the fence waits may change the data after that.
func (q *requestQueue) behindFence() bool {
	q.fenced = q.fenced && !q.inflight.done(q.fence+1)
	return q.fenced
}

func (q *requestQueue) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inflight.count()
}

// idle reports whether no request of the Consumer is in flight. A request that the library itself
// posted may be in flight.
func (q *requestQueue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.inflight.count()
	return n == 0 || n == 1 && q.marking()
}
