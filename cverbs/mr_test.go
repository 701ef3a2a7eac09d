//go:build linux && cgo

package cverbs

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestRegMR(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	_, err := pd.RegMR(nil, 0)
	assert.ErrorContains(t, err, "length is 0")
	_, err = pd.RegMR(make([]byte, 8), AccessRemoteWrite)
	assert.ErrorContains(t, err, "LOCAL_WRITE")
	_, err = pd.RegMRAddr(0x1000, 4096, AccessLocalWrite)
	isErr(t, err, syscall.EFAULT)
	assert.ErrorContains(t, err, "not mapped")
	_, err = pd.RegMRAddr(0x1000, -1, 0)
	assert.ErrorContains(t, err, "length is -1")
	_, err = pd.RegDMABuf(-1, 0, 4096, 0, AccessLocalWrite)
	assert.Assert(t, err != nil && !strings.Contains(err.Error(), "on-demand"), "%v", err)

	buf := make([]byte, 10000)
	m := closing[*MR](t)(pd.RegMR(buf[1:], AccessLocalWrite))
	assert.Equal(t, m.Len(), 9999)
	assert.Assert(t, m.LKey() != 0)
	isErr(t, pd.Close(), ErrInUse)
	assert.ErrorContains(t, pd.Close(), "in use by 1 MR")

	mem, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	defer syscall.Munmap(mem)
	m2 := closing[*MR](t)(pd.RegMR(mem, AccessLocalWrite)) // memory outside the Go heap can be passed as a slice, too
	m3 := closing[*MR](t)(pd.RegMRAddr(uintptr(m2.Addr()), 8192, AccessLocalWrite))
	assert.Equal(t, m3.Addr(), m2.Addr())
	assert.NilError(t, m3.Close())
	assert.NilError(t, m2.Close())
}

// TestRegMRIOVA: for peers and segments the region starts at the chosen address.
func TestRegMRIOVA(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	mem, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	defer syscall.Munmap(mem)
	_, err = pd.RegMRIOVA(nil, 0, 0)
	assert.ErrorContains(t, err, "ibv_reg_mr_iova: invalid argument (length is 0")
	const iova = 1<<40 + 0x10000
	m, err := pd.RegMRIOVA(mem, iova, AccessLocalWrite|AccessRemoteWrite)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		t.Skip("the device has no IOVA of one's choice")
	}
	assert.NilError(t, err)
	assert.Equal(t, m.Addr(), uint64(iova))
	assert.NilError(t, m.Close())
}

// TestRegDMABuf: a descriptor that is not a dmabuf is refused, the error names the cause, and
// nothing is left behind. The test has not run with a driver that supports dmabufs.
func TestRegDMABuf(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	_, err := pd.RegDMABuf(0, 0, 0, 0, 0)
	assert.ErrorContains(t, err, "ibv_reg_dmabuf_mr: invalid argument (length is 0")
	_, err = pd.RegDMABuf(0, 0, 4096, 0, AccessRemoteWrite)
	assert.ErrorContains(t, err, "LOCAL_WRITE")
	none, err := os.Open("/dev/null")
	assert.NilError(t, err)
	defer none.Close()
	_, err = pd.RegDMABuf(int(none.Fd()), 0, 4096, 0, AccessLocalWrite)
	var e *Error
	assert.Assert(t, errors.As(err, &e))
	assert.Assert(t, e.Errno == syscall.EOPNOTSUPP || e.Errno == syscall.EINVAL || e.Errno == syscall.EBADF, "%v", err)
	assert.Assert(t, !strings.Contains(e.Advice, "on-demand"), "nobody has asked for it: %v", err)
	t.Log(err)
}

// TestOnDemand: a device without on-demand paging refuses a region with AccessOnDemand, and the
// error says so. On a device with on-demand paging an RDMA write reaches memory that nobody has
// touched, and pages that were returned to the kernel. Each write begins at the start of a page,
// because soft-RoCE of Linux 7.2 stores other writes there, too.
func TestOnDemand(t *testing.T) {
	ctx := openRoCE(t)
	a, b := newPair(t, ctx)
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	mem := mmap(t, 1<<20)
	m, err := b.pd.RegMR(mem, AccessLocalWrite|AccessRemoteWrite|AccessOnDemand)
	t.Logf("on-demand paging: %#x, RC %v; registration: %v", attr.ODPGeneralCaps, attr.ODPRCCaps, err)
	if attr.ODPGeneralCaps&ODPSupport == 0 {
		if err != nil { // the loop device accepts the flag, because it pins nothing
			assert.ErrorContains(t, err, "a device has it that reports ODPSupport")
			return
		}
		assert.NilError(t, m.Close())
		return
	}
	assert.NilError(t, err)
	defer m.Close()
	assert.Assert(t, attr.ODPRCCaps&ODPSupportWrite != 0)
	for round := range 2 {
		for _, at := range []int{0, 1<<20 - 1<<16} {
			fill(a.buf[:60000], byte(round+at))
			a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: m.Addr() + uint64(at), RKey: m.RKey()}, a.sge(0, 60000))
			a.sent()
			assert.Assert(t, bytes.Equal(mem[at:at+60000], a.buf[:60000]), "round %d, offset %d", round, at)
		}
		assert.NilError(t, unix.Madvise(mem, unix.MADV_DONTNEED))
		assert.Equal(t, mem[0], byte(0))
	}
}

// A region that the program no longer references stays registered and pinned.
func TestForgottenMR(t *testing.T) {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	func() {
		_, err := pd.RegMR(make([]byte, 100), AccessLocalWrite)
		assert.NilError(t, err)
	}()
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	isErr(t, pd.Close(), ErrInUse)
	for _, m := range openRegions() {
		if m.pd == pd {
			assert.NilError(t, m.Close())
		}
	}
}

func openRegions() (all []*MR) {
	mrs.mu.Lock()
	defer mrs.mu.Unlock()
	for _, m := range mrs.m {
		all = append(all, m)
	}
	return all
}
