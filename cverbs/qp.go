//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"
)

// QP is a queue pair.
type QP struct {
	gate gate // and cap are what a post reads: first, to lie in one cache line
	cap  QPCap
	life life
	c    *C.struct_ibv_qp
	pd   *PD
	id   *CMID // not nil: made on that id, which drives its states
	h    uintptr
	num  uint32
	typ  QPType
	qkey uint32
}

var qps handles[QP]

// CreateQP creates a queue pair in the RESET state. Completion queues, SRQ and domain must be of
// one device context.
//
// Implements: ibv_create_qp.
func (p *PD) CreateQP(init QPInit) (*QP, error) {
	p = orZero(p)
	const verb = "ibv_create_qp"
	q, attr, err := newQP(verb, p, nil, &init)
	if err != nil {
		return nil, err
	}
	v, err := C.ibv_create_qp(p.c, attr)
	if v == nil {
		q.discard()
		return nil, createQPError(verb, errnoOf(err), &init)
	}
	q.finish(v, attr)
	return q, nil
}

// newQP checks init, references everything that the queue pair uses, and converts init for C.
func newQP(verb string, p *PD, id *CMID, init *QPInit) (*QP, *C.struct_ibv_qp_init_attr, error) {
	if init.Type == 0 {
		init.Type = QPTypeRC
	}
	switch {
	case init.SendCQ == nil:
		return nil, nil, badArg(verb, "SendCQ is nil")
	case init.RecvCQ == nil:
		return nil, nil, badArg(verb, "RecvCQ is nil")
	case init.Cap.MaxSendWR > math.MaxInt32 || init.Cap.MaxRecvWR > math.MaxInt32:
		return nil, nil, badArg(verb, "MaxSendWR %d or MaxRecvWR %d is above %d", init.Cap.MaxSendWR, init.Cap.MaxRecvWR,
			math.MaxInt32)
	}
	q := &QP{pd: p, id: id, typ: init.Type, qkey: init.QKey}
	parents := []*life{&p.life, &init.SendCQ.life}
	if init.RecvCQ != init.SendCQ {
		parents = append(parents, &init.RecvCQ.life)
	}
	if init.SRQ != nil {
		parents = append(parents, &init.SRQ.life)
	}
	if id != nil {
		parents = append(parents, &id.life)
	}
	if err := q.life.begin(kindQP, parents...); err != nil {
		return nil, nil, err
	}
	if init.SendCQ.ctx != p.ctx || init.RecvCQ.ctx != p.ctx || (init.SRQ != nil && init.SRQ.pd.ctx != p.ctx) {
		q.life.abort()
		return nil, nil, badArg(verb, "domain, completion queues and SRQ are not of one device context")
	}
	attr := &C.struct_ibv_qp_init_attr{
		send_cq: init.SendCQ.c, recv_cq: init.RecvCQ.c, cap: init.Cap.c(), qp_type: uint32(init.Type),
	}
	if init.SRQ != nil {
		attr.srq = init.SRQ.c
	}
	if init.SigAll {
		attr.sq_sig_all = 1
	}
	q.h = qps.add(q)
	C.cv_set_qp_handle(attr, C.uintptr_t(q.h))
	return q, attr, nil
}

func (q *QP) finish(v *C.struct_ibv_qp, attr *C.struct_ibv_qp_init_attr) {
	q.c, q.num, q.cap = v, uint32(v.qp_num), goCap(&attr.cap)
	q.gate.open(unsafe.Pointer(v))
	q.life.open()
}

func (q *QP) discard() {
	qps.remove(q.h)
	q.life.abort()
}

func createQPError(verb string, errno syscall.Errno, init *QPInit) error {
	e := pinError(verb, errno, 0).(*Error)
	if errno == syscall.EINVAL {
		e.Advice = fmt.Sprintf("%v with %+v may be beyond the device's limits (DeviceAttr.MaxQPWR, MaxSGE; inline data "+
			"has no attribute)", init.Type, init.Cap)
	}
	return e
}

// Num returns the queue pair number.
//
// Extension.
func (q *QP) Num() uint32 { return orZero(q).num }

// Type returns the transport service.
//
// Extension.
func (q *QP) Type() QPType { return orZero(q).typ }

