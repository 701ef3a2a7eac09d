//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_post_send_ex
// #cgo nocallback cv_post_send_ex
import "C"

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"
)

func cSendWR(w []SendWR) (*C.struct_cv_send_wr, C.uint32_t) {
	return (*C.struct_cv_send_wr)(unsafe.Pointer(unsafe.SliceData(w))), C.uint32_t(min(len(w), math.MaxInt32))
}

func cRecvWR(w []RecvWR) (*C.struct_cv_recv_wr, C.uint32_t) {
	return (*C.struct_cv_recv_wr)(unsafe.Pointer(unsafe.SliceData(w))), C.uint32_t(min(len(w), math.MaxInt32))
}

func cSGE(s []SGE) (*C.struct_ibv_sge, C.uint32_t) {
	return (*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(s))), C.uint32_t(min(len(s), math.MaxUint32))
}

// PostSend posts a batch of send work requests in order. Their segments are ranges of sges. n is
// the number of accepted requests. If there is an error, wrs[n] was refused, and no later request
// was posted. Both slices may be reused after the call. PostSend does not allocate.
//
// Errors: EINVAL, with the request's index, for segments outside sges, more segments than the queue
// pair takes, an unsupported opcode (a UD queue pair takes only OpSend and OpSendWithImm), a closed
// address handle, or a queue pair that is not in RTS, SQD, SQE or ERR; ENOMEM when the send queue
// is full; ErrClosed.
//
// Implements: ibv_post_send, ibv_wr_start, ibv_wr_complete, ibv_wr_send, ibv_wr_send_imm,
// ibv_wr_send_inv, ibv_wr_rdma_write, ibv_wr_rdma_write_imm, ibv_wr_rdma_read,
// ibv_wr_atomic_cmp_swp, ibv_wr_atomic_fetch_add, ibv_wr_atomic_write, ibv_wr_local_inv,
// ibv_wr_set_sge, ibv_wr_set_sge_list, ibv_wr_set_inline_data, ibv_wr_set_inline_data_list,
// ibv_wr_set_ud_addr, ibv_wr_set_xrc_srqn, ibv_wr_send_tso.
func (q *QP) PostSend(wrs []SendWR, sges []SGE) (n int, err error) {
	q = orZero(q)
	if len(wrs) == 0 {
		return 0, q.gate.err()
	}
	wr, k := cSendWR(wrs)
	sg, nsg := cSGE(sges)
	q.alone.use()
	var p C.struct_cv_posted
	if q.ops == 0 {
		p = callPostSend(&q.gate, wr, k, sg, nsg, C.uint32_t(q.cap.MaxSendSGE))
	} else {
		p = C.cv_post_send_ex(q.gate.c(), wr, k, sg, nsg, C.uint32_t(q.cap.MaxSendSGE), C.uint64_t(q.ops))
	}
	if p.rc != 0 {
		err = q.sendError(p, wrs, len(sges))
	}
	return int(p.n), err
}

// PostRecv posts a batch of receive work requests in order; see PostSend. The queue pair must not
// be in RESET.
//
// Implements: ibv_post_recv.
func (q *QP) PostRecv(wrs []RecvWR, sges []SGE) (n int, err error) {
	q = orZero(q)
	if len(wrs) == 0 {
		return 0, q.gate.err()
	}
	wr, k := cRecvWR(wrs)
	sg, nsg := cSGE(sges)
	q.alone.use()
	p := callPostRecv(&q.gate, wr, k, sg, nsg, C.uint32_t(q.cap.MaxRecvSGE))
	if p.rc != 0 {
		err = q.recvError(p, wrs, len(sges))
	}
	return int(p.n), err
}

