package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// PostRecv posts a buffer for one message of the peer: the message fills the segments of iov in
// order. No segments take a message without data. The call is valid in every state; in DISCONNECTED
// the receive is flushed at once. An endpoint with a shared receive queue is InvalidState. The call
// copies iov; leave the memory alone until the completion, which comes with the cookie on the
// receive dispatcher. The call does not block, and allocates only for the first receive that is
// posted outside a connection.
//
// The only flag is unsignalled, if the endpoint's receive completion flags are. A message longer
// than the buffer completes with DTOErrLocalLength and breaks the connection. Errors: those of
// PostSend; the regions need local write.
//
// [Event.Length] is the length of the message in the buffer, except for Operation
// DTOReceiveWriteImm: there it is what the peer has written elsewhere, which may be more than the
// buffer has. Do not slice the buffer by it.
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

// Recv is one receive for PostRecvBatch.
type Recv struct {
	IOV    []LMRTriplet
	Cookie Cookie
	Flags  CompletionFlags
}

// PostRecvBatch posts the receives in order, with one crossing into C per 64 of them. It returns
// the number posted; the error is that of the next one.
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
	if q.qp == nil {
		return ep.notReady(postRecv)
	}
	switch {
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
	sges, length, _, err := appendSegments(q.sges, postRecv, iov, PrivLocalWrite, ep.pz, math.MaxUint64)
	if err != nil {
		return err
	}
	if length > ep.attr.MaxMessageSize {
		return fail(postRecv, InvalidParameter, SubArg2, "%d bytes, MaxMessageSize is %d", length, ep.attr.MaxMessageSize)
	}
	if q.inflight.full(len(q.wrs)) {
		q.source.evd.poll()
		if q.inflight.full(len(q.wrs)) {
			return fail(postRecv, InsufficientResources, SubResourceCredits, "all %d receives (MaxRecvDTOs) are in flight",
				q.inflight.limit)
		}
	}
	q.sges = sges
	seq := q.inflight.tail + uint32(len(q.wrs))
	q.inflight.entry(seq).set(cookie, 0, DTOReceive, entryOf(flags), regionOf(iov))
	if ep.exactState() != EPConnected {
		q.inflight.saveSGEs(seq, sges[first:]) // Modify may have to post it again
	}
	q.wrs = append(q.wrs, fabric.RecvWR{ID: q.inflight.id | uint64(seq), FirstSGE: uint32(first),
		NumSGE: uint32(len(sges) - first)})
	return nil
}

// submit posts the batch; q.mu is held.
func (q *recvQueue) submit() (int, error) {
	if len(q.wrs) == 0 {
		return 0, nil
	}
	posted, err := q.qp.PostRecv(q.wrs, q.sges)
	q.inflight.tail += uint32(posted)
	if err != nil {
		err = failAs(postRecv, err, SubResourceTEP)
	}
	q.wrs, q.sges = q.wrs[:0], q.sges[:0]
	return posted, err
}