// Cap returns the sizes that the device granted, at least those requested. With an SRQ the receive
// sizes mean nothing.
//
// Extension.
func (q *QP) Cap() QPCap { return orZero(q).cap }

// Modify changes the attributes that mask selects. Errors: EINVAL for a transition that the state
// does not allow, or if an attribute that it needs is missing.
//
// Implements: ibv_modify_qp.
func (q *QP) Modify(attr QPAttr, mask QPAttrMask) error {
	q = orZero(q)
	if !q.life.enter() {
		return ErrClosed
	}
	defer q.life.leave()
	a := attr.c()
	if rc, err := C.ibv_modify_qp(q.c, &a, C.int(mask)); rc != 0 {
		e := rcError("ibv_modify_qp", rc, err).(*Error)
		e.Advice = fmt.Sprintf("QP %d, attributes %v", q.num, mask)
		if mask&QPAttrState != 0 {
			e.Advice += fmt.Sprintf(", from %v to %v", QPState(q.c.state), attr.State)
		}
		return e
	}
	return nil
}

// Query returns all attributes, with the device's current state.
//
// Implements: ibv_query_qp.
func (q *QP) Query() (QPAttr, error) { return orZero(q).query(1<<21 - 1) }

// State returns the device's current state, which errors may have changed since Modify.
//
// Implements: ibv_query_qp.
func (q *QP) State() (QPState, error) {
	q = orZero(q)
	a, err := q.query(QPAttrState)
	return a.State, err
}

func (q *QP) query(mask QPAttrMask) (QPAttr, error) {
	if !q.life.enter() {
		return QPAttr{}, ErrClosed
	}
	defer q.life.leave()
	var a C.struct_ibv_qp_attr
	var i C.struct_ibv_qp_init_attr
	if rc, err := C.ibv_query_qp(q.c, &a, C.int(mask), &i); rc != 0 {
		return QPAttr{}, rcError("ibv_query_qp", rc, err)
	}
	return goQPAttr(&a), nil
}

// ToInit moves the queue pair from RESET to INIT on a port, with P_Key index 0 and the peers'
// access rights. From then on the queue pair takes receives.
//
// Implements: ibv_modify_qp.
func (q *QP) ToInit(port uint8, access AccessFlags) error {
	q = orZero(q)
	a := QPAttr{State: QPStateInit, Port: port, AccessFlags: access, QKey: q.qkey}
	if q.typ == QPTypeUD {
		return q.Modify(a, QPAttrState|QPAttrPKeyIndex|QPAttrPort|QPAttrQKey)
	}
	return q.Modify(a, QPAttrState|QPAttrPKeyIndex|QPAttrPort|QPAttrAccessFlags)
}

// ToRTR moves the queue pair from INIT to RTR. RC uses AH, PathMTU, DestQPNum, RQPSN,
// MaxDestRDAtomic and MinRNRTimer of attr, UC the first four, UD none.
//
// Implements: ibv_modify_qp.
func (q *QP) ToRTR(attr QPAttr) error {
	q = orZero(q)
	attr.State = QPStateRTR
	mask := QPAttrState
	if q.typ != QPTypeUD {
		mask |= QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN
	}
	if q.typ == QPTypeRC {
		mask |= QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer
	}
	return q.Modify(attr, mask)
}

// ToRTS moves the queue pair from RTR to RTS. RC uses SQPSN, Timeout, RetryCnt, RNRRetry and
// MaxRDAtomic of attr, UC and UD SQPSN.
//
// Implements: ibv_modify_qp.
func (q *QP) ToRTS(attr QPAttr) error {
	q = orZero(q)
	attr.State = QPStateRTS
	mask := QPAttrState | QPAttrSQPSN
	if q.typ == QPTypeRC {
		mask |= QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxRDAtomic
	}
	return q.Modify(attr, mask)
}

// ToError moves the queue pair to ERR: posted requests complete, mostly with WCWRFlushErr. Not
// allowed from RESET.
//
// Implements: ibv_modify_qp.
func (q *QP) ToError() error { return orZero(q).Modify(QPAttr{State: QPStateErr}, QPAttrState) }

// ToReset moves the queue pair to RESET: posted requests are dropped without completions.
//
// Implements: ibv_modify_qp.
func (q *QP) ToReset() error { return orZero(q).Modify(QPAttr{State: QPStateReset}, QPAttrState) }

