package udat

import (
	"math"

	"github.com/godat/godat/udat/internal/fabric"
)

// keyOf returns the context of the region of the first segment that is not empty, or 0 if all are
// empty.
func keyOf(iov []LMRTriplet) uint32 {
	for i := range iov {
		if iov[i].SegmentLength > 0 {
			return iov[i].LMR.lkey
		}
	}
	return 0
}

// appendSegments checks the local segments of iov. It appends them to sges, but not more than limit
// bytes in total. The result length is the number of bytes appended. The result total is the number
// of bytes in iov.
func appendSegments(sges []fabric.SGE, op string, iov []LMRTriplet, need MemPriv, pz *PZ,
	limit uint64) (_ []fabric.SGE, length, total uint64, err error) {
	for i := range iov {
		t := &iov[i]
		if t.SegmentLength == 0 {
			continue
		}
		if !t.valid(need, pz) {
			return nil, 0, 0, t.check(op, i, need, pz)
		}
		total += t.SegmentLength
		n := min(t.SegmentLength, limit-length)
		if n == 0 {
			continue
		}
		if n > math.MaxUint32 {
			return nil, 0, 0, fail(op, InvalidParameter, SubArg3, "segment %d has %d bytes, the limit is %d", i, n,
				uint32(math.MaxUint32))
		}
		length += n
		sges = append(sges, fabric.SGE{Addr: t.VirtualAddress, Length: uint32(n), LKey: t.LMR.lkey})
	}
	return sges, length, total, nil
}

// sge converts a segment that is valid and shorter than 4 GiB.
func (t *LMRTriplet) sge() fabric.SGE {
	return fabric.SGE{Addr: t.VirtualAddress, Length: uint32(t.SegmentLength), LKey: t.LMR.lkey}
}

// valid reports whether the method check would return nil.
func (t *LMRTriplet) valid(need MemPriv, pz *PZ) bool {
	return t.LMR.serves(need, pz) && t.within()
}

// serves reports whether a post that needs this privilege, on an endpoint in this zone, may use the
// region.
func (l *LMR) serves(need MemPriv, pz *PZ) bool {
	return l != nil && l.obj.live.Load() && l.pz == pz && l.priv&need != 0
}

// The method within reports whether the segment is inside its region.
func (t *LMRTriplet) within() bool {
	l := t.LMR
	off := t.VirtualAddress - l.addr
	return off <= uint64(len(l.buf)) && t.SegmentLength <= uint64(len(l.buf))-off
}

// check returns the error of segment i, or nil if the segment is valid.
func (t *LMRTriplet) check(op string, i int, need MemPriv, pz *PZ) error {
	l := t.LMR
	if l == nil || !l.obj.live.Load() {
		return fail(op, PrivilegesViolation, SubNone, "segment %d: %w", i, badHandle("", HandleLMR, l.object()))
	}
	if err := t.inside(op, SubArg3, i); err != nil {
		return err
	}
	if l.pz != pz {
		return fail(op, ProtectionViolation, subtypeFor(need, SubProtectionRead, SubProtectionWrite),
			"segment %d: its region is in another protection zone", i)
	}
	if l.priv&need == 0 {
		return fail(op, PrivilegesViolation, subtypeFor(need, SubPrivilegesRead, SubPrivilegesWrite),
			"segment %d: its region has privileges %v and lacks %v", i, l.priv, need)
	}
	return nil
}

// The method inside returns an error if the segment is not inside its region.
func (t *LMRTriplet) inside(op string, arg Subtype, i int) error {
	size := uint64(len(t.LMR.buf))
	if off := t.VirtualAddress - t.LMR.addr; off > size || t.SegmentLength > size-off {
		return fail(op, InvalidParameter, arg, "segment %d: [0x%x, +%d) is not inside its region [0x%x, +%d)", i,
			t.VirtualAddress, t.SegmentLength, t.LMR.addr, size)
	}
	return nil
}

// subtypeFor returns forRead if need is PrivLocalRead, else forWrite.
func subtypeFor(need MemPriv, forRead, forWrite Subtype) Subtype {
	if need == PrivLocalRead {
		return forRead
	}
	return forWrite
}

// batchMax is the largest number of work requests posted with one doorbell.
const batchMax = 64

// reserve makes room for work requests of iov segments each: for one request if n is 1, else for
// the largest batch. The largest batch is batchMax requests, or the capacity of the queue that f
// belongs to, if that is less. The queue's lock is held, and the batch is empty.
func (b *batch[WR]) reserve(n, iov int, f *inflight) {
	if b.wrs == nil {
		b.wrs, b.sges = b.oneWR[:0], b.oneIOV[:0]
	}
	if n > 1 {
		n = min(batchMax, int(f.limit)+spareEntries)
	}
	if n > cap(b.wrs) || n*iov > cap(b.sges) {
		b.wrs, b.sges = make([]WR, 0, n), make([]fabric.SGE, 0, n*iov)
	}
}
