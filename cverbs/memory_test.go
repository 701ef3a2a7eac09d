//go:build linux && cgo

package cverbs

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// orSkip skips the test if the device does not support a verb. The error must be ErrNotSupported
// and name the verb.
func orSkip[T any](t testing.TB, verb string) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if errors.Is(err, ErrNotSupported) {
			assert.ErrorContains(t, err, "cverbs: "+verb+": ")
			t.Skip(err)
		}
		assert.NilError(t, err)
		return v
	}
}

func mmap(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	t.Cleanup(func() { syscall.Munmap(mem) })
	return mem
}

// Rereg changes the memory, the rights and the domain of a region, each alone and all at once. The
// old memory, rights and domain are then refused.
func TestRereg(t *testing.T) {
	ctx := openRoCE(t)
	a, b := newPair(t, ctx)
	bufs := [2][]byte{mmap(t, 8192), mmap(t, 4096)}
	m := closing[*MR](t)(b.pd.RegMR(bufs[0], AccessLocalWrite|AccessRemoteWrite))
	write := func(want WCStatus, buf []byte) {
		t.Helper()
		fill(a.buf[:100], byte(len(buf)/7))
		a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: m.Addr() + 8, RKey: m.RKey()}, a.sge(0, 100))
		assert.Equal(t, poll(t, a.scq, 1)[0].Status, want)
		assert.Equal(t, bytes.Equal(buf[8:108], a.buf[:100]), want == WCSuccess)
		if want != WCSuccess {
			for _, e := range []*end{a, b} {
				assert.NilError(t, e.qp.ToReset())
				assert.NilError(t, e.qp.ToInit(1, AccessRemoteWrite))
			}
			join(t, a, b)
		}
	}
	err := m.Rereg(Rereg{Flags: ReregTranslation, Buf: bufs[1], Access: AccessRemoteRead}) // Access is ignored
	if errors.Is(err, ErrNotSupported) {
		assert.ErrorContains(t, err, "ibv_rereg_mr")
		assert.ErrorContains(t, err, "the region is as it was")
		assert.Equal(t, m.Len(), 8192)
		write(WCSuccess, bufs[0])
		t.Skip(err)
	}
	assert.NilError(t, err)
	assert.Equal(t, m.Len(), 4096)
	write(WCSuccess, bufs[1])

	assert.NilError(t, m.Rereg(Rereg{Flags: ReregAccess, Access: AccessLocalWrite}))
	clear(bufs[1])
	write(WCRemAccessErr, bufs[1])

	isErr(t, b.pd.Close(), ErrInUse)
	assert.NilError(t, m.Rereg(Rereg{Flags: ReregAccess | ReregPD, Access: AccessLocalWrite | AccessRemoteWrite,
		PD: a.pd}))
	assert.Equal(t, a.pd.life.children(kindMR), 2)
	assert.Equal(t, b.pd.life.children(kindMR), 1)
	write(WCRemAccessErr, bufs[1]) // the queue pair is of the other domain

	all := Rereg{Flags: ReregTranslation | ReregPD | ReregAccess, Buf: bufs[0], PD: b.pd,
		Access: AccessLocalWrite | AccessRemoteWrite}
	assert.NilError(t, m.Rereg(all))
	assert.Equal(t, a.pd.life.children(kindMR), 1)
	write(WCSuccess, bufs[0])
}

