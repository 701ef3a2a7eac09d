//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// SRQ is a shared receive queue.
type SRQ struct {
	life   life
	gate   gate
	c      *C.struct_ibv_srq
	pd     *PD
	h      uintptr
	maxSGE uint32
	alone  serial // enabled in a parent domain
}

// CreateSRQ creates a shared receive queue. Errors: EINVAL for sizes of 0 or beyond
// DeviceAttr.MaxSRQWR and MaxSRQSGE; ErrNotSupported with SRQInit.XRCD on a device without XRC.
//
// Implements: ibv_create_srq, ibv_create_srq_ex.
func (p *PD) CreateSRQ(init SRQInit) (*SRQ, error) {
	p = orZero(p)
	verb := "ibv_create_srq"
	if init.MaxWR == 0 || init.MaxSGE == 0 {
		return nil, badArg(verb, "MaxWR %d and MaxSGE %d must be at least 1", init.MaxWR, init.MaxSGE)
	}
	if (init.XRCD == nil) != (init.CQ == nil) {
		return nil, badArg("ibv_create_srq_ex", "XRCD and CQ: only one of them is nil")
	}
	s := &SRQ{pd: p, alone: serial{on: p.td != nil}}
	parents := []*life{&p.life}
	if init.XRCD != nil {
		parents = append(parents, &init.XRCD.life, &init.CQ.life)
	}
	if err := s.life.begin(kindSRQ, parents...); err != nil {
		return nil, err
	}
	if init.XRCD != nil && (init.XRCD.ctx != p.ctx || init.CQ.ctx != p.ctx) {
		s.life.abort()
		return nil, badArg("ibv_create_srq_ex", "domain, XRCD and completion queue are not of one device context")
	}
	s.h = byHandle.srqs.add(s)
	a := C.struct_ibv_srq_init_attr{attr: C.struct_ibv_srq_attr{max_wr: C.uint32_t(init.MaxWR),
		max_sge: C.uint32_t(init.MaxSGE)}}
	C.cv_set_srq_handle(&a, C.uintptr_t(s.h))
	var v *C.struct_ibv_srq
	var err error
	if init.XRCD == nil {
		v, err = C.ibv_create_srq(p.c, &a)
	} else {
		verb = "ibv_create_srq_ex"
		v, err = C.cv_create_xrc_srq(p.c, &a, init.XRCD.c, init.CQ.c)
	}
	if v == nil {
		byHandle.srqs.remove(s.h)
		s.life.abort()
		return nil, createSRQError(verb, errnoOf(err), &init)
	}
	s.c, s.maxSGE = v, max(uint32(a.attr.max_sge), init.MaxSGE)
	s.gate.open(unsafe.Pointer(v))
	s.life.open()
	return s, nil
}

func createSRQError(verb string, errno syscall.Errno, init *SRQInit) error {
	e := pinError(verb, errno, 0).(*Error)
	if errno == syscall.EINVAL {
		e.Advice = fmt.Sprintf("MaxWR %d or MaxSGE %d may be beyond the device's limit (DeviceAttr.MaxSRQWR, MaxSRQSGE)",
			init.MaxWR, init.MaxSGE)
	}
	return e
}

// Num returns the queue's number. Senders of extended reliable connections set SendWR.RemoteQPN to
// this number. Errors: ErrNotSupported on a device without XRC.
//
// Implements: ibv_get_srq_num.
func (s *SRQ) Num() (uint32, error) {
	s = orZero(s)
	if !s.life.enter() {
		return 0, ErrClosed
	}
	defer s.life.leave()
	var n C.uint32_t
	rc, err := C.ibv_get_srq_num(s.c, &n)
	return uint32(n), rcError("ibv_get_srq_num", rc, err)
}

// Resize changes the capacity in receives. Errors: EINVAL if more than maxWR receives are posted;
// ErrNotSupported if the device cannot resize.
//
// Implements: ibv_modify_srq.
func (s *SRQ) Resize(maxWR uint32) error {
	s = orZero(s)
	return s.modify(C.struct_ibv_srq_attr{max_wr: C.uint32_t(maxWR)}, C.IBV_SRQ_MAX_WR)
}

// SetLimit arms one AsyncSRQLimitReached event, which comes when fewer than limit receives are
// left. A limit of 0 disarms the event. If fewer than limit receives are left already, some devices
// report the event at once and others do not.
//
// Implements: ibv_modify_srq.
func (s *SRQ) SetLimit(limit uint32) error {
	s = orZero(s)
	return s.modify(C.struct_ibv_srq_attr{srq_limit: C.uint32_t(limit)}, C.IBV_SRQ_LIMIT)
}

func (s *SRQ) modify(a C.struct_ibv_srq_attr, mask C.int) error {
	if !s.life.enter() {
		return ErrClosed
	}
	defer s.life.leave()
	rc, err := C.ibv_modify_srq(s.c, &a, mask)
	return rcError("ibv_modify_srq", rc, err)
}

// Query returns the granted sizes and the current limit.
//
// Implements: ibv_query_srq.
func (s *SRQ) Query() (SRQAttr, error) {
	s = orZero(s)
	if !s.life.enter() {
		return SRQAttr{}, ErrClosed
	}
	defer s.life.leave()
	var a C.struct_ibv_srq_attr
	if rc, err := C.ibv_query_srq(s.c, &a); rc != 0 {
		return SRQAttr{}, rcError("ibv_query_srq", rc, err)
	}
	return SRQAttr{MaxWR: uint32(a.max_wr), MaxSGE: uint32(a.max_sge), Limit: uint32(a.srq_limit)}, nil
}

// Close destroys the queue. Errors: ErrInUse while a queue pair uses it.
//
// Implements: ibv_destroy_srq.
func (s *SRQ) Close() error {
	s = orZero(s)
	return s.life.close(nil, func() error {
		return s.gate.destroy(func() error {
			if rc, err := C.ibv_destroy_srq(s.c); rc != 0 {
				return rcError("ibv_destroy_srq", rc, err)
			}
			byHandle.srqs.remove(s.h)
			return nil
		})
	})
}
