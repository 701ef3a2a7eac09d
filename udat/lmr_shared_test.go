//go:build linux

package udat_test

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestLMRShared registers memory that processes share.
func TestLMRShared(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		fd, err := unix.MemfdCreate("godat", 0)
		assert.NilError(t, err)
		defer unix.Close(fd)
		const size = 3 * 4096
		assert.NilError(t, unix.Ftruncate(fd, size))
		buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		assert.NilError(t, err)
		defer unix.Munmap(buf)
		view, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		assert.NilError(t, err)
		defer unix.Munmap(view)

		id := udat.SharedMemoryID{3: 1, 39: 7} // with zeros before and after
		l, err := b.ia.CreateLMRShared(b.pz, buf[100:], id, udat.PrivAll)
		assert.NilError(t, err)
		p, err := l.Query()
		assert.NilError(t, err)
		assert.Equal(t, p.MemType, udat.MemSharedVirtual)
		assert.Equal(t, p.Region.SharedMemoryID, id)
		assert.Equal(t, &p.Region.Memory[0], &buf[100])
		want := a.put(0, 100, 9)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), 1, l.RMRTriplet(50, 100), 0))
		completion(t, a.request, 1)
		assert.DeepEqual(t, view[150:250], want)
		assert.NilError(t, l.Free())

		private, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		assert.NilError(t, err)
		defer unix.Munmap(private)
		for _, bad := range [][]byte{make([]byte, 100), private, private[4096:4097]} {
			_, err = b.ia.CreateLMRShared(b.pz, bad, id, udat.PrivAll)
			assert.ErrorIs(t, err, udat.ErrInvalidState)
		}
		rule.Proves(t, "LMR-CREATE-02")
	})
}
