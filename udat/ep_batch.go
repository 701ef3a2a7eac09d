package udat

import "github.com/godat/godat/udat/internal/fabric"

// batchMax is the largest number of work requests posted with one doorbell.
const batchMax = 64

// reserve makes room for n work requests of iov segments each, as far as the queue of f takes them.
// The queue's lock is held, and no work request waits to be posted.
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
