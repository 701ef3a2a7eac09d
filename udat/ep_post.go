package udat

import (
	"math"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

// PostSend sends the segments of iov, in order, as one message, which takes one receive of the
// peer. No segments send a message without data. The call copies iov; leave the memory alone until
// the completion, which comes with the cookie on the request dispatcher. It neither blocks nor
// allocates.
//
// In DISCONNECTED the operation is flushed at once; in any other state but CONNECTED the call is
// InvalidState. Flags: suppress, solicited wait, barrier fence, and unsignalled if the endpoint's
// request completion flags are. Errors: InvalidParameter (a flag, too many segments, a segment
// outside its region, a message above MaxMessageSize), PrivilegesViolation (a region without local
// read, or freed), ProtectionViolation (a region of another zone), InsufficientResources
// (MaxRequestDTOs are in flight), InvalidHandle.
//
// Implements: dat_ep_post_send.
func (ep *EP) PostSend(iov []LMRTriplet, cookie Cookie, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSend, IOV: iov, Cookie: cookie, Flags: flags})
}

// PostRDMARead reads the peer's memory that remote names into the segments of iov, in order.
// Segments longer than remote stay unchanged behind it; shorter ones are LengthError. States, flags
// and errors are those of PostSend, without solicited wait; the local regions need local write. The
// connection's read depth bounds the reads under way, later ones wait; a depth of 0 is
// InvalidParameter. Errors at the peer's end (bounds, privileges, zone) come as the completion's
// status and break the connection.
//
// Implements: dat_ep_post_rdma_read.
func (ep *EP) PostRDMARead(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMARead, IOV: iov, Cookie: cookie, Remote: remote, Flags: flags})
}

// PostRDMAWrite writes the segments of iov, in order, to the peer's memory that remote names, which
// may be longer; if it is shorter the call is LengthError. The peer gets no event; once it has
// received a later Send of this endpoint, the data is in place. States, flags and errors are those
// of PostRDMARead; the local regions need local read.
//
// Implements: dat_ep_post_rdma_write.
func (ep *EP) PostRDMAWrite(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMAWrite, IOV: iov, Cookie: cookie, Remote: remote, Flags: flags})
}

// PostBatch posts the operations in order, with one crossing into C and one doorbell per 64 of
// them. It returns the number posted; the error is that of the next one, and none after it is
// posted. ops and what it points to may be used again at return.
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
		for i := q.addFast(ep, chunk); i < len(chunk) && bad == nil; i++ {
			if bad = q.add(ep, &chunk[i]); bad == nil {
				i += q.addFast(ep, chunk[i+1:])
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
	if q.addFast(ep, unsafe.Slice(o, 1)) == 0 {
		err = q.add(ep, o)
	}
	if err == nil {
		_, err = q.submit()
	}
	q.mu.Unlock()
	return err
}

// add checks the operation and adds it to the batch; q.mu is held.
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
	q.inflight.entry(seq).set(o.Cookie, length, r.dto, entryOf(o.Flags), regionOf(o.IOV))
	// In place, and only the fields that the operation uses: devices read no others.
	wrs := q.wrs[:n+1]
	wr := &wrs[n]
	wr.ID, wr.Opcode, wr.Flags, wr.Imm = q.inflight.id|uint64(seq), r.opcode, flags, rawImmediate(o.Immediate)
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

// addFast is add for the most frequent operations: Sends and RDMA writes of one segment with
// nothing to refuse. It adds the operations up to the first of another kind, and returns their
// number.
func (q *requestQueue) addFast(ep *EP, ops []Op) int {
	if ep.exactState() != EPConnected {
		return 0
	}
	work, a, pz := q.inflight, &ep.attr, ep.pz
	var region *LMR // of the operation before: checked
	for i := range ops {
		o := &ops[i]
		if len(o.IOV) != 1 {
			return i
		}
		t := &o.IOV[0]
		length := t.SegmentLength
		flags, opcode, dto, allowed := fabric.Signaled, fabric.OpSend, DTOSend, sendFlags&^CompletionUnsignalled
		switch o.Kind {
		case OpSend:
			if length > a.MaxMessageSize || a.MaxRequestIOV < 1 {
				return i
			}
		case OpRDMAWrite:
			if length > a.MaxRDMASize || a.MaxRDMAWriteIOV < 1 || length > o.Remote.SegmentLength {
				return i
			}
			opcode, dto, allowed = fabric.OpWrite, DTORDMAWrite, rdmaFlags&^CompletionUnsignalled
		default:
			return i
		}
		n, first := len(q.wrs), len(q.sges)
		seq := work.tail + uint32(n)
		if o.Flags&^allowed != 0 || length == 0 || length > math.MaxUint32 ||
			(seq-work.freed >= work.limit && work.full(n)) ||
			(t.LMR == nil || t.LMR != region) && !t.LMR.serves(PrivLocalRead, pz) || !t.within() {
			return i
		}
		region = t.LMR
		if o.Flags != 0 {
			flags = q.signal(o.Flags, seq)
		} else {
			q.suppressed = 0
		}
		if length <= uint64(q.inline) && (!q.fenced || !q.behindFence()) {
			flags |= fabric.Inline
		}
		work.entry(seq).set(o.Cookie, length, dto, entryOf(o.Flags), t.LMR)
		q.sges = q.sges[:first+1]
		sge := &q.sges[first]
		sge.Addr, sge.Length, sge.LKey = t.VirtualAddress, uint32(length), t.LMR.lkey
		q.wrs = q.wrs[:n+1]
		wr := &q.wrs[n]
		wr.ID, wr.Opcode, wr.Flags, wr.FirstSGE, wr.NumSGE = work.id|uint64(seq), opcode, flags, uint32(first), 1
		if opcode == fabric.OpWrite {
			wr.RemoteAddr, wr.RKey = o.Remote.TargetAddress, o.Remote.RMRContext
		}
	}
	return len(ops)
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

// room reports whether one more request may be posted. If the queue seems full it drains the
// dispatcher first: a Consumer that suppresses all completions never dequeues.
func (q *requestQueue) room() bool {
	if q.taken() < int(q.inflight.limit) {
		return true
	}
	q.source.evd.poll()
	return q.taken() < int(q.inflight.limit)
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

// marking reports whether a request of the library is in flight.
func (q *requestQueue) marking() bool {
	q.marked = q.marked && !q.inflight.done(q.marker+1)
	return q.marked
}

// behindFence reports whether a request that is posted now starts only after a fenced one, itself
// or one in flight. Such a request is never inline: inline data would be copied before the RDMA
// reads that the fence waits for have brought it.
func (q *requestQueue) behindFence() bool {
	q.fenced = q.fenced && !q.inflight.done(q.fence+1)
	return q.fenced
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
	q.wrs = append(q.wrs, fabric.SendWR{ID: q.inflight.id | uint64(seq), Opcode: fabric.OpWrite, Flags: fabric.Signaled})
	q.submit()
}

func (q *requestQueue) inFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inflight.count()
}

// idle reports whether no request of the Consumer is in flight; one of the library may be.
func (q *requestQueue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.inflight.count()
	return n == 0 || n == 1 && q.marking()
}
