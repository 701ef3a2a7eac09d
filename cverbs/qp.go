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
	gate gate // gate and cap come first: posts read both, from one cache line
	cap  QPCap
	ops  SendOps // not 0: an extended queue pair
	life life
	c    *C.struct_ibv_qp
	ctx  *Context
	pd   *PD // nil if the queue pair is of an XRCD
	h    uintptr
	num  uint32
	typ  QPType
	qkey uint32

	alone serial // enabled in a parent domain

	destroy func() C.int // set if CMID.CreateQP created the queue pair: destroys it through the id
}

// CreateQP creates a queue pair in the RESET state. The completion queues, the SRQ and the domain
// must be of one device context. With SendOps it creates an extended queue pair. Errors:
// ErrNotSupported if the device has no extended queue pairs, or does not support the operations.
//
// Implements: ibv_create_qp, ibv_create_qp_ex, ibv_qp_to_qp_ex.
func (p *PD) CreateQP(init QPInit) (*QP, error) {
	p = orZero(p)
	verb := "ibv_create_qp"
	q, attr, err := newQP(verb, p, nil, &init)
	if err != nil {
		return nil, err
	}
	var v *C.struct_ibv_qp
	if more := init.more(); more == nil {
		v, err = C.ibv_create_qp(p.c, attr)
	} else {
		verb = "ibv_create_qp_ex"
		v, err = C.cv_create_qp_ex(p.c, attr, more)
	}
	if v == nil {
		q.discard()
		return nil, createQPError(verb, errnoOf(err), &init)
	}
	q.finish(v, goCap(&attr.cap))
	return q, nil
}

// newQP checks init, references everything that the queue pair uses, and converts init for C. The
// parameter id is the CMID on which the queue pair is created, or nil.
func newQP(verb string, p *PD, id *life, init *QPInit) (*QP, *C.struct_ibv_qp_init_attr, error) {
	if init.Type == 0 {
		init.Type = QPTypeRC
	}
	switch {
	case init.Type == QPTypeXRCRecv:
		return nil, nil, badArg(verb, "XRC_RECV: XRCD.CreateQP makes it")
	case init.SendCQ == nil && init.RSS == nil:
		return nil, nil, badArg(verb, "SendCQ is nil")
	case init.RecvCQ == nil && init.RSS == nil && init.Type != QPTypeXRCSend:
		return nil, nil, badArg(verb, "RecvCQ is nil")
	case init.SendOps&^sendOpsKnown != 0:
		return nil, nil, badArg(verb, "SendOps %#x are unknown", uint64(init.SendOps&^sendOpsKnown))
	case init.Cap.MaxSendWR > math.MaxInt32 || init.Cap.MaxRecvWR > math.MaxInt32:
		return nil, nil, badArg(verb, "MaxSendWR %d or MaxRecvWR %d is above %d", init.Cap.MaxSendWR, init.Cap.MaxRecvWR,
			math.MaxInt32)
	}
	if err := init.RSS.check(verb); err != nil {
		return nil, nil, err
	}
	q := &QP{ctx: p.ctx, pd: p, typ: init.Type, qkey: init.QKey, ops: init.SendOps, alone: serial{on: p.td != nil}}
	parents := []*life{&p.life}
	attr := &C.struct_ibv_qp_init_attr{
		cap: init.Cap.c(), qp_type: uint32(init.Type), sq_sig_all: C.int(cbool(init.SigAll)),
	}
	if c := init.SendCQ; c != nil {
		parents, attr.send_cq = append(parents, &c.life), c.c
	}
	if c := init.RecvCQ; c != nil {
		if c != init.SendCQ {
			parents = append(parents, &c.life)
		}
		attr.recv_cq = c.c
	}
	if s := init.SRQ; s != nil {
		parents, attr.srq = append(parents, &s.life), s.c
	}
	if init.RSS != nil {
		parents = append(parents, &init.RSS.Table.life)
	}
	if id != nil {
		parents = append(parents, id)
	}
	if err := q.life.begin(kindQP, parents...); err != nil {
		return nil, nil, err
	}
	if s, r := init.SendCQ, init.RecvCQ; s != nil && s.ctx != p.ctx || r != nil && r.ctx != p.ctx ||
		init.SRQ != nil && init.SRQ.pd.ctx != p.ctx || init.RSS != nil && init.RSS.Table.ctx != p.ctx {
		q.life.abort()
		return nil, nil, badArg(verb, "domain, completion queues, SRQ and table are not of one device context")
	}
	q.h = byHandle.qps.add(q)
	C.cv_set_qp_handle(attr, C.uintptr_t(q.h))
	return q, attr, nil
}

