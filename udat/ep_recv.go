package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// PostRecv posts a buffer for one message of the peer. The message fills the segments of iov in
// order. If iov is empty the receive is for a message without data; an endpoint without a zone can
// have only such receives. The call copies iov. Do not use the memory until the completion, which
// is queued on the receive dispatcher with the cookie. PostRecv does not block, and allocates only
// for the first receive that is posted outside a connection.
//
// The call is valid in every state; in DISCONNECTED the receive is flushed at once. With a shared
// receive queue it returns InvalidState. The only flag allowed is unsignalled, if it is the
// endpoint's receive completion flag. The other errors are those of PostSend, but the regions need
// local write. If the message is longer than the buffer, the receive completes with
// DTOErrLocalLength and the connection breaks.
//
// [Event.Length] is the length of the message in the buffer, except if Operation is
// DTOReceiveWriteImm. Then Length is the length of the peer's write to other memory and may exceed
// the buffer: do not slice the buffer with it.
//
// Implements: dat_ep_post_recv.
func (ep *EP) PostRecv(iov []LMRTriplet, cookie Cookie, flags CompletionFlags) error {
	if ep == nil || !ep.obj.live.Load() {
		return badHandle(postRecv, HandleEP, ep.object())
	}
	q := &ep.recvs
	q.mu.Lock()
	err := q.prepare(ep, iov, cookie, flags)
	if err == nil {
		_, err = q.submit()
	}
	q.mu.Unlock()
	if err == nil && ep.wmark.armed.Load() {
		ep.checkWatermarks()
	}
	return err
}

// Recv is one receive of a PostRecvBatch.
type Recv struct {
	IOV    []LMRTriplet
	Cookie Cookie
	Flags  CompletionFlags
}

// PostRecvBatch posts the receives in order, in chunks of up to 64, each with one call into C. It
// returns the number of receives posted. If this number is less than len(recvs), the error is that
// of the next receive.
//
// Extension.
func (ep *EP) PostRecvBatch(recvs []Recv) (int, error) {
	if ep == nil || !ep.obj.live.Load() {
		return 0, badHandle(postRecv, HandleEP, ep.object())
	}
	q := &ep.recvs
	q.mu.Lock()
	q.reserve(len(recvs), ep.attr.MaxRecvIOV, q.inflight)
	posted := 0
	var err error
	for posted < len(recvs) && err == nil {
		var bad error
		chunk := recvs[posted:min(len(recvs), posted+cap(q.wrs))]
		for i := range chunk {
			r := &chunk[i]
			if bad = q.prepare(ep, r.IOV, r.Cookie, r.Flags); bad != nil {
				break
			}
		}
		var n int
		n, err = q.submit()
		posted += n
		if err == nil {
			err = bad
		}
	}
	q.mu.Unlock()
	if ep.wmark.armed.Load() {
		ep.checkWatermarks()
	}
	return posted, err
}

const postRecv = "ep_post_recv"

// prepare checks a receive and adds it to the batch; q.mu is held.
func (q *recvQueue) prepare(ep *EP, iov []LMRTriplet, cookie Cookie, flags CompletionFlags) error {
	switch {
	case q.qp == nil && ep.exactState() == epFreed:
		return badHandle(postRecv, HandleEP, &ep.obj)
	case ep.srq != nil:
		return fail(postRecv, InvalidState, SubNone, "the endpoint takes its receives from a shared receive queue")
	case flags&^CompletionUnsignalled != 0:
		return fail(postRecv, InvalidParameter, SubArg5, "flags %v: only CompletionUnsignalled may be given", flags)
	case flags != 0 && ep.attr.RecvCompletionFlags != CompletionUnsignalled:
		return fail(postRecv, InvalidParameter, SubArg5,
			"flag CompletionUnsignalled: the endpoint's RecvCompletionFlags are %v", ep.attr.RecvCompletionFlags)
	case len(iov) > ep.attr.MaxRecvIOV:
		return fail(postRecv, InvalidParameter, SubArg2, "%d segments, the limit is %d", len(iov), ep.attr.MaxRecvIOV)
	}
	first := len(q.sges)
	sges, lkey, err := ep.recvSegments(q.sges, iov)
	if err != nil {
		return err
	}
	work, n := q.inflight, len(q.wrs)
	seq := work.tail + uint32(n)
	if work.mayBeFull(n) && work.full(n) {
		q.source.evd.poll()
		if work.full(n) {
			return fail(postRecv, InsufficientResources, SubResourceCredits, "all %d receives (MaxRecvDTOs) are in flight",
				work.limit)
		}
	}
	q.sges = sges
	work.entry(seq).set(cookie, 0, DTOReceive, entryOf(flags), lkey)
	if ep.exactState() != EPConnected {
		work.saveSGEs(seq, sges[first:]) // Modify may have to post the receive again
	}
	q.wrs = append(q.wrs, fabric.RecvWR{ID: work.workID(seq), FirstSGE: uint32(first),
		NumSGE: uint32(len(sges) - first)})
	return nil
}

// recvSegments checks the segments of a receive and appends them to sges. The result lkey is that
// of keyOf.
func (ep *EP) recvSegments(sges []fabric.SGE, iov []LMRTriplet) (_ []fabric.SGE, lkey uint32, err error) {
	most := ep.attr.MaxMessageSize
	if len(iov) == 1 { // most receives have one segment
		t := &iov[0]
		if n := t.SegmentLength; n > 0 && n <= min(most, math.MaxUint32) && t.valid(PrivLocalWrite, ep.pz) {
			return append(sges, t.sge()), t.LMR.lkey, nil
		}
	}
	sges, length, _, err := appendSegments(sges, postRecv, iov, PrivLocalWrite, ep.pz, math.MaxUint64)
	if err == nil && length > most {
		err = fail(postRecv, InvalidParameter, SubArg2, "%d bytes, MaxMessageSize is %d", length, most)
	}
	if err != nil {
		return nil, 0, err
	}
	return sges, keyOf(iov), nil
}

// submit posts the batch; q.mu is held. Without a zone there is no queue pair; then the receives
// count as posted, and Modify posts them when it sets a zone.
func (q *recvQueue) submit() (posted int, err error) {
	switch {
	case len(q.wrs) == 0:
		return 0, nil
	case q.qp == nil:
		posted = len(q.wrs)
	default:
		posted, err = q.qp.PostRecv(q.wrs, q.sges)
	}
	q.inflight.tail += uint32(posted)
	if err != nil {
		err = failAs(postRecv, err, SubResourceTEP)
	}
	q.wrs, q.sges = q.wrs[:0], q.sges[:0]
	return posted, err
}
