//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"math"
	"runtime"
	"syscall"
	"unsafe"
)

// Rereg changes the memory, the domain or the access rights of a registered region, or several of
// them. It is faster than closing the region and registering another. The keys may change, so read
// LKey and RKey again. During Rereg no other call and no work request may use the region, and no
// window may be bound to it.
//
// After an error the region is unchanged, unless the device failed in the middle of the change. In
// that case the error's text says that the region is lost. A lost region has keys of 0 and can only
// be closed. Its old and its new memory stay pinned until then. Errors: EINVAL if change selects
// nothing, if Buf is empty, for remote write or atomic access without AccessLocalWrite, for a
// domain of another context, and for a region of RegDM, RegDMABuf, AllocNullMR or ImportMR;
// ErrNotSupported.
//
// Implements: ibv_rereg_mr.
func (m *MR) Rereg(change Rereg) error {
	m = orZero(m)
	const verb = "ibv_rereg_mr"
	const known = ReregTranslation | ReregPD | ReregAccess
	if change.Flags == 0 || change.Flags&^known != 0 {
		return badArg(verb, "flags %#x: they must be some of %#x", uint32(change.Flags), uint32(known))
	}
	moves := change.Flags&ReregTranslation != 0
	if moves && len(change.Buf) == 0 {
		return badArg(verb, "length is 0: it must be at least 1")
	}
	if change.Flags&ReregAccess == 0 {
		change.Access = 0
	} else if err := accessError(verb, change.Access); err != nil {
		return err
	}
	if !m.life.enter() {
		return ErrClosed
	}
	defer m.life.leave()
	if m.fixed != "" {
		return badArg(verb, "a region of %s cannot be changed", m.fixed)
	}
	if change.Flags&ReregPD == 0 {
		return m.rereg(change, nil)
	}
	pd := orZero(change.PD)
	if err := pd.life.hold(kindMR); err != nil {
		return err
	}
	if pd.ctx != m.pd.ctx {
		pd.life.drop(kindMR)
		return badArg(verb, "the new protection domain is of another device context")
	}
	err := m.rereg(change, pd)
	if err != nil {
		pd.life.drop(kindMR)
		return err
	}
	m.life.swapParent(&m.pd.life, &pd.life)
	m.pd = pd
	return nil
}

func (m *MR) rereg(change Rereg, pd *PD) error {
	var c *C.struct_ibv_pd
	var addr uintptr
	var pin runtime.Pinner
	buf := change.Buf
	if change.Flags&ReregTranslation == 0 {
		buf = nil
	} else {
		pin.Pin(unsafe.SliceData(buf))
		addr = uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	}
	if pd != nil {
		c = pd.c
	}
	rc, err := C.cv_rereg_mr(m.c, C.int(change.Flags), c, C.uintptr_t(addr), C.size_t(len(buf)), C.int(change.Access))
	switch {
	case rc == 0 || rc == C.IBV_REREG_MR_ERR_DO_FORK_OLD: // changed; after DO_FORK_OLD a forked child lacks the old memory
		if buf != nil {
			m.pin.Unpin()
			m.pin, m.addr, m.len = pin, uint64(addr), len(buf)
		}
		m.lkey, m.rkey = uint32(m.c.lkey), uint32(m.c.rkey)
		return nil
	case rc == C.IBV_REREG_MR_ERR_INPUT || rc == C.IBV_REREG_MR_ERR_DONT_FORK_NEW:
		pin.Unpin()
		return pinError("ibv_rereg_mr", errnoOf(err), len(buf))
	case err == nil || err == syscall.EOPNOTSUPP: // some drivers without the call set no errno
		pin.Unpin()
		return &Error{Verb: "ibv_rereg_mr", Errno: syscall.EOPNOTSUPP, Advice: "the region is as it was"}
	}
	if buf != nil {
		m.pin.Pin(unsafe.SliceData(buf))
		pin.Unpin()
	}
	m.lkey, m.rkey = 0, 0
	e := pinError("ibv_rereg_mr", errnoOf(err), len(buf)).(*Error)
	if e.Advice != "" {
		e.Advice += "; "
	}
	e.Advice += "the region is lost: close it"
	return e
}

// AllocNullMR creates a region without memory. Writes to it are dropped, and reads from it return
// zeroes. A segment with the region's LKey may have any address and length. Errors:
// ErrNotSupported.
//
// Implements: ibv_alloc_null_mr.
func (p *PD) AllocNullMR() (*MR, error) {
	p = orZero(p)
	m := &MR{fixed: "no memory"}
	err := m.create("ibv_alloc_null_mr", p, 0, 0, func() (*C.struct_ibv_mr, error) {
		v, err := C.ibv_alloc_null_mr(p.c)
		return v, err
	}, &p.life)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// AdviseMR asks the device to fetch pages before they are used. sges are parts of regions that were
// registered with AccessOnDemand in this domain. The regions work without this advice, too. Errors:
// ErrNotSupported without on-demand paging; EINVAL without segments; EFAULT or ENOENT for a segment
// that is not in a region of the domain, and for a page that is not mapped.
//
// Implements: ibv_advise_mr.
func (p *PD) AdviseMR(advice MRAdvice, flags AdviseFlags, sges []SGE) error {
	p = orZero(p)
	const verb = "ibv_advise_mr"
	if len(sges) == 0 || len(sges) > math.MaxInt32 {
		return badArg(verb, "%d segments: it takes 1 to %d", len(sges), math.MaxInt32)
	}
	if !p.life.enter() {
		return ErrClosed
	}
	defer p.life.leave()
	sg, n := cSGE(sges)
	rc, err := C.ibv_advise_mr(p.c, uint32(advice), C.uint32_t(flags), sg, n)
	return rcError(verb, rc, err)
}