// If Rereg refuses a change, the region is unchanged. If the device has lost the region, the error
// says so; the region has no keys and can be closed.
func TestReregRefused(t *testing.T) {
	ctx, other := openDevice(t), openDevice(t)
	pd, foreign := closing[*PD](t)(ctx.AllocPD()), closing[*PD](t)(other.AllocPD())
	closed, err := ctx.AllocPD()
	assert.NilError(t, err)
	assert.NilError(t, closed.Close())
	m := closing[*MR](t)(pd.RegMR(make([]byte, 100), AccessLocalWrite))
	key := m.RKey()
	for _, c := range []struct {
		change Rereg
		want   string
	}{
		{Rereg{}, "flags 0x0: they must be some of 0x7"},
		{Rereg{Flags: 8 | ReregAccess}, "flags 0xc"},
		{Rereg{Flags: ReregTranslation}, "length is 0"},
		{Rereg{Flags: ReregAccess, Access: AccessRemoteWrite}, "LOCAL_WRITE"},
		{Rereg{Flags: ReregPD, PD: foreign}, "of another device context"},
		{Rereg{Flags: ReregPD, PD: closed}, "closed"},
		{Rereg{Flags: ReregPD}, "closed"},
	} {
		assert.ErrorContains(t, m.Rereg(c.change), c.want)
		assert.Equal(t, m.RKey(), key)
	}
	assert.Equal(t, foreign.life.children(kindMR), 0)

	gone, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	addr := gone
	assert.NilError(t, syscall.Munmap(gone))
	second := closing[*PD](t)(ctx.AllocPD())
	err = m.Rereg(Rereg{Flags: ReregTranslation | ReregPD, Buf: addr, PD: second})
	assert.NilError(t, second.Close(), "the refused region is not of the new domain")
	if errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	}
	isErr(t, err, syscall.EFAULT)
	assert.ErrorContains(t, err, "the region is lost: close it")
	assert.Equal(t, m.RKey()|m.LKey(), uint32(0))
	assert.NilError(t, m.Close())
}

// TestReregFixed: a region that is not memory of this process cannot change, and the error says
// why.
func TestReregFixed(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	dm := closing[*DM](t)(orSkip[*DM](t, "ibv_alloc_dm")(ctx.AllocDM(4096, 0)), nil)
	memory := closing[*MR](t)(pd.RegDM(dm, 0, 4096, AccessLocalWrite))
	null := closing[*MR](t)(orSkip[*MR](t, "ibv_alloc_null_mr")(pd.AllocNullMR()), nil)
	for m, want := range map[*MR]string{memory: "a region of device memory", null: "a region of no memory"} {
		key := m.RKey()
		err := m.Rereg(Rereg{Flags: ReregTranslation, Buf: make([]byte, 4096)})
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, want+" cannot be changed")
		assert.Equal(t, m.RKey(), key)
	}
}

// Data that is received into a region without memory is dropped, and data that is sent from the
// region is zeroes, at any address.
func TestNullMR(t *testing.T) {
	a, b := newPair(t, openRoCE(t))
	null := closing[*MR](t)(orSkip[*MR](t, "ibv_alloc_null_mr")(b.pd.AllocNullMR()), nil)
	assert.Equal(t, null.Len(), 0)
	nothing := func(at uint64, n uint32) SGE { return SGE{Addr: at, Length: n, LKey: null.LKey()} }

	fill(a.buf[:300], 1)
	b.recv(1, nothing(1<<40, 100), b.sge(0, 100), nothing(0, 100))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 300))
	a.sent()
	assert.Equal(t, b.received().ByteLen, uint32(300))
	assert.Assert(t, bytes.Equal(b.buf[:100], a.buf[100:200]))

	a.recv(2, a.sge(0, 300))
	want := append(append(make([]byte, 100), b.buf[:100]...), make([]byte, 50)...)
	b.send(SendWR{Opcode: OpSend}, nothing(7, 100), b.sge(0, 100), nothing(1<<50, 50))
	b.sent()
	assert.Equal(t, a.received().ByteLen, uint32(250))
	assert.Assert(t, bytes.Equal(a.buf[:250], want))
}

