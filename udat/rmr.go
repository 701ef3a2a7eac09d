package udat

import (
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// RMR is a remote memory region: a window that can be bound onto part of an LMR, and moved, so that a peer reaches
// just that part for just as long as it shall.
type RMR struct {
	obj object
	pz  *PZ
	mw  fabric.MW

	mu      sync.Mutex
	bound   *LMR // whose memory the latest bind names; nil while unbound
	triplet LMRTriplet
	priv    MemPriv
	context uint32
}

func (r *RMR) object() *object {
	if r == nil {
		return nil
	}
	return &r.obj
}

// CreateRMR makes an unbound window in the zone. A device without windows is ModelNotSupported.
//
// Implements: dat_rmr_create.
func (pz *PZ) CreateRMR() (*RMR, error) {
	const op = "rmr_create"
	if err := pz.object().check(op, HandlePZ); err != nil {
		return nil, err
	}
	ia := pz.obj.ia
	if ia.device.Attr().MaxMW == 0 {
		return nil, fail(op, ModelNotSupported, SubNone, "the device has no memory windows")
	}
	if err := pz.obj.use(op, HandlePZ); err != nil {
		return nil, err
	}
	mw, err := pz.pd.AllocMW()
	if err != nil {
		pz.obj.unuse()
		return nil, failAs(op, err, SubResourceMemoryRegion)
	}
	r := &RMR{pz: pz, mw: mw}
	if err := ia.adopt(op, &r.obj, r, HandleRMR, nil); err != nil {
		mw.Close()
		pz.obj.unuse()
		return nil, err
	}
	return r, nil
}

// Bind posts the binding of the window to the part of a region that triplet names, with remote read or write
// privileges, on the endpoint's request queue, and gives the new context at once. The operations posted after it on
// that endpoint wait for it, so that the context may go to the peer with the next Send. When it completes, with a
// bind completion on the request dispatcher, the previous context is invalid. A SegmentLength of 0 unbinds. States and
// flags are those of PostRDMAWrite. Errors also: PrivilegesViolation (remote read needs a region with local read,
// remote write one with local write), ProtectionViolation (window, region and endpoint are not in one zone).
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
	if err := r.checkBind(op, &triplet, priv, ep, flags); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &ep.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := ep.getState(); s != EPConnected && s != EPDisconnected {
		return 0, ep.wrongState(op, s)
	}
	if !q.room() {
		return 0, fail(op, InsufficientResources, SubResourceCredits, "all %d requests (MaxRequestDTOs) are outstanding", q.work.limit)
	}
	var region *LMR
	if triplet.SegmentLength > 0 {
		region = triplet.LMR
		if err := region.obj.use(op, HandleLMR); err != nil {
			return 0, fail(op, PrivilegesViolation, SubNone, "the region has been freed")
		}
	}
	context, err := q.bind(r, &triplet, r.obj.ia.windowAccess(priv), cookie, flags)
	if err != nil {
		region.object().unuse()
		return 0, err
	}
	r.bound.object().unuse()
	r.bound, r.triplet, r.priv, r.context = region, triplet, priv, context
	return context, nil
}

func (r *RMR) checkBind(op string, t *LMRTriplet, priv MemPriv, ep *EP, flags CompletionFlags) error {
	const allowed = PrivRemoteRead | PrivRemoteWrite
	switch {
	case flags&^rdmaFlags != 0:
		return fail(op, InvalidParameter, SubArg6, "flags 0x%x: only 0x%x may be given", uint32(flags), uint32(rdmaFlags))
	case flags&CompletionUnsignalled != 0 && ep.attr.RequestCompletionFlags != CompletionUnsignalled:
		return fail(op, InvalidParameter, SubArg6, "flag CompletionUnsignalled: the endpoint's RequestCompletionFlags are 0x%x", uint32(ep.attr.RequestCompletionFlags))
	case priv&^allowed != 0:
		return fail(op, InvalidParameter, SubArg3, "privileges 0x%x: only remote read and write may be given", uint32(priv))
	case r.pz != ep.pz:
		return fail(op, ProtectionViolation, SubNone, "window and endpoint are in different protection zones")
	case ep.requestEVD != nil && ep.requestEVD.flags&EVDRMRBind == 0:
		return fail(op, InvalidState, SubStateEPEVDRequest, "the endpoint's request dispatcher takes no bind completions: streams 0x%x", uint32(ep.requestEVD.flags))
	case t.SegmentLength == 0:
		return nil
	}
	// Which privileges the region must have: none of its own is needed beyond these.
	if err := t.check(op, 0, PrivLocalRead|PrivLocalWrite|PrivRemoteRead|PrivRemoteWrite, r.pz); err != nil {
		return err
	}
	if priv&PrivRemoteRead != 0 && t.LMR.priv&PrivLocalRead == 0 {
		return fail(op, PrivilegesViolation, SubPrivilegesRead, "remote read needs a region with local read: its privileges are 0x%x", uint32(t.LMR.priv))
	}
	if priv&PrivRemoteWrite != 0 && t.LMR.priv&PrivLocalWrite == 0 {
		return fail(op, PrivilegesViolation, SubPrivilegesWrite, "remote write needs a region with local write: its privileges are 0x%x", uint32(t.LMR.priv))
	}
	return nil
}

func (ia *IA) windowAccess(priv MemPriv) fabric.Access {
	var a fabric.Access
	if priv&PrivRemoteRead != 0 {
		a |= fabric.RemoteRead
	}
	if priv&PrivRemoteWrite != 0 {
		a |= fabric.RemoteWrite
	}
	return a
}

// bind posts the bind; q.mu is held.
func (q *requestQueue) bind(r *RMR, t *LMRTriplet, access fabric.Access, cookie Cookie, flags CompletionFlags) (uint32, error) {
	seq := q.work.tail.Load()
	*q.work.entry(seq) = workEntry{cookie: cookie, op: DTOBind, flags: entryOf(flags), rmr: r}
	wr := fabric.BindWR{ID: q.work.id | uint64(seq), Flags: q.signal(flags), Access: access}
	if t.SegmentLength > 0 {
		wr.MR, wr.Addr, wr.Length = t.LMR.mr, t.VirtualAddress, t.SegmentLength
	}
	q.work.tail.Store(seq + 1)
	context, err := q.qp.Bind(r.mw, wr)
	if err != nil {
		q.work.tail.Store(seq)
		return 0, failAs("rmr_bind", err, SubResourceTEP)
	}
	return context, nil
}

// RMRTriplet names the bound memory for a peer.
//
// Extension.
func (r *RMR) RMRTriplet() RMRTriplet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RMRTriplet{RMRContext: r.context, TargetAddress: r.triplet.VirtualAddress, SegmentLength: r.triplet.SegmentLength}
}

// Free destroys the window, unbinding it first. A peer that still uses its context gets an error and loses the
// connection.
//
// Implements: dat_rmr_free.
func (r *RMR) Free() error {
	if err := r.object().release("rmr_free", HandleRMR, SubNone, "objects"); err != nil {
		return err
	}
	r.destroy()
	return nil
}

func (r *RMR) destroy() {
	r.mw.Close()
	r.mu.Lock()
	bound := r.bound
	r.bound = nil
	r.mu.Unlock()
	bound.object().unuse()
	r.pz.obj.unuse()
}
