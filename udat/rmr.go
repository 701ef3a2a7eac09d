package udat

import (
	"github.com/godat/godat/udat/internal/fabric"
)

// RMR is a remote memory region: a window that can be bound onto part of an LMR, and moved, so that a peer reaches
// just that part for just as long as it shall.
type RMR struct {
	obj object
	pz  *PZ
	mw  fabric.MW

	posting ranked[rankBinding] // one Bind at a time

	mu      ranked[rankRMR]
	dead    bool
	serial  uint64
	pending []binding // posted and not completed, oldest first
	bound   binding   // the latest that has completed; no region while unbound
	stale   []*LMR    // of binds whose outcome nobody can tell: the window may still be bound to them
}

// binding is what one Bind asks for.
type binding struct {
	serial  uint64
	region  *LMR // nil unbinds
	triplet LMRTriplet
	priv    MemPriv
	context uint32
	live    bool // posted on a connection: a device may carry it out ahead of time
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
// bind completion on the request dispatcher, the previous context is invalid. A SegmentLength of 0 unbinds; the context
// then means nothing. A bind that fails, or is flushed, leaves the window as it was; but a device may have carried out what was flushed with its
// connection, so that the region cannot be freed until the window is bound anew or freed.
//
// States and flags are those of PostRDMAWrite. Errors also: InvalidParameter (a part outside the region, privileges other
// than remote read and write), PrivilegesViolation (remote read needs a region with local read, remote write one with local
// write), ProtectionViolation (window, region and endpoint are not in one zone), InvalidState (the request dispatcher takes no
// bind completions).
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
		return 0, fail(op, InsufficientResources, SubResourceCredits, "all %d requests (MaxRequestDTOs) are outstanding", q.inflight.limit)
	}
	b := binding{triplet: triplet, priv: priv, live: state == EPConnected}
	if triplet.SegmentLength > 0 {
		b.region = triplet.LMR
	}
	// It may complete before the post returns.
	if err := r.begin(op, &b); err != nil {
		return 0, err
	}
	context, err := q.bind(r, &b, r.obj.ia.windowAccess(priv), cookie, flags)
	if err != nil {
		r.settle(b.serial, fabric.StatusGeneral)
		return 0, err
	}
	r.name(b.serial, context)
	return context, nil
}

// checkBind refuses what cannot be bound; the lock of the endpoint's requests is held.
func (r *RMR) checkBind(op string, t *LMRTriplet, priv MemPriv, ep *EP, flags CompletionFlags) error {
	const allowed = PrivRemoteRead | PrivRemoteWrite
	switch {
	case flags&^rdmaFlags != 0:
		return fail(op, InvalidParameter, SubArg6, "flags %v: only %v may be given", flags, rdmaFlags)
	case flags&CompletionUnsignalled != 0 && ep.attr.RequestCompletionFlags != CompletionUnsignalled:
		return fail(op, InvalidParameter, SubArg6, "flag CompletionUnsignalled: the endpoint's RequestCompletionFlags are %v", ep.attr.RequestCompletionFlags)
	case priv&^allowed != 0:
		return fail(op, InvalidParameter, SubArg3, "privileges %v: only remote read and write may be given", priv)
	case r.obj.ia != ep.obj.ia:
		return fail(op, InvalidHandle, SubHandleEP, "the endpoint belongs to another adapter")
	case r.pz != ep.pz:
		return fail(op, ProtectionViolation, SubNone, "window and endpoint are in different protection zones")
	case ep.requestEVD != nil && ep.requestEVD.flags&EVDRMRBind == 0:
		return fail(op, InvalidState, SubStateEPEVDRequest, "the endpoint's request dispatcher takes no bind completions: streams %v", ep.requestEVD.flags)
	case t.SegmentLength == 0:
		return nil
	}
	// Which privileges the region must have: none of its own is needed beyond these.
	if err := t.check(op, 0, PrivLocalRead|PrivLocalWrite|PrivRemoteRead|PrivRemoteWrite, r.pz); err != nil {
		return err
	}
	if priv&PrivRemoteRead != 0 && t.LMR.priv&PrivLocalRead == 0 {
		return fail(op, PrivilegesViolation, SubPrivilegesRead, "remote read needs a region with local read: its privileges are %v", t.LMR.priv)
	}
	if priv&PrivRemoteWrite != 0 && t.LMR.priv&PrivLocalWrite == 0 {
		return fail(op, PrivilegesViolation, SubPrivilegesWrite, "remote write needs a region with local write: its privileges are %v", t.LMR.priv)
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

// bind posts the bind; q.mu is held. Each asks the device for a completion, so that each is settled by its own.
func (q *requestQueue) bind(r *RMR, b *binding, access fabric.Access, cookie Cookie, flags CompletionFlags) (uint32, error) {
	seq := q.inflight.tail
	*q.inflight.entry(seq) = inflightEntry{cookie: cookie, op: DTOBind, flags: entryOf(flags), rmr: r, length: b.serial}
	wr := fabric.BindWR{ID: q.inflight.id | uint64(seq), Flags: q.signal(flags&^CompletionSuppress, seq) | fabric.Signaled, Access: access}
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

// begin notes a bind that is about to be posted and holds its region.
func (r *RMR) begin(op string, b *binding) error {
	if !b.region.hold() {
		return fail(op, PrivilegesViolation, SubNone, "the region has been freed")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		b.region.letGoWindow()
		return badHandle(op, HandleRMR, &r.obj)
	}
	r.serial++
	b.serial = r.serial
	r.pending = append(r.pending, *b)
	return nil
}

// name notes the context of a bind that has been posted, and may have completed.
func (r *RMR) name(serial uint64, context uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return
	}
	b := &r.bound
	for i := range r.pending {
		if r.pending[i].serial == serial {
			b = &r.pending[i]
		}
	}
	if b.serial == serial { // else it has failed
		b.context = context
		r.obj.ia.windows.add(context, r)
	}
}

// take removes a bind from those pending; r.mu is held.
func (r *RMR) take(serial uint64) (b binding, ok bool) {
	for i := range r.pending {
		if r.pending[i].serial == serial {
			b = r.pending[i]
			r.pending = append(r.pending[:i], r.pending[i+1:]...)
			return b, true
		}
	}
	return binding{}, false
}

// settle notes how a bind ended. It takes no locks but leaves.
func (r *RMR) settle(serial uint64, s fabric.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.take(serial)
	if !ok {
		return
	}
	if s == fabric.StatusSuccess {
		r.unbind()
		r.bound = b
		return
	}
	r.obj.ia.windows.remove(b.context)
	if s == fabric.StatusFlush && b.live {
		// A device may carry a bind out before what precedes it has completed, and flush it all the same (rxe): the region counts as
		// bound until the window is bound anew or freed.
		r.stale = append(r.stale, b.region)
		return
	}
	b.region.letGoWindow()
}

// forget notes a bind whose outcome will never be told: its queue pair has gone.
func (r *RMR) forget(serial uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.take(serial); ok {
		r.obj.ia.windows.remove(b.context)
		r.stale = append(r.stale, b.region)
	}
}

// forgetBinds tells the windows that the outcome of the binds in flight from head on will never be known; the poster's
// lock is held.
func forgetBinds(q *inflight, head uint32) {
	for seq := head; seq != q.tail; seq++ {
		if en := q.entry(seq); en.rmr != nil {
			en.rmr.forget(en.length)
		}
	}
}

// unbind lets go of all regions that the window was or may have been bound to; r.mu is held.
func (r *RMR) unbind() {
	r.obj.ia.windows.remove(r.bound.context)
	r.bound.region.letGoWindow()
	r.bound = binding{}
	for _, l := range r.stale {
		l.letGoWindow()
	}
	r.stale = nil
}

// binding is the latest that has been posted and has not failed.
func (r *RMR) binding() binding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.pending); n > 0 {
		return r.pending[n-1]
	}
	return r.bound
}

