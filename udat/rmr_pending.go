package udat

import "github.com/godat/godat/udat/internal/fabric"

// begin records a bind that is about to be posted, and counts the window as bound to the region.
func (r *RMR) begin(op string, b *binding) error {
	if !b.region.bindWindow() {
		return fail(op, PrivilegesViolation, SubNone, "the region has been freed")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		b.region.unbindWindow()
		return badHandle(op, HandleRMR, &r.obj)
	}
	r.serial++
	b.serial = r.serial
	r.pending = append(r.pending, *b)
	return nil
}

// setContext records the context of a bind that has been posted. The bind may have completed
// already.
func (r *RMR) setContext(serial uint64, context uint32) {
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
	if b.serial == serial { // else the bind has failed
		b.context = context
		r.obj.ia.windows.add(context, r)
	}
}

// take removes a bind from the pending binds and returns it; r.mu is held.
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

// settle records the outcome of a bind. It acquires only RMR.mu and locks of higher rank.
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
	r.obj.ia.windows.remove(b.context, r)
	r.unsure = r.unsure || s == fabric.StatusFlush
	if s == fabric.StatusFlush && b.live {
		// The driver rxe executes a bind before the earlier requests have completed, and may still flush
		// the bind. So the region counts as bound until the window is bound again or freed.
		r.stale = append(r.stale, b.region)
		return
	}
	b.region.unbindWindow()
}

// forget records that the outcome of a bind stays unknown, because its queue pair no longer exists.
func (r *RMR) forget(serial uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.take(serial); ok {
		r.obj.ia.windows.remove(b.context, r)
		r.stale = append(r.stale, b.region)
		r.unsure = true
	}
}

// renew replaces the device's window after a bind was flushed; r.posting is held. A driver derives
// the key of a bind from the key of the previous bind. Therefore a device that has not executed the
// previous bind refuses the next one.
func (r *RMR) renew(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsure || r.dead {
		return nil
	}
	mw, err := r.pz.pd.AllocMW()
	if err != nil {
		return failAs(op, err, SubResourceMemoryRegion)
	}
	r.mw.Close()
	r.mw, r.unsure = mw, false
	r.unbind()
	return nil
}

// forgetBinds forgets the binds among the entries from head to the tail of the queue; the poster's
// lock is held.
func forgetBinds(q *inflight, head uint32) {
	for seq := head; seq != q.tail; seq++ {
		if en := q.entry(seq); en.rmr != nil {
			en.rmr.forget(en.length)
		}
	}
}

// unbind releases all regions to which the window was or may have been bound; r.mu is held.
func (r *RMR) unbind() {
	r.obj.ia.windows.remove(r.bound.context, r)
	r.bound.region.unbindWindow()
	r.bound = binding{}
	for _, l := range r.stale {
		l.unbindWindow()
	}
	r.stale = nil
}

// binding returns the latest binding that has been posted and has not failed.
func (r *RMR) binding() binding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.pending); n > 0 {
		return r.pending[n-1]
	}
	return r.bound
}

// invalidated handles a peer's invalidation of an RMR context. It unbinds the window if the present
// binding has this context.
func (r *RMR) invalidated(context uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bound.region != nil && r.bound.context == context {
		r.unbind()
	}
}

// target returns the address of the bound memory for peers.
func (b *binding) target() uint64 {
	if b.region == nil {
		return 0
	}
	return b.triplet.VirtualAddress - b.region.addr + b.region.remote
}

// local converts t, which names a part of the bound memory, to a triplet that names the same memory
// as a part of the region.
func (r *RMR) local(t RMRTriplet) (LMRTriplet, error) {
	const op = "ep_post_rdma_read_to_rmr"
	if err := r.object().check(op, HandleRMR); err != nil {
		return LMRTriplet{}, err
	}
	b := r.binding()
	off := t.TargetAddress - b.target()
	switch {
	case b.region == nil:
		return LMRTriplet{}, fail(op, InvalidState, SubNone, "the window is not bound")
	case b.priv&PrivRemoteWrite == 0:
		return LMRTriplet{}, fail(op, PrivilegesViolation, SubPrivilegesRDMAWrite,
			"the binding has privileges %v and lacks remote write", b.priv)
	case t.RMRContext != b.context:
		return LMRTriplet{}, fail(op, InvalidParameter, SubArg2, "context 0x%x is not the binding's 0x%x", t.RMRContext,
			b.context)
	case off > b.triplet.SegmentLength || t.SegmentLength > b.triplet.SegmentLength-off:
		return LMRTriplet{}, fail(op, InvalidParameter, SubArg2, "[0x%x, +%d) is not inside the binding [0x%x, +%d)",
			t.TargetAddress, t.SegmentLength, b.target(), b.triplet.SegmentLength)
	}
	return LMRTriplet{LMR: b.region, VirtualAddress: b.triplet.VirtualAddress + off, SegmentLength: t.SegmentLength}, nil
}

func (t *windowTable) add(context uint32, r *RMR) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byContext == nil {
		t.byContext = make(map[uint32]*RMR)
	}
	t.byContext[context] = r
}

// remove removes a context of r, unless the device has already given the context to another window.
func (t *windowTable) remove(context uint32, r *RMR) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byContext[context] == r {
		delete(t.byContext, context)
	}
}

// invalidated handles a peer's invalidation of a context. It unbinds the window that has the
// context. No lock of a window is held.
func (t *windowTable) invalidated(context uint32) {
	t.mu.Lock()
	r := t.byContext[context]
	t.mu.Unlock()
	if r != nil {
		r.invalidated(context)
	}
}
