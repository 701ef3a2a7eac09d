package softnic

import "github.com/godat/godat/udat/internal/fabric"

// binding is a posted request that binds a window.
type binding struct {
	window *mw
	region *mr
	dom    *pd // of the queue pair
	key    uint32
	wr     fabric.BindWR
}

// Bind posts a request that binds a window. If the range, the rights or the domains are wrong, the
// completion reports the error.
func (q *QP) Bind(w fabric.MW, wr fabric.BindWR) (uint32, error) {
	const op = "bind MW"
	b := &binding{dom: q.pd, wr: wr}
	b.window, _ = w.(*mw)
	b.region, _ = wr.MR.(*mr)
	switch {
	case b.window == nil || b.window.pd.dev != q.dev:
		return 0, Invalid(op, "no window of this device")
	case wr.Length > 0 && (b.region == nil || b.region.dev != q.dev):
		return 0, Invalid(op, "no MR of this device")
	case wr.Access&^remoteRights != 0:
		return 0, Invalid(op, "access rights %#x are not for windows", uint32(wr.Access&^remoteRights))
	case wr.Flags&^(fabric.Signaled|fabric.Fence) != 0:
		return 0, Invalid(op, "flags %#x are not for a bind", uint32(wr.Flags))
	}
	if err := q.postBind(b); err != nil {
		return 0, err
	}
	q.link.Wake()
	return b.key, nil
}

// postBind reserves the key of the binding and queues the request.
func (q *QP) postBind(b *binding) error {
	const op = "bind MW"
	q.mu.Lock()
	defer q.mu.Unlock()
	s := qpState(q.state.Load())
	if err := usable(op, s); err != nil {
		return err
	}
	switch {
	case s == qpInit:
		return Failed(op+": not connected", fabric.ErrQPState)
	case q.sq.full():
		return Failed(op, fabric.ErrQueueFull)
	}
	if err := q.mayPost(op); err != nil {
		return err
	}
	t := &q.dev.HW.keys
	t.mu.Lock()
	if b.window.dead {
		t.mu.Unlock()
		return Failed(op+": window", fabric.ErrClosed)
	}
	b.key = t.reserve()
	b.window.key = b.key
	t.mu.Unlock()
	slot := q.sq.next()
	slot.WR = fabric.SendWR{ID: b.wr.ID, Flags: b.wr.Flags, Opcode: opBind}
	slot.SGEs, slot.Length = slot.SGEs[:0], 0
	slot.bind = b
	q.sq.push()
	return nil
}

// apply executes the request and returns the status of its completion. The transport calls it.
func (b *binding) apply() fabric.Status {
	w, m := b.window, b.region
	t := &w.pd.dev.HW.keys
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.dead || w.pd != b.dom {
		return fabric.StatusMWBind
	}
	if b.wr.Length == 0 {
		delete(t.byKey, b.key) // the key that Bind returned gives access to nothing
		t.unbind(w)
		return fabric.StatusSuccess
	}
	mem, inside := m.span.slice(m.span.base, b.wr.Addr, b.wr.Length)
	writes := b.wr.Access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0
	if m.closed || !inside || m.span.pd != b.dom || m.span.access&fabric.WindowBind == 0 ||
		writes && m.span.access&fabric.LocalWrite == 0 {
		return fabric.StatusMWBind
	}
	m.refs++ // before unbind unlocks t.mu, so that the region cannot be closed
	t.unbind(w)
	if w.dead {
		m.refs--
		return fabric.StatusMWBind
	}
	w.span = &span{
		gate: newGate(), key: b.key, pd: b.dom, region: m, window: w,
		mem: mem, base: b.wr.Addr, remote: b.wr.Addr - m.span.base + m.span.remote, access: b.wr.Access,
	}
	t.byKey[b.key] = w.span
	return fabric.StatusSuccess
}

// cancel releases the key of a bind that failed or was flushed. The window keeps its earlier
// binding.
func (b *binding) cancel() {
	w := b.window
	t := &w.pd.dev.HW.keys
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, b.key)
	if w.key == b.key {
		w.key = 0
		if w.span != nil {
			w.key = w.span.key
		}
	}
}