// invalidated notes that the peer has ended the binding with the context, if it is the window's.
func (r *RMR) invalidated(context uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bound.region != nil && r.bound.context == context {
		r.unbind()
	}
}

// windowTable finds a bound window by its context, when a peer has invalidated it.
type windowTable struct {
	mu        ranked[rankWindows]
	byContext map[uint32]*RMR
}

func (t *windowTable) add(context uint32, r *RMR) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byContext == nil {
		t.byContext = make(map[uint32]*RMR)
	}
	t.byContext[context] = r
}

func (t *windowTable) remove(context uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byContext, context)
}

// invalidated tells the window with the context that its binding has ended; no lock of a window is held.
func (t *windowTable) invalidated(context uint32) {
	t.mu.Lock()
	r := t.byContext[context]
	t.mu.Unlock()
	if r != nil {
		r.invalidated(context)
	}
}

// RMRTriplet names the bound memory for a peer: that of the latest Bind that has not failed.
//
// Extension.
func (r *RMR) RMRTriplet() RMRTriplet {
	if !r.object().alive() {
		return RMRTriplet{}
	}
	b := r.binding()
	return RMRTriplet{RMRContext: b.context, TargetAddress: b.triplet.VirtualAddress, SegmentLength: b.triplet.SegmentLength}
}

// RMRParam describes a window. Triplet, Privileges and Context are those of the latest Bind that has not failed; they are
// zero while the window is not bound.
type RMRParam struct {
	IA         *IA
	PZ         *PZ
	Triplet    LMRTriplet
	Privileges MemPriv
	Context    uint32
}

// Query describes the window.
//
// Implements: dat_rmr_query.
func (r *RMR) Query() (RMRParam, error) {
	const op = "rmr_query"
	if err := r.object().check(op, HandleRMR); err != nil {
		return RMRParam{}, err
	}
	p := RMRParam{IA: r.obj.ia, PZ: r.pz}
	if b := r.binding(); b.region != nil {
		p.Triplet, p.Privileges, p.Context = b.triplet, b.priv, b.context
	}
	return p, nil
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
	r.posting.Lock()
	r.mw.Close()
	r.posting.Unlock()
	r.mu.Lock()
	r.dead = true
	r.unbind()
	for _, b := range r.pending {
		r.obj.ia.windows.remove(b.context)
		b.region.letGoWindow()
	}
	r.pending = nil
	r.mu.Unlock()
	r.pz.obj.unuse()
}