// Write and Read copy to and from device memory, and RDMA accesses the memory. Ranges outside the
// memory are refused.
func TestDM(t *testing.T) {
	ctx := openRoCE(t)
	a, b := newPair(t, ctx)
	const size = 4096
	dm := closing[*DM](t)(orSkip[*DM](t, "ibv_alloc_dm")(ctx.AllocDM(size, 6)), nil)
	assert.Equal(t, dm.Len(), size)
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	assert.Assert(t, attr.MaxDMSize >= size)

	text := fill(make([]byte, 1000), 1)
	assert.NilError(t, dm.Write(size-1000, text))
	back := make([]byte, 1000)
	assert.NilError(t, dm.Read(size-1000, back))
	assert.Assert(t, bytes.Equal(text, back))
	assert.NilError(t, dm.Write(size, nil))
	for _, c := range []struct {
		offset uint64
		n      int
	}{{size - 999, 1000}, {size, 1}, {size + 1, 0}, {1<<64 - 1, 2}, {0, size + 1}, {1 << 32, 1}} {
		assert.ErrorContains(t, dm.Write(c.offset, make([]byte, c.n)), "not inside the device memory of 4096 bytes")
		assert.ErrorContains(t, dm.Read(c.offset, make([]byte, c.n)), "not inside")
		_, err := b.pd.RegDM(dm, c.offset, max(c.n, 1), 0)
		assert.ErrorContains(t, err, "not inside")
	}
	dm.len = -1 // of imported memory only the device knows the size
	assert.ErrorContains(t, dm.Write(1<<32, text), "ibv_memcpy_to_dm")
	assert.ErrorContains(t, dm.Read(1<<32, text), "ibv_memcpy_from_dm")
	dm.len = size
	for _, n := range []int{0, -1} {
		_, err = ctx.AllocDM(n, 0)
		assert.ErrorContains(t, err, "it must be at least 1")
		_, err = b.pd.RegDM(dm, 0, n, 0)
		assert.ErrorContains(t, err, "it must be at least 1")
	}
	_, err = b.pd.RegDM(dm, 0, 8, AccessRemoteWrite)
	assert.ErrorContains(t, err, "LOCAL_WRITE")
	_, err = ctx.AllocDM(1<<40, 0)
	isErr(t, err, syscall.ENOMEM)

	mr := closing[*MR](t)(b.pd.RegDM(dm, 1024, 2048, AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead))
	assert.Equal(t, mr.Addr(), uint64(0))
	assert.ErrorContains(t, dm.Close(), "in use by 1 MR")
	remote := SendWR{Opcode: OpRDMAWrite, RemoteAddr: 2000, RKey: mr.RKey()}
	fill(a.buf[:48], 9)
	a.send(remote, a.sge(0, 48))
	a.sent()
	assert.NilError(t, dm.Read(3024, back[:48]))
	assert.Assert(t, bytes.Equal(back[:48], a.buf[:48]))
	remote.Opcode = OpRDMARead
	a.send(remote, a.sge(100, 48))
	a.sent()
	assert.Assert(t, bytes.Equal(a.buf[100:148], a.buf[:48]))
	a.send(remote, a.sge(0, 49)) // one byte more than the region has
	assert.Equal(t, poll(t, a.scq, 1)[0].Status, WCRemAccessErr)
}

// AdviseMR works on devices with on-demand paging. On other devices it returns ErrNotSupported.
func TestAdviseMR(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	assert.ErrorContains(t, pd.AdviseMR(AdvicePrefetch, 0, nil), "0 segments: it takes 1")
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	mem := mmap(t, 1<<20)
	access := AccessLocalWrite | AccessOnDemand
	if attr.ODPGeneralCaps&ODPSupport == 0 {
		access = AccessLocalWrite
	}
	m := closing[*MR](t)(pd.RegMR(mem, access))
	all := []SGE{{Addr: m.Addr(), Length: 1 << 19, LKey: m.LKey()},
		{Addr: m.Addr() + 1<<19, Length: 1 << 19, LKey: m.LKey()}}
	err = pd.AdviseMR(AdvicePrefetchWrite, AdviseFlush, all)
	if attr.ODPGeneralCaps&ODPSupport == 0 {
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "ibv_advise_mr")
		t.Skip(err)
	}
	orSkip[int](t, "ibv_advise_mr")(0, err)
	all[1].Length = 1 << 20 // beyond the region's end
	assert.Assert(t, pd.AdviseMR(AdvicePrefetch, AdviseFlush, all) != nil)
}

// TestHugePages: a region of huge pages works like any other region. The virtual machine of the
// tests reserves huge pages.
func TestHugePages(t *testing.T) {
	const size = 2 << 20
	far, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if err != nil {
		_, none := os.Stat("/proc/sys/vm/nr_hugepages") // the User Mode Linux has none
		assert.Assert(t, os.Getenv("GODAT_VM") == "" || none != nil, "%v", err)
		t.Skipf("no huge pages are free (sysctl vm.nr_hugepages=8): %v", err)
	}
	t.Cleanup(func() { unix.Munmap(far) })
	a, b := newPair(t, openDevice(t))
	mr := closing[*MR](t)(b.pd.RegMR(far, allAccess|AccessHugeTLB))
	fill(a.buf[:8192], 3)
	at := mr.Addr() + size - 8192
	a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: at, RKey: mr.RKey()}, a.sge(0, 8192))
	a.sent()
	assert.Assert(t, bytes.Equal(far[size-8192:], a.buf[:8192]))
}
