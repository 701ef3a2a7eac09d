package rdmanet

import "github.com/godat/godat/udat"

// memory is part of a registered region, of a size that is a power of two.
type memory struct {
	lmr  *udat.LMR
	base int
	size uint64
}

func (m memory) bytes(at, n uint64) []byte {
	off := uint64(m.base) + at&(m.size-1)
	return m.lmr.Bytes()[off : off+n]
}

func (m memory) triplet(at, n uint64) udat.LMRTriplet {
	return m.lmr.Triplet(m.base+int(at&(m.size-1)), int(n))
}

// privatePriv is what this end may do with all memory.
const privatePriv = udat.PrivLocalRead | udat.PrivLocalWrite

// ring is the memory of one direction of a stream: byte n lies at n modulo its size. It begins
// small and may be replaced once by a larger one: the bytes before position from are then in old
// until they have been used.
type ring struct {
	cur  memory
	old  memory // lmr is nil: none
	from uint64
}

// at returns the memory of byte p, and how many of the n bytes from p on lie there in one piece.
func (r *ring) at(p, n uint64) (memory, uint64) {
	m := r.cur
	if r.old.lmr != nil && p < r.from {
		m, n = r.old, min(n, r.from-p)
	}
	return m, min(n, m.size-p&(m.size-1))
}

// grow makes m the memory from byte p on.
func (r *ring) grow(m memory, p uint64) {
	r.old, r.cur, r.from = r.cur, m, p
}

// shed returns the old memory, to be freed, if all bytes before p have been used; else nil.
func (r *ring) shed(p uint64) (l *udat.LMR) {
	if r.old.lmr != nil && p >= r.from {
		l, r.old = r.old.lmr, memory{}
	}
	return l
}
