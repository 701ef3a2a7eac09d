//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"math"
	"unsafe"
)

// DM is memory on the device. All processes share DeviceAttr.MaxDMSize bytes. Write and Read copy
// to and from the memory; work requests access the memory through a region of PD.RegDM.
type DM struct {
	life life
	c    *C.struct_ibv_dm
	ctx  *Context
	len  int // -1 for imported memory, whose size is not known

	imported bool // the memory belongs to another process, which frees it
}

// AllocDM allocates n bytes of device memory, at a device address that is a multiple of 1 <<
// logAlign. Errors: ErrNotSupported; EINVAL for n below 1; ENOMEM if less than n bytes of
// DeviceAttr.MaxDMSize are free.
//
// Implements: ibv_alloc_dm.
func (c *Context) AllocDM(n int, logAlign uint32) (*DM, error) {
	c = orZero(c)
	const verb = "ibv_alloc_dm"
	if n < 1 {
		return nil, badArg(verb, "length is %d: it must be at least 1", n)
	}
	return c.newDM(verb, n, func() (*C.struct_ibv_dm, error) {
		attr := C.struct_ibv_alloc_dm_attr{length: C.size_t(n), log_align_req: C.uint32_t(logAlign)}
		v, err := C.ibv_alloc_dm(c.c, &attr)
		return v, err
	})
}

func (c *Context) newDM(verb string, n int, call func() (*C.struct_ibv_dm, error)) (*DM, error) {
	d := &DM{ctx: c, len: n}
	return made(d, &d.life, kindDM, verb, &d.c, call, &c.life)
}

// Len returns the requested size in bytes, or -1 for imported memory.
//
// Extension.
func (d *DM) Len() int { return orZero(d).len }

// Write copies b into the device memory, starting at byte offset. Errors: EINVAL for a range
// outside the memory.
//
// Implements: ibv_memcpy_to_dm.
func (d *DM) Write(offset uint64, b []byte) error {
	d = orZero(d)
	return d.copy("ibv_memcpy_to_dm", offset, b, func(at unsafe.Pointer) (C.int, error) {
		rc, err := C.ibv_memcpy_to_dm(d.c, C.uint64_t(offset), at, C.size_t(len(b)))
		return rc, err
	})
}

// Read fills b from the device memory, starting at byte offset. Errors: as Write.
//
// Implements: ibv_memcpy_from_dm.
func (d *DM) Read(offset uint64, b []byte) error {
	d = orZero(d)
	return d.copy("ibv_memcpy_from_dm", offset, b, func(at unsafe.Pointer) (C.int, error) {
		rc, err := C.ibv_memcpy_from_dm(at, d.c, C.uint64_t(offset), C.size_t(len(b)))
		return rc, err
	})
}

func (d *DM) copy(verb string, offset uint64, b []byte, call func(unsafe.Pointer) (C.int, error)) error {
	if !d.life.enter() {
		return ErrClosed
	}
	defer d.life.leave()
	if err := d.inside(verb, offset, uint64(len(b))); err != nil || len(b) == 0 {
		return err
	}
	rc, err := call(unsafe.Pointer(unsafe.SliceData(b)))
	return rcError(verb, rc, err)
}

// The method inside returns an error for a range that is not within the memory. It does not check
// imported memory, whose size only the device knows.
func (d *DM) inside(verb string, offset, n uint64) error {
	size := uint64(math.MaxUint64)
	if d.len >= 0 {
		size = uint64(d.len)
	}
	if offset > size || n > size-offset {
		return badArg(verb, "%d bytes at offset %d are not inside the device memory of %d bytes", n, offset, size)
	}
	return nil
}

// RegDM registers n bytes of device memory, starting at byte offset. In work requests the region
// starts at address 0, because RegDM adds AccessZeroBased. Errors: EINVAL for a range outside the
// memory; ErrNotSupported.
//
// Implements: ibv_reg_dm_mr.
func (p *PD) RegDM(d *DM, offset uint64, n int, access AccessFlags) (*MR, error) {
	p, d = orZero(p), orZero(d)
	const verb = "ibv_reg_dm_mr"
	if n < 1 {
		return nil, badArg(verb, "length is %d: it must be at least 1", n)
	}
	if err := accessError(verb, access); err != nil {
		return nil, err
	}
	if !d.life.enter() {
		return nil, ErrClosed
	}
	defer d.life.leave()
	if err := d.inside(verb, offset, uint64(n)); err != nil {
		return nil, err
	}
	if p.ctx != d.ctx {
		return nil, badArg(verb, "device memory and protection domain are of different device contexts")
	}
	m := &MR{fixed: "device memory"}
	err := m.create(verb, p, 0, n, func() (*C.struct_ibv_mr, error) {
		v, err := C.ibv_reg_dm_mr(p.c, d.c, C.uint64_t(offset), C.size_t(n), C.uint(access|AccessZeroBased))
		return v, err
	}, &p.life, &d.life)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Close frees the memory. Imported memory stays allocated for its owner. Errors: ErrInUse while a
// region of the memory is open.
//
// Implements: ibv_free_dm, ibv_unimport_dm.
func (d *DM) Close() error {
	d = orZero(d)
	return d.life.close(nil, func() error {
		if d.imported {
			C.ibv_unimport_dm(d.c)
			return nil
		}
		rc, err := C.ibv_free_dm(d.c)
		return rcError("ibv_free_dm", rc, err)
	})
}
