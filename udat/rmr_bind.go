package udat

import "github.com/godat/godat/udat/internal/fabric"

// Bind binds the window to a part of a region, with remote read or write privileges. It posts this
// operation on the endpoint's request queue and returns the new context at once. Operations that
// are posted later on this endpoint wait for the bind, so the next Send can already carry the
// context to the peer. The completion of the bind is queued on the request dispatcher; the previous
// context is then invalid. If SegmentLength is 0, Bind unbinds the window, and the context has no
// meaning.
//
// If a bind fails or is flushed, the window stays as it was. However, when a connection ends, a
// device may flush a bind that it has executed. Therefore the region of a flushed bind cannot be
// freed until the window is bound again or freed. After a flush, the next Bind on a connected
// endpoint ends the previous binding at once, even if this Bind fails.
//
// The allowed states and flags are those of PostRDMAWrite. Other errors are InvalidParameter if the
// part is outside the region, or priv has privileges other than remote read and write;
// PrivilegesViolation if priv has remote read and the region lacks local read, or priv has remote
// write and the region lacks local write; ProtectionViolation if window, region and endpoint are
// not in one zone; InvalidState if the request dispatcher does not accept bind completions.
//
// Implements: dat_rmr_bind.
func (r *RMR) Bind(triplet LMRTriplet, priv MemPriv, ep *EP, cookie Cookie, flags CompletionFlags) (uint32, error) {
	const op = "rmr_bind"
	if err := r.object().check(op, HandleRMR); err != nil {
		return 0, err
	}
	if err := ep.object().check(op, HandleEP); err != nil {
		return 0, err
	}
	r.posting.Lock()
	defer r.posting.Unlock()
	q := &ep.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	state := ep.getState()
	if state != EPConnected && state != EPDisconnected {
		return 0, ep.wrongState(op, state)
	}
	if err := r.checkBind(op, &triplet, priv, ep, flags); err != nil {
		return 0, err
	}
	if !q.room() {
		return 0, fail(op, InsufficientResources, SubResourceCredits, "all %d requests (MaxRequestDTOs) are in flight",
			q.inflight.limit)
	}
	if state == EPConnected {
		if err := r.renew(op); err != nil {
			return 0, err
		}
	}
	b := binding{triplet: triplet, priv: priv, live: state == EPConnected}
	if triplet.SegmentLength > 0 {
		b.region = triplet.LMR
	}
	// Record the bind before the post, because the bind may complete before the post returns.
	if err := r.begin(op, &b); err != nil {
		return 0, err
	}
	context, err := q.bind(r, &b, r.obj.ia.access(priv)&(fabric.RemoteRead|fabric.RemoteWrite), cookie, flags)
	if err != nil {
		r.settle(b.serial, fabric.StatusGeneral)
		return 0, err
	}
	r.setContext(b.serial, context)
	return context, nil
}

// checkBind returns an error if the bind is not allowed; the lock of the endpoint's requests is
// held.
func (r *RMR) checkBind(op string, t *LMRTriplet, priv MemPriv, ep *EP, flags CompletionFlags) error {
	const allowed = PrivRemoteRead | PrivRemoteWrite
	switch {
	case flags&^rdmaFlags != 0:
		return fail(op, InvalidParameter, SubArg6, "flags %v: only %v may be given", flags, rdmaFlags)
	case flags&CompletionUnsignalled != 0 && ep.attr.RequestCompletionFlags != CompletionUnsignalled:
		return fail(op, InvalidParameter, SubArg6,
			"flag CompletionUnsignalled: the endpoint's RequestCompletionFlags are %v", ep.attr.RequestCompletionFlags)
	case priv&^allowed != 0:
		return fail(op, InvalidParameter, SubArg3, "privileges %v: only remote read and write may be given", priv)
	case r.obj.ia != ep.obj.ia:
		return fail(op, InvalidHandle, SubHandleEP, "the endpoint belongs to another adapter")
	case r.pz != ep.pz:
		return fail(op, ProtectionViolation, SubNone, "window and endpoint are in different protection zones")
	case ep.requestEVD != nil && ep.requestEVD.flags&EVDRMRBind == 0:
		return fail(op, InvalidState, SubStateEPEVDRequest,
			"the endpoint's request dispatcher takes no bind completions: streams %v", ep.requestEVD.flags)
	case t.SegmentLength == 0:
		return nil
	}
	// Any privilege of the region is enough for this check; the two checks below require more.
	if err := t.check(op, 0, PrivLocalRead|PrivLocalWrite|PrivRemoteRead|PrivRemoteWrite, r.pz); err != nil {
		return err
	}
	if priv&PrivRemoteRead != 0 && t.LMR.priv&PrivLocalRead == 0 {
		return fail(op, PrivilegesViolation, SubPrivilegesRead,
			"remote read needs a region with local read: its privileges are %v", t.LMR.priv)
	}
	if priv&PrivRemoteWrite != 0 && t.LMR.priv&PrivLocalWrite == 0 {
		return fail(op, PrivilegesViolation, SubPrivilegesWrite,
			"remote write needs a region with local write: its privileges are %v", t.LMR.priv)
	}
	return nil
}

// bind posts a bind operation; q.mu is held. Each bind makes a completion, even if the Consumer
// suppresses it, because the completion settles the bind.
func (q *requestQueue) bind(r *RMR, b *binding, access fabric.Access, cookie Cookie, flags CompletionFlags) (uint32,
	error) {
	seq := q.inflight.tail
	*q.inflight.entry(seq) = inflightEntry{cookie: cookie, op: DTOBind, flags: entryOf(flags), rmr: r, length: b.serial}
	wr := fabric.BindWR{ID: q.inflight.workID(seq), Flags: q.signal(flags&^CompletionSuppress,
		seq) | fabric.Signaled, Access: access}
	if b.region != nil {
		wr.MR, wr.Addr, wr.Length = b.region.mr, b.triplet.VirtualAddress, b.triplet.SegmentLength
	}
	context, err := q.qp.Bind(r.mw, wr)
	if err != nil {
		return 0, failAs("rmr_bind", err, SubResourceTEP)
	}
	q.inflight.tail++
	return context, nil
}