// Close destroys the queue pair. Posted work requests are dropped; unpolled completions may be
// lost.
//
// Implements: ibv_destroy_qp, rdma_destroy_qp.
func (q *QP) Close() error {
	q = orZero(q)
	return q.life.close(nil, func() error {
		return q.gate.destroy(func() error {
			if q.id != nil {
				q.id.destroyQP()
			} else if rc, err := C.ibv_destroy_qp(q.c); rc != 0 {
				return rcError("ibv_destroy_qp", rc, err)
			}
			qps.remove(q.h)
			return nil
		})
	})
}

func (c QPCap) c() C.struct_ibv_qp_cap {
	return C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(c.MaxSendWR), max_recv_wr: C.uint32_t(c.MaxRecvWR), max_send_sge: C.uint32_t(c.MaxSendSGE),
		max_recv_sge: C.uint32_t(c.MaxRecvSGE), max_inline_data: C.uint32_t(c.MaxInline),
	}
}

func goCap(c *C.struct_ibv_qp_cap) QPCap {
	return QPCap{
		MaxSendWR: uint32(c.max_send_wr), MaxRecvWR: uint32(c.max_recv_wr), MaxSendSGE: uint32(c.max_send_sge),
		MaxRecvSGE: uint32(c.max_recv_sge), MaxInline: uint32(c.max_inline_data),
	}
}

func (a *QPAttr) c() C.struct_ibv_qp_attr {
	return C.struct_ibv_qp_attr{
		qp_state: uint32(a.State), cur_qp_state: uint32(a.CurState), path_mtu: uint32(a.PathMTU),
		path_mig_state: a.PathMigState, qkey: C.uint32_t(a.QKey), rq_psn: C.uint32_t(a.RQPSN), sq_psn: C.uint32_t(a.SQPSN),
		dest_qp_num: C.uint32_t(a.DestQPNum), qp_access_flags: C.uint(a.AccessFlags), cap: a.Cap.c(), ah_attr: a.AH.c(),
		alt_ah_attr: a.AltAH.c(), pkey_index: C.uint16_t(a.PKeyIndex), alt_pkey_index: C.uint16_t(a.AltPKeyIndex),
		en_sqd_async_notify: cbool(a.EnSQDAsyncNotify), sq_draining: cbool(a.SQDraining),
		max_rd_atomic: C.uint8_t(a.MaxRDAtomic), max_dest_rd_atomic: C.uint8_t(a.MaxDestRDAtomic),
		min_rnr_timer: C.uint8_t(a.MinRNRTimer), port_num: C.uint8_t(a.Port), timeout: C.uint8_t(a.Timeout),
		retry_cnt: C.uint8_t(a.RetryCnt), rnr_retry: C.uint8_t(a.RNRRetry), alt_port_num: C.uint8_t(a.AltPort),
		alt_timeout: C.uint8_t(a.AltTimeout),
	}
}

func goQPAttr(a *C.struct_ibv_qp_attr) QPAttr {
	return QPAttr{
		State: QPState(a.qp_state), CurState: QPState(a.cur_qp_state), PathMTU: MTU(a.path_mtu),
		PathMigState: uint32(a.path_mig_state), QKey: uint32(a.qkey), RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn),
		DestQPNum: uint32(a.dest_qp_num), AccessFlags: AccessFlags(a.qp_access_flags), Cap: goCap(&a.cap),
		AH: goAHAttr(&a.ah_attr), AltAH: goAHAttr(&a.alt_ah_attr), PKeyIndex: uint16(a.pkey_index),
		AltPKeyIndex: uint16(a.alt_pkey_index), EnSQDAsyncNotify: a.en_sqd_async_notify != 0, SQDraining: a.sq_draining != 0,
		MaxRDAtomic: uint8(a.max_rd_atomic), MaxDestRDAtomic: uint8(a.max_dest_rd_atomic),
		MinRNRTimer: uint8(a.min_rnr_timer), Port: uint8(a.port_num), Timeout: uint8(a.timeout),
		RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry), AltPort: uint8(a.alt_port_num),
		AltTimeout: uint8(a.alt_timeout),
	}
}

func cbool(b bool) C.uint8_t {
	if b {
		return 1
	}
	return 0
}
