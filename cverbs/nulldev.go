//go:build linux && cgo && nulldev

package cverbs

// #include "gate.h"
// #include "nulldev.h"
// #cgo noescape cv_null_call
// #cgo nocallback cv_null_call
// #cgo noescape cv_null_loop
// #cgo nocallback cv_null_loop
import "C"

import "unsafe"

// NullCQ creates a completion queue of a device with nearly empty operations: signalled sends
// complete at once, receives never. It exists only with the build tag nulldev, to measure the cost
// of the binding.
//
// Extension.
func NullCQ() *CQ {
	q := &CQ{c: C.cv_null_cq(), ctx: &Context{}}
	q.life.begin(kindCQ)
	q.depth.Store(int64(q.c.cqe))
	q.gate.open(unsafe.Pointer(q.c))
	q.life.open()
	return q
}

// NullQP creates a queue pair of that device; both queues must come from NullCQ.
//
// Extension.
func NullQP(send, recv *CQ) *QP {
	q := &QP{c: C.cv_null_qp(send.c, recv.c), typ: QPTypeRC,
		cap: QPCap{MaxSendWR: 1024, MaxRecvWR: 1024, MaxSendSGE: 16, MaxRecvSGE: 16}}
	q.num = uint32(q.c.qp_num)
	q.life.begin(kindQP)
	q.gate.open(unsafe.Pointer(q.c))
	q.life.open()
	return q
}

// NullPolls returns the number of polls of a queue of NullCQ.
//
// Extension.
func NullPolls(q *CQ) uint64 { return uint64(C.cv_null_polls(q.c)) }

// NullCloseQP frees a queue pair of NullQP.
//
// Extension.
func NullCloseQP(q *QP) error {
	return q.life.close(nil, func() error { return q.gate.destroy(func() error { C.cv_null_free_qp(q.c); return nil }) })
}

// NullCloseCQ frees a queue of NullCQ.
//
// Extension.
func NullCloseCQ(q *CQ) error {
	return q.life.close(nil, func() error { return q.gate.destroy(func() error { C.cv_null_free_cq(q.c); return nil }) })
}

// NullLoop posts batches of 64-byte sends, each with its own segment and context, and reaps their
// completions, all in C. It returns the number of bytes sent.
//
// Extension.
func NullLoop(q *QP, cq *CQ, rounds, batch int) uint64 {
	return uint64(C.cv_null_loop(q.c, cq.c, C.uint64_t(rounds), C.uint32_t(batch)))
}

// NullCall is an empty call into C.
//
// Extension.
func NullCall() { C.cv_null_call() }

// nullFences switches gates to the mode for kernels without membarrier, and returns the previous
// mode. No call may be in flight.
func nullFences(on bool) bool {
	var c C.int
	if on {
		c = 1
	}
	return C.cv_null_fences(c) != 0
}

// gateUsers returns the largest number of threads that have been in gates at once.
func gateUsers() int { return int(C.cv_gate_users()) }

// gateLitmus opens and closes a gate while another thread enters it, all in C. It returns how often
// that thread was inside after the gate had been closed and waited for.
func gateLitmus(rounds int) uint64 {
	inside := make(chan uint64)
	go func() { inside <- uint64(C.cv_null_enter()) }()
	C.cv_null_shut(C.uint32_t(rounds))
	return <-inside
}
