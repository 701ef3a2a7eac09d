//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"
)

// MR is a registered memory region.
type MR struct {
	life life
	c    *C.struct_ibv_mr
	pd   *PD
	pin  runtime.Pinner
	addr uint64 // address of the first byte in work requests
	len  int
	lkey uint32
	rkey uint32
	h    uintptr

	imported bool   // the region belongs to another process, which deregisters it
	fixed    string // if not empty, Rereg cannot change the region, for this reason
}

// mrs keeps open regions reachable, because the device may write to a region that the program no
// longer references.
var mrs handles[MR]

// RegMR registers buf and pins it until the region is closed; buf may be outside the Go heap.
// Errors: EINVAL for an empty buf, and for remote write or atomic access without AccessLocalWrite;
// ENOMEM, with the locked-memory limit in its text.
//
// Implements: ibv_reg_mr, ibv_reg_mr_iova2.
func (p *PD) RegMR(buf []byte, access AccessFlags) (*MR, error) {
	p = orZero(p)
	return registerPinned(buf, func(m *MR, addr uintptr) error { return m.regAt(p, addr, len(buf), access) })
}

// registerPinned pins buf and calls register. If register fails, it unpins buf.
func registerPinned(buf []byte, register func(m *MR, addr uintptr) error) (*MR, error) {
	m := &MR{}
	if len(buf) > 0 {
		m.pin.Pin(unsafe.SliceData(buf))
	}
	if err := register(m, uintptr(unsafe.Pointer(unsafe.SliceData(buf)))); err != nil {
		m.pin.Unpin()
		return nil, err
	}
	return m, nil
}

// RegMRIOVA registers buf as RegMR does, but under another address: in SGEs and for the peer the
// region starts at iova, not at the address of buf. The two addresses must be equal modulo the page
// size.
//
// Implements: ibv_reg_mr_iova.
func (p *PD) RegMRIOVA(buf []byte, iova uint64, access AccessFlags) (*MR, error) {
	p = orZero(p)
	return registerPinned(buf, func(m *MR, addr uintptr) error {
		return m.reg("ibv_reg_mr_iova", p, iova, len(buf), access, func() (*C.struct_ibv_mr, error) {
			v, err := C.cv_reg_mr_iova(p.c, C.uintptr_t(addr), C.size_t(len(buf)), C.uint64_t(iova), C.uint32_t(access))
			return v, err
		})
	})
}

// RegDMABuf registers n bytes of the dmabuf fd, starting at offset. A dmabuf is for example memory
// of a GPU. In work requests the region starts at the address iova, which must be equal to offset
// modulo the page size. fd may be closed afterwards. Errors: EOPNOTSUPP if the driver does not
// support dmabufs; EBADF or EINVAL if fd is not a dmabuf.
//
// Implements: ibv_reg_dmabuf_mr.
func (p *PD) RegDMABuf(fd int, offset uint64, n int, iova uint64, access AccessFlags) (*MR, error) {
	p = orZero(p)
	if err := fdError("ibv_reg_dmabuf_mr", fd); err != nil {
		return nil, err
	}
	m := &MR{fixed: "a dmabuf"}
	err := m.reg("ibv_reg_dmabuf_mr", p, iova, n, access, func() (*C.struct_ibv_mr, error) {
		v, err := C.ibv_reg_dmabuf_mr(p.c, C.uint64_t(offset), C.size_t(n), C.uint64_t(iova), C.int(fd), C.int(access))
		return v, err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// RegMRAddr registers n bytes at addr. The memory must not be allocated by Go; use mmap, C or
// shared memory. It must stay mapped until the region is closed.
//
// Implements: ibv_reg_mr.
func (p *PD) RegMRAddr(addr uintptr, n int, access AccessFlags) (*MR, error) {
	p = orZero(p)
	m := &MR{}
	if err := m.regAt(p, addr, n, access); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *MR) regAt(p *PD, addr uintptr, n int, access AccessFlags) error {
	return m.reg("ibv_reg_mr", p, uint64(addr), n, access, func() (*C.struct_ibv_mr, error) {
		v, err := C.cv_reg_mr(p.c, C.uintptr_t(addr), C.size_t(n), C.uint32_t(access))
		return v, err
	})
}

// reg checks the arguments, and registers a region of n bytes that starts at addr in work requests.
func (m *MR) reg(verb string, p *PD, addr uint64, n int, access AccessFlags,
	call func() (*C.struct_ibv_mr, error)) error {
	if n <= 0 {
		return badArg(verb, "length is %d: it must be at least 1", n)
	}
	if err := accessError(verb, access); err != nil {
		return err
	}
	err := m.create(verb, p, addr, n, call, &p.life)
	var e *Error
	if access&AccessOnDemand != 0 && errors.As(err, &e) && (e.Errno == syscall.EINVAL || e.Errno == syscall.EOPNOTSUPP) {
		e.Advice = "on-demand paging: a device has it that reports ODPSupport (DeviceAttr.ODPGeneralCaps)"
	}
	return err
}

func accessError(verb string, access AccessFlags) error {
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0 {
		return badArg(verb, "access %v: remote write and atomics need LOCAL_WRITE", access)
	}
	return nil
}

// create creates a region in the domain p. The parameter parents must contain p.life.
func (m *MR) create(verb string, p *PD, addr uint64, n int, call func() (*C.struct_ibv_mr, error),
	parents ...*life) error {
	if err := m.life.begin(kindMR, parents...); err != nil {
		return err
	}
	v, err := call()
	if v == nil {
		m.life.abort()
		return pinError(verb, errnoOf(err), n)
	}
	m.c, m.pd, m.addr, m.len, m.lkey, m.rkey = v, p, addr, n, uint32(v.lkey), uint32(v.rkey)
	m.h = mrs.add(m)
	m.life.open()
	return nil
}

// LKey returns the local key, for SGE.LKey.
//
// Extension.
func (m *MR) LKey() uint32 { return orZero(m).lkey }

// RKey returns the remote key, for the peer's SendWR.RKey.
//
// Extension.
func (m *MR) RKey() uint32 { return orZero(m).rkey }

// Addr returns the address of the region's first byte, for SGE.Addr and the peer's
// SendWR.RemoteAddr.
//
// Extension.
func (m *MR) Addr() uint64 { return orZero(m).addr }

// Len returns the region's length in bytes.
//
// Extension.
func (m *MR) Len() int { return orZero(m).len }

// Close deregisters the region and unpins its memory. An imported region stays registered for its
// owner. Before Close, wait for the completions of requests that use the region; otherwise they
// fail or flush. Errors: EBUSY or EINVAL if the driver finds a memory window bound to the region;
// the region then stays open.
//
// Implements: ibv_dereg_mr, ibv_unimport_mr.
func (m *MR) Close() error {
	m = orZero(m)
	return m.life.close(nil, func() error {
		if m.imported {
			C.ibv_unimport_mr(m.c)
		} else if rc, err := C.ibv_dereg_mr(m.c); rc != 0 {
			e := rcError("ibv_dereg_mr", rc, err).(*Error)
			e.Advice = "a memory window may still be bound to the region"
			return e
		}
		mrs.remove(m.h)
		m.pin.Unpin()
		return nil
	})
}
