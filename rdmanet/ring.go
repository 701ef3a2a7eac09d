package rdmanet

import "github.com/godat/godat/udat"

// memory is part of a registered memory region. Its size is a power of two.
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

// privatePriv are the privileges of this end. All memory is registered with them.
const privatePriv = udat.PrivLocalRead | udat.PrivLocalWrite

// ring is the memory of one direction of a stream. Byte n of the stream is at offset n modulo the
// size. The first memory is small and may be replaced once by a larger one. The old memory then
// keeps the bytes that are in it, until they are no longer needed.
type ring struct {
	cur  memory
	old  memory // holds the bytes before the position in from; its lmr is nil if there is no old memory
	from uint64
}

// at returns the memory that contains byte p of the stream, and how many of the n bytes from p on
// are contiguous in it.
func (r *ring) at(p, n uint64) (memory, uint64) {
	m := r.cur
	if r.old.lmr != nil && p < r.from {
		m, n = r.old, min(n, r.from-p)
	}
	return m, min(n, m.size-p&(m.size-1))
}

// grow makes m the memory for byte p of the stream and for the bytes after p.
func (r *ring) grow(m memory, p uint64) {
	r.old, r.cur, r.from = r.cur, m, p
}

// shed drops the bytes of the stream before byte p. If the old memory then has no bytes left, shed
// removes the old memory and returns its region. Otherwise it returns nil.
func (r *ring) shed(p uint64) (l *udat.LMR) {
	if r.old.lmr != nil && p >= r.from {
		l, r.old = r.old.lmr, memory{}
	}
	return l
}
