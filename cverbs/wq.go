//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_post_wq_recv
// #cgo nocallback cv_post_wq_recv
import "C"

import (
	"math/bits"
	"unsafe"
)

// WQ is a receive queue that is not part of a queue pair. Several WQs in a table (IndTable) receive
// the packets of one queue pair, and each of them receives the packets of some connections. That
// spreads the work over processors (receive side scaling).
type WQ struct {
	life   life
	gate   gate
	c      *C.struct_ibv_wq
	ctx    *Context
	h      uintptr
	maxSGE uint32
	depth  uint32
	alone  serial // enabled in a parent domain
}

// CreateWQ creates a receive queue in the RESET state. Move it to WQStateReady with Modify. Errors:
// ErrNotSupported; EINVAL for sizes of 0 or beyond the device's limits.
//
// Implements: ibv_create_wq.
func (p *PD) CreateWQ(init WQInit) (*WQ, error) {
	p = orZero(p)
	const verb = "ibv_create_wq"
	switch {
	case init.CQ == nil:
		return nil, badArg(verb, "CQ is nil")
	case init.MaxWR == 0 || init.MaxSGE == 0:
		return nil, badArg(verb, "MaxWR %d and MaxSGE %d must be at least 1", init.MaxWR, init.MaxSGE)
	}
	w := &WQ{ctx: p.ctx, alone: serial{on: p.td != nil}}
	if err := w.life.begin(kindWQ, &p.life, &init.CQ.life); err != nil {
		return nil, err
	}
	if init.CQ.ctx != p.ctx {
		w.life.abort()
		return nil, badArg(verb, "domain and completion queue are not of one device context")
	}
	w.h = byHandle.wqs.add(w)
	wr, sge := C.uint32_t(init.MaxWR), C.uint32_t(init.MaxSGE)
	v, err := C.cv_create_wq(p.c, init.CQ.c, C.uintptr_t(w.h), &wr, &sge, C.uint32_t(init.Flags))
	if v == nil {
		byHandle.wqs.remove(w.h)
		w.life.abort()
		return nil, pinError(verb, errnoOf(err), 0)
	}
	w.c, w.depth, w.maxSGE = v, max(uint32(wr), init.MaxWR), max(uint32(sge), init.MaxSGE)
	w.gate.open(unsafe.Pointer(v))
	w.life.open()
	return w, nil
}

// Num returns the queue's number.
//
// Extension.
func (w *WQ) Num() uint32 {
	w = orZero(w)
	if !w.life.enter() {
		return 0
	}
	defer w.life.leave()
	return uint32(w.c.wq_num)
}

// Modify changes the state or the flags, as attr.Mask selects. The state can change from RESET to
// RDY, from RDY to ERR, and from RDY or ERR to RESET. Errors: EINVAL if the current state does not
// allow the change.
//
// Implements: ibv_modify_wq.
func (w *WQ) Modify(attr WQAttr) error {
	w = orZero(w)
	if !w.life.enter() {
		return ErrClosed
	}
	defer w.life.leave()
	from := WQState(w.c.state)
	a := C.struct_ibv_wq_attr{attr_mask: C.uint32_t(attr.Mask), wq_state: uint32(attr.State),
		curr_wq_state: uint32(attr.CurState), flags: C.uint32_t(attr.Flags), flags_mask: C.uint32_t(attr.FlagsMask)}
	if rc, err := C.ibv_modify_wq(w.c, &a); rc != 0 {
		e := rcError("ibv_modify_wq", rc, err).(*Error)
		e.Advice = wqAdvice(uint32(w.c.wq_num), from, &attr)
		return e
	}
	return nil
}

// PostRecv posts a batch of receive work requests; see QP.PostSend. Errors: EINVAL if the queue is
// in RESET.
//
// Implements: ibv_post_wq_recv.
func (w *WQ) PostRecv(wrs []RecvWR, sges []SGE) (n int, err error) {
	w = orZero(w)
	if len(wrs) == 0 {
		return 0, w.gate.err()
	}
	w.alone.use()
	wr, k := cRecvWR(wrs)
	sg, nsg := cSGE(sges)
	p := C.cv_post_wq_recv(w.gate.c(), wr, k, sg, nsg, C.uint32_t(w.maxSGE))
	switch {
	case p.rc == C.CV_BAD_STATE:
		err = badArg("ibv_post_wq_recv", "PostRecv on WQ %d in RESET: it needs RDY: Modify to RDY first", w.Num())
	case p.rc != 0:
		err = postError("ibv_post_wq_recv", p, wrs[p.n].FirstSGE, wrs[p.n].NumSGE, len(sges), w.maxSGE, w.depth)
	}
	return int(p.n), err
}

// Close destroys the queue. Errors: ErrInUse while a table contains it.
//
// Implements: ibv_destroy_wq.
func (w *WQ) Close() error {
	w = orZero(w)
	return w.life.close(nil, func() error {
		return w.gate.destroy(func() error {
			if rc, err := C.ibv_destroy_wq(w.c); rc != 0 {
				return rcError("ibv_destroy_wq", rc, err)
			}
			byHandle.wqs.remove(w.h)
			return nil
		})
	})
}

// IndTable is a table of receive queues: the hash of a packet chooses an entry.
type IndTable struct {
	life life
	c    *C.struct_ibv_rwq_ind_table
	ctx  *Context
}

// CreateIndTable creates a table with these queues as entries, for QPInit.RSS. The number of queues
// must be a power of two; the same queue may be several entries. Errors: ErrNotSupported; EINVAL if
// the number is not a power of two, or is above DeviceAttr.MaxIndTableSize.
//
// Implements: ibv_create_rwq_ind_table.
func (c *Context) CreateIndTable(queues []*WQ) (*IndTable, error) {
	c = orZero(c)
	const verb = "ibv_create_rwq_ind_table"
	if n := len(queues); n == 0 || n&(n-1) != 0 {
		return nil, badArg(verb, "%d queues: the number must be a power of two", n)
	}
	t := &IndTable{ctx: c}
	parents, all := []*life{&c.life}, make([]*C.struct_ibv_wq, len(queues))
	for i, w := range queues {
		w = orZero(w)
		parents = append(parents, &w.life)
		if w.ctx != nil && w.ctx != c {
			return nil, badArg(verb, "queue %d is of another device context", i)
		}
	}
	return made(t, &t.life, kindIndTable, verb, &t.c, func() (*C.struct_ibv_rwq_ind_table, error) {
		for i, w := range queues {
			all[i] = w.c
		}
		v, err := C.cv_create_ind_table(c.c, C.uint32_t(bits.TrailingZeros(uint(len(all)))), &all[0])
		return v, err
	}, parents...)
}

// Close destroys the table. Errors: ErrInUse while a queue pair uses it.
//
// Implements: ibv_destroy_rwq_ind_table.
func (t *IndTable) Close() error {
	t = orZero(t)
	return t.life.close(nil, func() error {
		rc, err := C.ibv_destroy_rwq_ind_table(t.c)
		return rcError("ibv_destroy_rwq_ind_table", rc, err)
	})
}
