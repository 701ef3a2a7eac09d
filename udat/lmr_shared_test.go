//go:build linux

package udat_test

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/hostmem"
	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
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

// TestHugeRegions: the length of a region has 64 bits in every call that makes regions.
func TestHugeRegions(t *testing.T) {
	if hostmem.Limit() < 1<<32 {
		t.Skip("this process may not use 4 GiB")
	}
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		buf, err := unix.Mmap(-1, 0, 1<<32, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Munmap(buf)
		shared, err := e.ia.CreateLMRShared(e.pz, buf, udat.SharedMemoryID{1}, udat.PrivAll)
		assert.NilError(t, err)
		local, err := e.ia.CreateLMR(e.pz, buf, udat.PrivAll)
		assert.NilError(t, err)
		from, err := e.ia.CreateLMRFromLMR(e.pz, local, udat.PrivAll)
		assert.NilError(t, err)
		for _, l := range []*udat.LMR{shared, local, from} {
			p, err := l.Query()
			assert.NilError(t, err)
			assert.Equal(t, p.Length, uint64(1<<32))
		}
		for _, l := range []*udat.LMR{from, local, shared} {
			assert.NilError(t, l.Free())
		}
	})
}

// mistakes makes calls with arguments that cannot make a region.
func mistakes(t *testing.T, ia *udat.IA, pz *udat.PZ) {
	t.Helper()
	_, err := ia.CreateLMR(pz, nil, udat.PrivAll)
	assert.ErrorIs(t, err, udat.ErrInvalidParameter)
	_, err = ia.CreateLMR(pz, make([]byte, 8), 1<<30)
	refused(t, err, udat.InvalidParameter, udat.SubArg6)
	_, err = ia.CreateLMR(nil, make([]byte, 8), udat.PrivAll)
	refused(t, err, udat.InvalidHandle, udat.SubHandlePZ)
	_, err = ia.CreateLMRShared(pz, make([]byte, 8), udat.SharedMemoryID{}, udat.PrivAll)
	assert.ErrorIs(t, err, udat.ErrInvalidState)
}

// TestLMRErrorsInSoftware provokes each error on a software device that can hold no more regions.
func TestLMRErrorsInSoftware(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		e.nic().Exhaust(softnic.MRs, 1)
		mistakes(t, e.ia, e.pz) // takes no place
		_, err := e.ia.AllocLMR(e.pz, 8, udat.PrivAll)
		refused(t, err, udat.InsufficientResources, udat.SubResourceMemoryRegion)
		rule.Proves(t, "LMR-CREATE-09")
	})
}

// TestLMREachError provokes each error of the calls that make regions; TestMemlock does the same on
// devices.
func TestLMREachError(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		ia := open(t, dev, onFabric(func(a *fabric.Attr) { a.MaxMR = 2 }))
		pz, err := ia.CreatePZ()
		assert.NilError(t, err)
		for range 2 {
			mistakes(t, ia, pz) // takes no place
			_, err = ia.AllocLMR(pz, int(udat.DeviceAttr(ia).MaxMRSize)+1, udat.PrivAll)
			refused(t, err, udat.InvalidParameter, udat.SubArg4)
			_, err = ia.AllocLMR(pz, 8, udat.PrivAll)
			assert.NilError(t, err)
		}
		_, err = ia.AllocLMR(pz, 8, udat.PrivAll)
		refused(t, err, udat.InsufficientResources, udat.SubResourceMemoryRegion)
		rule.Proves(t, "LMR-CREATE-09")
	})
}
