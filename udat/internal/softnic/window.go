package softnic

import "github.com/godat/godat/udat/internal/fabric"

// mw is a memory window. The key table's lock guards all fields except object.
type mw struct {
	object
	pd   *pd
	key  uint32 // the key of the latest binding
	span *span  // the memory that the window is bound to; nil: not bound
	dead bool
}

// AllocMW allocates an unbound window. A window that is bound can be bound again, and need not be
// invalidated first.
func (p *pd) AllocMW() (fabric.MW, error) {
	if err := p.dev.admit("alloc MW", MWs, &p.object); err != nil {
		return nil, err
	}
	return &mw{pd: p}, nil
}

func (w *mw) RKey() uint32 {
	t := &w.pd.dev.HW.keys
	t.mu.RLock()
	defer t.mu.RUnlock()
	return w.key
}

// Close unbinds the window and frees it.
func (w *mw) Close() error {
	if err := w.pd.dev.retire("free MW", &w.object); err != nil {
		return err
	}
	t := &w.pd.dev.HW.keys
	t.mu.Lock()
	w.dead = true
	t.unbind(w)
	t.mu.Unlock()
	w.pd.dev.release(MWs, &w.pd.object)
	return nil
}

// unbind ends the binding of w, if w is bound. When unbind returns, no transfer uses the memory
// through the window any more. The caller holds t.mu. While unbind waits for transfers, t.mu is
// unlocked.
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

// invalidate unbinds the window with this key. It returns false if the key does not belong to a
// window of the domain dom.
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
