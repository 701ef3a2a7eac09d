package rdmanet

import (
	"strconv"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestBatchParts: a read or write of more than 128 MiB is split into contiguous operations of 128
// MiB, also beyond 4 GiB. The memory is never touched.
func TestBatchParts(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("no such region")
	}
	const part = 128 << 20
	size := 5 << (strconv.IntSize/2 - 2) // 5 GiB
	size -= 3
	buf, err := syscall.Mmap(-1, 0, size, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skipf("no address space: %v", err)
	}
	defer syscall.Munmap(buf)
	c := &Conn{pool: &dispatchers{adapter: &adapter{maxRDMA: part}}}
	r := &Region{c: c, buf: buf}
	const base = 1 << 40
	for _, at := range []int{0, 1, size - 2*part} {
		for _, n := range []int{0, 1, part - 1, part, part + 1, 2 * part, size - at} {
			b := c.NewBatch()
			remote := Remote{udat.RMRTriplet{TargetAddress: base, SegmentLength: uint64(n), RMRContext: 7}}
			b.Read(r, at, remote)
			b.Write(remote, r, at)
			assert.NilError(t, b.err)
			parts := (n + part - 1) / part
			assert.Equal(t, b.Len(), 2*parts, "%d bytes", n)
			for i, o := range b.ops {
				k := i % parts
				assert.Equal(t, o.remote, udat.RMRTriplet{
					TargetAddress: base + uint64(k)*part, SegmentLength: uint64(min(part, n-k*part)), RMRContext: 7,
				})
				assert.Equal(t, o.at, at+k*part)
				assert.Equal(t, o.region, r)
				assert.Equal(t, o.kind, map[bool]udat.OpKind{true: udat.OpRDMARead, false: udat.OpRDMAWrite}[i < parts])
			}
		}
		b := c.NewBatch()
		b.Read(r, at, Remote{udat.RMRTriplet{SegmentLength: uint64(size - at + 1)}})
		assert.ErrorIs(t, b.err, syscall.EINVAL)
		assert.Equal(t, b.Len(), 0)
	}
}
