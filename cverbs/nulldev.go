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

// NullCQ makes a completion queue of a device whose operations are C functions that do next to nothing: signalled sends complete at
// once, receives never. It exists only with the build tag nulldev, to measure what the binding itself costs.
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

// NullQP makes a queue pair of that device; both queues must be its own.
//
// Extension.
func NullQP(send, recv *CQ) *QP {
	q := &QP{c: C.cv_null_qp(send.c, recv.c), typ: QPTypeRC, cap: QPCap{MaxSendWR: 1024, MaxRecvWR: 1024, MaxSendSGE: 16, MaxRecvSGE: 16}}
	q.num = uint32(q.c.qp_num)
	q.life.begin(kindQP)
	q.gate.open(unsafe.Pointer(q.c))
	q.life.open()
	return q
}

// NullPolls is how often a queue of NullCQ has been polled.
//
// Extension.
func NullPolls(q *CQ) uint64 { return uint64(C.cv_null_polls(q.c)) }

// NullCloseQP frees a queue pair of NullQP, NullCloseCQ a queue of NullCQ; Close is for real ones.
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

// NullLoop posts batches of 64-byte sends, each with a segment and a context of its own, and reaps their completions, all in C.
// It gives the number of bytes sent.
//
// Extension.
func NullLoop(q *QP, cq *CQ, rounds, batch int) uint64 {
	return uint64(C.cv_null_loop(q.c, cq.c, C.uint64_t(rounds), C.uint32_t(batch)))
}

// NullCall is an empty call into C.
//
// Extension.
func NullCall() { C.cv_null_call() }

// nullFences makes gates work as they do where the kernel refuses membarrier, and tells whether they did. No call may be in flight.
func nullFences(on bool) bool {
	var c C.int
	if on {
		c = 1
	}
	return C.cv_null_fences(c) != 0
}

// gateUsers is how many threads have gone through gates at once, at the most.
func gateUsers() int { return int(C.cv_gate_users()) }

// gateLitmus opens and shuts a gate while another thread goes through it, all in C, and tells how often that thread was inside
// when the gate had been waited for.
func gateLitmus(rounds int) uint64 {
	inside := make(chan uint64)
	go func() { inside <- uint64(C.cv_null_enter()) }()
	C.cv_null_shut(C.uint32_t(rounds))
	return <-inside
}