// PostRecv posts a batch of receive work requests, shared by all queue pairs of the SRQ; see
// QP.PostSend.
//
// Implements: ibv_post_srq_recv.
func (s *SRQ) PostRecv(wrs []RecvWR, sges []SGE) (n int, err error) {
	s = orZero(s)
	if len(wrs) == 0 {
		return 0, s.gate.err()
	}
	wr, k := cRecvWR(wrs)
	sg, nsg := cSGE(sges)
	s.alone.use()
	p := callPostSRQRecv(&s.gate, wr, k, sg, nsg, C.uint32_t(s.maxSGE))
	if p.rc != 0 {
		err = s.recvError(p, wrs, len(sges))
	}
	return int(p.n), err
}

func (q *QP) sendError(p C.struct_cv_posted, wrs []SendWR, nsges int) error {
	const verb = "ibv_post_send"
	w, maxSGE := &wrs[p.n], q.cap.MaxSendSGE
	if q.ops != 0 && w.Flags&SendInline != 0 {
		maxSGE = C.CV_MAX_BUFFERS
	}
	switch p.rc {
	case C.CV_BAD_STATE:
		return q.stateError(verb, "PostSend")
	case C.CV_BAD_OPCODE:
		if q.ops != 0 {
			return badArg("ibv_wr_start", "request %d: %v is not among the SendOps of the queue pair", p.n, w.Opcode)
		}
		return badArg(verb, "request %d: PostSend does not support opcode %v on a queue pair of type %v", p.n, w.Opcode,
			q.typ)
	case C.CV_BAD_HEADER:
		return badArg("ibv_wr_send_tso", "request %d: its first segment is the header, of at most %d bytes", p.n,
			math.MaxUint16)
	case C.CV_BAD_AH:
		return badArg(verb, "request %d: AH %#x is not the handle of an open address handle of this device", p.n, w.AH)
	case C.int32_t(syscall.EINVAL):
		e := postError(verb, p, w.FirstSGE, w.NumSGE, nsges, maxSGE, q.cap.MaxSendWR).(*Error)
		e.Advice += fmt.Sprintf(", %v %v; inline data is limited to %d bytes", w.Opcode, w.Flags, q.cap.MaxInline)
		return e
	}
	return postError(verb, p, w.FirstSGE, w.NumSGE, nsges, maxSGE, q.cap.MaxSendWR)
}

// stateError returns the error of a call that the state of the queue pair does not allow.
func (q *QP) stateError(verb, call string) error {
	if !q.life.enter() {
		return ErrClosed
	}
	defer q.life.leave()
	return badArg(verb, "%s", postAdvice(call, q.num, QPState(q.c.state), q.destroy != nil))
}

func (q *QP) recvError(p C.struct_cv_posted, wrs []RecvWR, nsges int) error {
	w := &wrs[p.n]
	if p.rc == C.CV_BAD_STATE {
		return q.stateError("ibv_post_recv", "PostRecv")
	}
	return postError("ibv_post_recv", p, w.FirstSGE, w.NumSGE, nsges, q.cap.MaxRecvSGE, q.cap.MaxRecvWR)
}

func (s *SRQ) recvError(p C.struct_cv_posted, wrs []RecvWR, nsges int) error {
	w := &wrs[p.n]
	return postError("ibv_post_srq_recv", p, w.FirstSGE, w.NumSGE, nsges, s.maxSGE, 0)
}

func postError(verb string, p C.struct_cv_posted, first, num uint32, nsges int, maxSGE, depth uint32) error {
	switch p.rc {
	case C.CV_CLOSED:
		return ErrClosed
	case C.CV_BAD_RANGE:
		return badArg(verb, "request %d: segments %d to %d are not among the %d given", p.n, first,
			uint64(first)+uint64(num), nsges)
	case C.CV_TOO_MANY:
		return badArg(verb, "request %d: %d segments, the queue takes %d", p.n, num, maxSGE)
	case C.int32_t(syscall.ENOMEM):
		e := &Error{Verb: verb, Errno: syscall.ENOMEM, Advice: "the queue is full"}
		if depth > 0 {
			e.Advice = fmt.Sprintf("the queue of %d is full; polled completions free places", depth)
		}
		return e
	}
	return &Error{Verb: verb, Errno: syscall.Errno(p.rc), Advice: fmt.Sprintf("request %d", p.n)}
}