func (q *QP) finish(v *C.struct_ibv_qp, granted QPCap) {
	q.c, q.num, q.cap = v, uint32(v.qp_num), granted
	if q.ops != 0 && q.ctx.rxe != 0 {
		// rxe's ibv_wr_set_sge_list assumes that all segments are as long as the first. rxe's
		// ibv_wr_set_inline_data_list sends nothing (rdma-core 44).
		q.cap.MaxSendSGE = min(q.cap.MaxSendSGE, 1)
		q.ops |= C.CV_GATHER
	}
	q.gate.open(unsafe.Pointer(v))
	q.life.open()
}

func (q *QP) discard() {
	byHandle.qps.remove(q.h)
	q.life.abort()
}

func createQPError(verb string, errno syscall.Errno, init *QPInit) error {
	e := pinError(verb, errno, 0).(*Error)
	switch {
	case errno == syscall.EOPNOTSUPP && (init.CreateFlags != 0 || init.MaxTSOHeader != 0 || init.RSS != nil):
		e.Advice = fmt.Sprintf("the device has no %v queue pairs with these fields of QPInit: CreateFlags %#x, "+
			"MaxTSOHeader %d, RSS %v, SendOps %v", init.Type, uint32(init.CreateFlags), init.MaxTSOHeader, init.RSS != nil,
			init.SendOps)
	case errno == syscall.EOPNOTSUPP && init.SendOps != 0:
		e.Advice = fmt.Sprintf("the device has no %v queue pairs with SendOps %v", init.Type, init.SendOps)
	case errno == syscall.EOPNOTSUPP:
		e.Advice = fmt.Sprintf("the device has no %v queue pairs", init.Type)
	case errno == syscall.EINVAL:
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

// Cap returns the sizes that the device granted, which are at least the requested sizes. One
// exception: MaxSendSGE of an extended queue pair on soft-RoCE is at most 1. With an SRQ, the
// receive sizes have no meaning.
//
// Extension.
func (q *QP) Cap() QPCap { return orZero(q).cap }

// Modify changes the attributes that mask selects. Errors: EINVAL if the state does not allow the
// transition, or if an attribute that the transition needs is missing. The text names the state,
// and what to do.
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
		from := QPState(q.c.state)
		if now, err := q.query(QPAttrState); err == nil {
			from = now.State // an error may have changed the state
		}
		e.Advice = fmt.Sprintf("QP %d %s", q.num, modifyAdvice(q.typ, from, &attr, mask))
		return e
	}
	return nil
}

// Query returns all attributes, including the current state of the queue pair in the device.
//
// Implements: ibv_query_qp.
func (q *QP) Query() (QPAttr, error) { return orZero(q).query(1<<21 - 1) }

// State returns the current state of the queue pair in the device. Errors may have changed the
// state since Modify.
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

// ToInit moves the queue pair from RESET to INIT. It sets the port, the access rights of peers, and
// P_Key index 0. Once the queue pair is in INIT, receives can be posted.
//
// Implements: ibv_modify_qp.
func (q *QP) ToInit(port uint8, access AccessFlags) error {
	q = orZero(q)
	return q.Modify(QPAttr{State: QPStateInit, Port: port, AccessFlags: access, QKey: q.qkey}, qpNeeds(q.typ, QPStateInit))
}

// ToRTR moves the queue pair from INIT to RTR. It uses these fields of attr: AH, PathMTU, DestQPNum
// and RQPSN for RC, UC, XRC_SEND and XRC_RECV; MaxDestRDAtomic and MinRNRTimer for RC and XRC_RECV.
// For UD and RAW_PACKET it uses no fields.
//
// Implements: ibv_modify_qp.
func (q *QP) ToRTR(attr QPAttr) error {
	q = orZero(q)
	attr.State = QPStateRTR
	return q.Modify(attr, qpNeeds(q.typ, QPStateRTR))
}

// ToRTS moves the queue pair from RTR to RTS. It uses these fields of attr: SQPSN for all types but
// RAW_PACKET; Timeout for RC, XRC_SEND and XRC_RECV; RetryCnt, RNRRetry and MaxRDAtomic for RC and
// XRC_SEND.
//
// Implements: ibv_modify_qp.
func (q *QP) ToRTS(attr QPAttr) error {
	q = orZero(q)
	attr.State = QPStateRTS
	return q.Modify(attr, qpNeeds(q.typ, QPStateRTS))
}

