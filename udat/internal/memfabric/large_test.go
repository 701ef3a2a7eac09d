//go:build !race

package memfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestBeyond4GiB: every operation works beyond the first 4 GiB of a region, and does not touch the
// place that an offset of 32 bits would name. The test is left out with the race detector, which
// would need memory for the whole region.
func TestBeyond4GiB(t *testing.T) {
	const beyond = 1<<32 + 4096 // also where a segment crosses 4 GiB
	f := New()
	a := newEnd(t, f, endOptions{})
	b := newEnd(t, f, endOptions{bytes: 1<<32 + 3*4096})
	join(t, a, b)
	for _, off := range []int{1<<32 - 64, beyond} {
		fill(a.mem[:128], uint32(off))
		b.recv(1, b.at(off+256, 64), b.at(off+512, 64))
		a.send(2, a.at(0, 128))
		a.completion(2, fabric.StatusSuccess)
		b.completion(1, fabric.StatusSuccess)
		assert.DeepEqual(t, b.mem[off+256:off+256+64], a.mem[:64])
		assert.DeepEqual(t, b.mem[off+512:off+512+64], a.mem[64:128])
		a.remote(3, fabric.OpWrite, b.at(off, 0), a.at(0, 128))
		a.completion(3, fabric.StatusSuccess)
		assert.DeepEqual(t, b.mem[off:off+128], a.mem[:128])
		a.remote(4, fabric.OpRead, b.at(off, 0), a.at(1024, 128))
		a.completion(4, fabric.StatusSuccess)
		assert.DeepEqual(t, a.mem[1024:1024+128], a.mem[:128])
		store(b.mem[off+200:], 1<<40+7)
		a.remote(5, fabric.OpFetchAdd, b.at(off+200, 0), a.at(2048, 8))
		a.completion(5, fabric.StatusSuccess)
		assert.Equal(t, load(a.mem[2048:]), uint64(1<<40+7))
		b.send(6, b.at(off, 128)) // as a source
		a.recv(7, a.at(512, 128))
		b.completion(6, fabric.StatusSuccess)
		a.completion(7, fabric.StatusSuccess)
		assert.DeepEqual(t, a.mem[512:512+128], a.mem[:128])

		w := b.window()
		at := b.bind(8, w, off, 1024, fabric.RemoteWrite)
		b.completion(8, fabric.StatusSuccess)
		a.remote(9, fabric.OpWrite, fabric.SGE{Addr: at.Addr + 1024 - 8, LKey: at.LKey}, a.at(0, 8))
		a.completion(9, fabric.StatusSuccess)
		assert.DeepEqual(t, b.mem[off+1024-8:off+1024], a.mem[:8])
	}
	for _, c := range b.mem[:4096+2048] { // where the offsets would be without their upper half
		assert.Equal(t, c, byte(0))
	}
	// A window of more than 4 GiB gives access to its whole length, and to no more.
	w := b.window()
	key, err := b.qp.Bind(w, fabric.BindWR{ID: 1, Flags: fabric.Signaled, MR: b.mr, Addr: b.at(0, 0).Addr, Length: beyond,
		Access: fabric.RemoteWrite})
	assert.NilError(t, err)
	b.completion(1, fabric.StatusSuccess)
	a.remote(2, fabric.OpWrite, fabric.SGE{Addr: b.at(beyond-8, 0).Addr, LKey: key}, a.at(0, 8))
	a.completion(2, fabric.StatusSuccess)
	a.remote(3, fabric.OpWrite, fabric.SGE{Addr: b.at(beyond-7, 0).Addr, LKey: key}, a.at(0, 8))
	a.completion(3, fabric.StatusRemoteAccess)
}

// TestLargeMessage: a message of 128 MiB with many segments at both ends arrives complete.
func TestLargeMessage(t *testing.T) {
	const size = 128 << 20
	f := New()
	a, b := newEnd(t, f, endOptions{bytes: size}), newEnd(t, f, endOptions{bytes: size})
	join(t, a, b)
	for i := range len(a.mem) / 4096 { // each page its own
		fill(a.mem[i*4096:i*4096+8], uint32(i))
	}
	b.recv(1, b.at(0, size/2+12345), b.at(size/2+12345, size/2-12345))
	a.send(2, a.at(0, 8), a.at(8, size-8))
	a.completion(2, fabric.StatusSuccess)
	assert.Equal(t, b.completion(1, fabric.StatusSuccess).ByteLen, uint32(size))
	for i := range len(a.mem) / 4096 {
		assert.Equal(t, load(b.mem[i*4096:]), load(a.mem[i*4096:]), "page %d", i)
	}
}
