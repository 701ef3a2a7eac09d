package softnic

import "github.com/godat/godat/udat/internal/fabric"

// segments returns the segments that a work request names: sges[first:first+n]. It returns an error
// if n is greater than limit, if the segments are not all in sges, or if one of them is empty.
func segments(op string, sges []fabric.SGE, first, n uint32, limit int) ([]fabric.SGE, error) {
	if int64(n) > int64(limit) {
		return nil, Invalid(op, "%d segments are above the limit %d", n, limit)
	}
	if uint64(first)+uint64(n) > uint64(len(sges)) {
		return nil, Invalid(op, "segments %d to %d are not in the %d given", first, uint64(first)+uint64(n), len(sges))
	}
	list := sges[first : first+n]
	for i := range list {
		if list[i].Length == 0 {
			return nil, Invalid(op, "segment %d is empty, which means 2 GiB to some devices", i)
		}
	}
	return list, nil
}

// total returns the number of bytes that sges describe.
func total(sges []fabric.SGE) uint64 {
	var n uint64
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}