// ToError moves the queue pair to ERR. Posted requests complete, mostly with WCWRFlushErr. ToError
// is not allowed in RESET.
//
// Implements: ibv_modify_qp.
func (q *QP) ToError() error { return orZero(q).Modify(QPAttr{State: QPStateErr}, QPAttrState) }

// ToReset moves the queue pair to RESET. Posted requests are dropped without completions.
//
// Implements: ibv_modify_qp.
func (q *QP) ToReset() error { return orZero(q).Modify(QPAttr{State: QPStateReset}, QPAttrState) }

// Close destroys the queue pair. Posted work requests are dropped. Completions that have not been
// polled may be lost. Errors: ErrInUse while a flow of the queue pair is open; EBUSY while the
// queue pair is attached to a multicast group.
//
// Implements: ibv_destroy_qp, rdma_destroy_qp.
func (q *QP) Close() error {
	q = orZero(q)
	return q.life.close(nil, func() error {
		return q.gate.destroy(func() error {
			var rc C.int
			var err error
			if q.destroy != nil {
				rc = q.destroy()
			} else {
				rc, err = C.ibv_destroy_qp(q.c)
			}
			if rc != 0 {
				e := rcError("ibv_destroy_qp", rc, err).(*Error)
				if e.Errno == syscall.EBUSY {
					e.Advice = fmt.Sprintf("QP %d is in a multicast group: detach it or leave first", q.num)
				}
				return e
			}
			byHandle.qps.remove(q.h)
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
		path_mig_state: uint32(a.PathMigState), qkey: C.uint32_t(a.QKey), rq_psn: C.uint32_t(a.RQPSN),
		sq_psn: C.uint32_t(a.SQPSN), dest_qp_num: C.uint32_t(a.DestQPNum),
		qp_access_flags: C.uint(a.AccessFlags), cap: a.Cap.c(), ah_attr: a.AH.c(),
		alt_ah_attr: a.AltAH.c(), pkey_index: C.uint16_t(a.PKeyIndex), alt_pkey_index: C.uint16_t(a.AltPKeyIndex),
		en_sqd_async_notify: cbool(a.EnSQDAsyncNotify), sq_draining: cbool(a.SQDraining),
		max_rd_atomic: C.uint8_t(a.MaxRDAtomic), max_dest_rd_atomic: C.uint8_t(a.MaxDestRDAtomic),
		min_rnr_timer: C.uint8_t(a.MinRNRTimer), port_num: C.uint8_t(a.Port), timeout: C.uint8_t(a.Timeout),
		retry_cnt: C.uint8_t(a.RetryCnt), rnr_retry: C.uint8_t(a.RNRRetry), alt_port_num: C.uint8_t(a.AltPort),
		alt_timeout: C.uint8_t(a.AltTimeout), rate_limit: C.uint32_t(a.RateLimit),
	}
}

func goQPAttr(a *C.struct_ibv_qp_attr) QPAttr {
	return QPAttr{
		State: QPState(a.qp_state), CurState: QPState(a.cur_qp_state), PathMTU: MTU(a.path_mtu),
		PathMigState: MigState(a.path_mig_state), QKey: uint32(a.qkey), RQPSN: uint32(a.rq_psn), SQPSN: uint32(a.sq_psn),
		DestQPNum: uint32(a.dest_qp_num), AccessFlags: AccessFlags(a.qp_access_flags), Cap: goCap(&a.cap),
		AH: goAHAttr(&a.ah_attr), AltAH: goAHAttr(&a.alt_ah_attr), PKeyIndex: uint16(a.pkey_index),
		AltPKeyIndex: uint16(a.alt_pkey_index), EnSQDAsyncNotify: a.en_sqd_async_notify != 0, SQDraining: a.sq_draining != 0,
		MaxRDAtomic: uint8(a.max_rd_atomic), MaxDestRDAtomic: uint8(a.max_dest_rd_atomic),
		MinRNRTimer: uint8(a.min_rnr_timer), Port: uint8(a.port_num), Timeout: uint8(a.timeout),
		RetryCnt: uint8(a.retry_cnt), RNRRetry: uint8(a.rnr_retry), AltPort: uint8(a.alt_port_num),
		AltTimeout: uint8(a.alt_timeout), RateLimit: uint32(a.rate_limit),
	}
}
