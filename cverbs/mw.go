//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_bind_mw
// #cgo nocallback cv_bind_mw
import "C"

import (
	"sync"
	"syscall"
)

// MW is a memory window: a separate remote key for a part of a region. Work requests grant and
// revoke the key.
type MW struct {
	life life
	c    *C.struct_ibv_mw
	pd   *PD
	mu   sync.Mutex // serializes binds, because each derives its key from the previous key
	rkey uint32
	mr   *MR // the region of the latest bind
	typ  MWType
}

// AllocMW creates an unbound window. Errors: ErrNotSupported if the device has no windows of that
// type.
//
// Implements: ibv_alloc_mw.
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	p = orZero(p)
	if typ != MWType1 && typ != MWType2 {
		return nil, badArg("ibv_alloc_mw", "type %d is neither MWType1 nor MWType2", typ)
	}
	w := &MW{pd: p, typ: typ}
	return made(w, &w.life, kindMW, "ibv_alloc_mw", &w.c, func() (*C.struct_ibv_mw, error) {
		v, err := C.ibv_alloc_mw(p.c, uint32(typ))
		if v != nil {
			w.rkey = uint32(v.rkey)
		}
		return v, err
	}, &p.life)
}

// Type returns the window's type.
//
// Extension.
func (w *MW) Type() MWType { return orZero(w).typ }

// RKey returns the key of the latest bind that was posted.
//
// Extension.
func (w *MW) RKey() uint32 {
	w = orZero(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rkey
}

// Close frees the window and removes its binding.
//
// Implements: ibv_dealloc_mw.
func (w *MW) Close() error {
	w = orZero(w)
	return w.life.close(nil, func() error { return rcError("ibv_dealloc_mw", C.cv_dealloc_mw(w.c), nil) })
}

// BindMW posts a bind of a window to part of a region, and returns the window's new key. The peer
// may use the key once the bind has completed. A bind with Length 0 removes the binding of a type 1
// window. Its wr.MR may be nil if the window was bound before. A type 2 window must be invalidated
// before it is bound again, by OpLocalInv or by the peer's OpSendWithInv. After a bind that was
// flushed, soft-RoCE may refuse the window's next bind with WCMWBindErr; allocate another window
// then.
//
// Errors: EINVAL for a range outside the region, and if the queue pair is not RC, UC or XRC_SEND,
// or not in RTS, SQD, SQE or ERR; EPERM if the window, the region and the queue pair are not of one
// protection domain.
//
// Implements: ibv_bind_mw, ibv_inc_rkey, ibv_post_send, ibv_wr_bind_mw.
func (q *QP) BindMW(mw *MW, wr BindWR) (rkey uint32, err error) {
	q = orZero(q)
	const verb = "ibv_bind_mw"
	switch {
	case mw == nil:
		return 0, badArg(verb, "mw is nil")
	case wr.Flags&^(SendFence|SendSignaled) != 0:
		return 0, badArg(verb, "flags %v: only FENCE and SIGNALED apply to a bind", wr.Flags)
	case wr.Length == 0 && mw.typ == MWType2:
		return 0, badArg(verb, "length is 0: a type 2 window is invalidated, not bound to nothing")
	case !mw.pd.same(q.pd):
		return 0, &Error{Verb: verb, Errno: syscall.EPERM,
			Advice: "window and queue pair are of different protection domains"}
	}
	if q.ops != 0 && q.ops&WithBindMW == 0 {
		return 0, badArg(verb, "BIND_MW is not among the SendOps of the queue pair")
	}
	if !q.life.enter() {
		return 0, ErrClosed
	}
	defer q.life.leave()
	if q.typ != QPTypeRC && q.typ != QPTypeUC && q.typ != QPTypeXRCSend {
		return 0, badArg(verb, "a queue pair of type %v binds no windows", q.typ)
	}
	if !mw.life.enter() {
		return 0, ErrClosed
	}
	defer mw.life.leave()
	mw.mu.Lock()
	defer mw.mu.Unlock()
	mr := wr.MR
	if mr == nil && wr.Length == 0 {
		mr = mw.mr // drivers read the region's key for an unbind, too
	}
	if mr == nil {
		return 0, badArg(verb, "MR is nil")
	}
	if !mr.life.enter() {
		return 0, ErrClosed
	}
	defer mr.life.leave()
	if !mr.pd.same(mw.pd) {
		return 0, &Error{Verb: verb, Errno: syscall.EPERM, Advice: "window and region are of different protection domains"}
	}
	base, size := mr.Addr(), uint64(mr.Len())
	if wr.Length == 0 {
		wr.Addr, wr.Access = base, 0
	}
	if wr.Addr < base || wr.Addr-base > size || wr.Length > size-(wr.Addr-base) {
		return 0, badArg(verb, "%d bytes at %#x are not inside the region of %d bytes at %#x", wr.Length, wr.Addr, size, base)
	}
	var key C.uint32_t
	rc := C.cv_bind_mw(q.c, mw.c, C.uint64_t(wr.ID), C.uint32_t(wr.Flags), mr.c, C.uint64_t(wr.Addr),
		C.uint64_t(wr.Length), C.uint32_t(wr.Access), C.int(cbool(q.ops&WithBindMW != 0)), &key)
	switch {
	case rc == C.CV_BAD_STATE:
		return 0, q.stateError(verb, "BindMW")
	case rc != 0:
		return 0, rcError(verb, rc, nil)
	}
	mw.rkey, mw.mr = uint32(key), mr
	return mw.rkey, nil
}
