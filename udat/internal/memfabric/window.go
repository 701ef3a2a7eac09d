package memfabric

import "github.com/godat/godat/udat/internal/fabric"

// mw is a memory window. Everything but object is guarded by the key table's lock.
type mw struct {
	object
	pd   *pd
	key  uint32 // of the latest binding
	span *span  // what it is bound to; nil: nothing
	dead bool
}

// AllocMW makes an unbound window. Rebinding needs no invalidation in between.
func (p *pd) AllocMW() (fabric.MW, error) {
	if err := p.dev.admit("alloc MW", MWs, &p.object); err != nil {
		return nil, err
	}
	return &mw{pd: p}, nil
}

func (w *mw) RKey() uint32 {
	t := &w.pd.dev.f.keys
	t.mu.RLock()
	defer t.mu.RUnlock()
	return w.key
}

// Close frees the window, unbinding it first.
func (w *mw) Close() error {
	if err := w.pd.dev.retire("free MW", &w.object); err != nil {
		return err
	}
	t := &w.pd.dev.f.keys
	t.mu.Lock()
	w.dead = true
	t.unbind(w)
	t.mu.Unlock()
	w.pd.dev.release(MWs, &w.pd.object)
	return nil
}

// unbind ends the binding of w, if any: when it returns nothing uses the memory through it any
// more. The lock is held, and given up while others finish.
func (t *keyTable) unbind(w *mw) {
	for w.span != nil {
		s := w.span
		w.span = nil
		delete(t.byKey, s.key)
		t.mu.Unlock()
		s.shutAndWait()
		t.mu.Lock()
		s.region.refs--
	}
}

// invalidate ends the binding that key names, where it is a window's in the domain.
func (t *keyTable) invalidate(key uint32, dom *pd) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byKey[key]
	if s == nil || s.window == nil || s.pd != dom {
		return false
	}
	t.unbind(s.window)
	return true
}

// binding is a bind that has been posted.
type binding struct {
	window *mw
	region *mr
	dom    *pd // of the queue pair
	key    uint32
	wr     fabric.BindWR
}

// Bind posts a binding. What is wrong with its range, rights or domains is told by the completion.
func (q *qp) Bind(w fabric.MW, wr fabric.BindWR) (uint32, error) {
	const op = "bind MW"
	b := &binding{dom: q.pd, wr: wr}
	b.window, _ = w.(*mw)
	b.region, _ = wr.MR.(*mr)
	switch {
	case b.window == nil || b.window.pd.dev != q.dev:
		return 0, invalid(op, "no window of this device")
	case wr.Length > 0 && (b.region == nil || b.region.dev != q.dev):
		return 0, invalid(op, "no MR of this device")
	case wr.Access&^remoteRights != 0:
		return 0, invalid(op, "access rights %#x are not for windows", uint32(wr.Access&^remoteRights))
	case wr.Flags&^(fabric.Signaled|fabric.Fence) != 0:
		return 0, invalid(op, "flags %#x are not for a bind", uint32(wr.Flags))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s := qpState(q.state.Load())
	if err := q.usable(op, s); err != nil {
		return 0, err
	}
	switch {
	case s == qpInit:
		return 0, failed(op+": not connected", fabric.ErrQPState)
	case q.sq.full():
		return 0, failed(op, fabric.ErrQueueFull)
	}
	t := &q.dev.f.keys
	t.mu.Lock()
	if b.window.dead {
		t.mu.Unlock()
		return 0, failed(op+": window", fabric.ErrClosed)
	}
	b.key = t.reserve()
	b.window.key = b.key
	t.mu.Unlock()
	slot := q.sq.next()
	slot.wr = fabric.SendWR{ID: wr.ID, Flags: wr.Flags, Opcode: opBind}
	slot.sges, slot.length = slot.sges[:0], 0
	slot.bind = b
	slot.due = q.dev.faults.due()
	q.sq.push()
	q.wake()
	return b.key, nil
}

// apply executes the bind in the engine.
func (b *binding) apply() fabric.Status {
	w, m := b.window, b.region
	t := &w.pd.dev.f.keys
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.dead || w.pd != b.dom {
		return fabric.StatusMWBind
	}
	if b.wr.Length == 0 {
		delete(t.byKey, b.key) // the key that was handed out opens nothing
		t.unbind(w)
		return fabric.StatusSuccess
	}
	mem, inside := m.span.slice(b.wr.Addr, b.wr.Length)
	writes := b.wr.Access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0
	if m.closed || !inside || m.span.pd != b.dom || m.span.access&fabric.WindowBind == 0 ||
		writes && m.span.access&fabric.LocalWrite == 0 {
		return fabric.StatusMWBind
	}
	m.refs++ // before the lock is given up, so that the region stays
	t.unbind(w)
	if w.dead {
		m.refs--
		return fabric.StatusMWBind
	}
	w.span = &span{
		gate: newGate(), key: b.key, pd: b.dom, region: m, window: w,
		mem: mem, base: b.wr.Addr, access: b.wr.Access,
	}
	t.byKey[b.key] = w.span
	return fabric.StatusSuccess
}

// cancel takes back the key of a bind that failed or was flushed: the window stays bound as it was.
func (b *binding) cancel() {
	w := b.window
	t := &w.pd.dev.f.keys
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
