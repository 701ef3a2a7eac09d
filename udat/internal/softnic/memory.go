package softnic

import (
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

const (
	remoteRights = fabric.RemoteWrite | fabric.RemoteRead | fabric.RemoteAtomic
	allRights    = fabric.LocalWrite | remoteRights | fabric.WindowBind
)

const pageSize = 4096

type pd struct {
	object
	dev *Device
}

// AllocPD allocates a protection domain.
func (d *Device) AllocPD() (fabric.PD, error) {
	if err := d.admit("alloc PD", PDs); err != nil {
		return nil, err
	}
	return &pd{dev: d}, nil
}

func (p *pd) Close() error {
	if err := p.dev.retire("free PD", &p.object); err != nil {
		return err
	}
	p.dev.release(PDs)
	return nil
}

type mr struct {
	object // refs counts the windows bound to the region; guarded by the key table's lock, not by Adapter.Mu
	span   *span
	dev    *Device
}

// RegMR registers buf. The region has one key, which is both its local and its remote key.
func (p *pd) RegMR(buf []byte, access fabric.Access) (fabric.MR, error) {
	const op = "register MR"
	hw := p.dev.HW
	switch {
	case len(buf) == 0:
		return nil, Invalid(op, "length 0")
	case uint64(len(buf)) > hw.Attr.MaxMRSize:
		return nil, Invalid(op, "length %d is above the limit %d", len(buf), hw.Attr.MaxMRSize)
	case access&^allRights != 0:
		return nil, Invalid(op, "unknown access rights %#x", uint32(access&^allRights))
	}
	if err := p.dev.admit(op, MRs, &p.object); err != nil {
		return nil, err
	}
	if access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0 {
		access |= fabric.LocalWrite
	}
	m := &mr{dev: p.dev}
	m.span = &span{gate: newGate(), pd: p, region: m, mem: buf, base: addrOf(buf), access: access}
	if m.span.remote = m.span.base; p.dev.Opts.HideAddresses {
		m.span.remote = random()>>2&^(pageSize-1) | m.span.base&(atomicSize-1) // words stay aligned
	}
	hw.keys.mu.Lock()
	defer hw.keys.mu.Unlock()
	m.span.key = hw.keys.reserve()
	hw.keys.byKey[m.span.key] = m.span
	return m, nil
}

func addrOf(buf []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) }

func (m *mr) LKey() uint32 { return m.span.key }
func (m *mr) RKey() uint32 { return m.span.key }

func (m *mr) RemoteAddr() uint64 { return m.span.remote }

// Close deregisters the region. It returns ErrInUse while a window is bound to it.
func (m *mr) Close() error {
	const op = "deregister MR"
	t := &m.dev.HW.keys
	t.mu.Lock()
	switch {
	case m.closed:
		t.mu.Unlock()
		return Failed(op, fabric.ErrClosed)
	case m.refs > 0:
		t.mu.Unlock()
		return Failed(op+": a window is bound to it", fabric.ErrInUse)
	}
	m.closed = true
	delete(t.byKey, m.span.key)
	t.mu.Unlock()
	m.span.shutAndWait()
	m.dev.release(MRs, &m.span.pd.object)
	return nil
}

const atomicSize = 8

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
