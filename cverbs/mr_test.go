//go:build linux && cgo

package cverbs

import (
	"runtime"
	"syscall"
	"testing"
	"time"

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

	buf := make([]byte, 10000)
	m := closing[*MR](t)(pd.RegMR(buf[1:], AccessLocalWrite))
	assert.Equal(t, m.Len(), 9999)
	assert.Assert(t, m.LKey() != 0)
	isErr(t, pd.Close(), ErrInUse)
	assert.ErrorContains(t, pd.Close(), "in use by 1 MR")

	mem, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	assert.NilError(t, err)
	defer syscall.Munmap(mem)
	m2 := closing[*MR](t)(pd.RegMR(mem, AccessLocalWrite)) // not Go's memory: a slice of it will do too
	m3 := closing[*MR](t)(pd.RegMRAddr(uintptr(m2.Addr()), 8192, AccessLocalWrite))
	assert.Equal(t, m3.Addr(), m2.Addr())
	assert.NilError(t, m3.Close())
	assert.NilError(t, m2.Close())
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
