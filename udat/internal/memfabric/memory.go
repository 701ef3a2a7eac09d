package memfabric

import (
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

const (
	remoteRights = fabric.RemoteWrite | fabric.RemoteRead | fabric.RemoteAtomic
	allRights    = fabric.LocalWrite | remoteRights | fabric.WindowBind
)

type pd struct {
	object
	dev *Device
}

// AllocPD makes a protection domain.
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
	object // refs: the windows bound to it, guarded by the key table's lock, unlike closed
	span   *span
	dev    *Device
}

// RegMR registers buf. The region has one key, which is the local and the remote one.
func (p *pd) RegMR(buf []byte, access fabric.Access) (fabric.MR, error) {
	const op = "register MR"
	f := p.dev.f
	switch {
	case len(buf) == 0:
		return nil, invalid(op, "length 0")
	case uint64(len(buf)) > f.attr.MaxMRSize:
		return nil, invalid(op, "length %d is above the limit %d", len(buf), f.attr.MaxMRSize)
	case access&^allRights != 0:
		return nil, invalid(op, "unknown access rights %#x", uint32(access&^allRights))
	}
	if err := p.dev.admit(op, MRs, &p.object); err != nil {
		return nil, err
	}
	if access&(fabric.RemoteWrite|fabric.RemoteAtomic) != 0 {
		access |= fabric.LocalWrite
	}
	m := &mr{dev: p.dev}
	m.span = &span{gate: newGate(), pd: p, region: m, mem: buf, base: addrOf(buf), access: access}
	f.keys.mu.Lock()
	defer f.keys.mu.Unlock()
	m.span.key = f.keys.reserve()
	f.keys.byKey[m.span.key] = m.span
	return m, nil
}

func addrOf(buf []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) }

func (m *mr) LKey() uint32 { return m.span.key }
func (m *mr) RKey() uint32 { return m.span.key }

// Close deregisters; a region with a bound window is in use.
func (m *mr) Close() error {
	const op = "deregister MR"
	t := &m.dev.f.keys
	t.mu.Lock()
	switch {
	case m.closed:
		t.mu.Unlock()
		return failed(op, fabric.ErrClosed)
	case m.refs > 0:
		t.mu.Unlock()
		return failed(op+": a window is bound to it", fabric.ErrInUse)
	}
	m.closed = true
	delete(t.byKey, m.span.key)
	t.mu.Unlock()
	m.span.shutAndWait()
	m.dev.release(MRs, &m.span.pd.object)
	return nil
}

// pieces are ranges of pinned memory that make up one end of a transfer.
type pieces struct {
	bufs [][]byte
	held []*span
}

// add pins n bytes at addr under a key, which may be a window's where windows is set.
func (p *pieces) add(t *keyTable, dom *pd, key uint32, addr, n uint64, need fabric.Access, windows bool) bool {
	s := t.enter(key)
	if s == nil {
		return false
	}
	buf, inside := s.slice(addr, n)
	if !inside || s.window != nil && !windows || s.pd != dom || s.access&need != need {
		s.leave()
		return false
	}
	p.bufs = append(p.bufs, buf)
	p.held = append(p.held, s)
	return true
}

// gather pins the first limit bytes of sges and ignores the rest.
func (p *pieces) gather(t *keyTable, dom *pd, sges []fabric.SGE, limit uint64, need fabric.Access) bool {
	for _, sge := range sges {
		n := min(uint64(sge.Length), limit)
		if n == 0 {
			continue
		}
		if !p.add(t, dom, sge.LKey, sge.Addr, n, need, false) {
			return false
		}
		limit -= n
	}
	return true
}

// release unpins everything.
func (p *pieces) release() {
	for i, s := range p.held {
		s.leave()
		p.held[i] = nil
	}
	clear(p.bufs)
	p.bufs, p.held = p.bufs[:0], p.held[:0]
}

// total is the number of bytes that sges describe.
func total(sges []fabric.SGE) uint64 {
	var n uint64
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// transfer copies src to dst, which is at least as long.
func transfer(dst, src [][]byte) {
	var d []byte
	for _, s := range src {
		for len(s) > 0 {
			for len(d) == 0 {
				d, dst = dst[0], dst[1:]
			}
			n := min(len(d), len(s))
			move(d[:n], s[:n])
			d, s = d[n:], s[n:]
		}
	}
}
