//go:build linux && cgo && gateprobe

package cverbs

// #include "gate.h"
// #include "shim.h"
//
// int cv_probe_fences(int on);
// uintptr_t cv_probe_user(void);
// uint64_t cv_probe_enter(void);
// void cv_probe_shut(uint32_t rounds);
// uint64_t cv_probe_polls(struct ibv_cq *cq);
import "C"

// setFences switches the mode for kernels without membarrier on or off, and returns whether it was
// on. No call may be in flight.
func setFences(on bool) bool {
	var c C.int
	if on {
		c = 1
	}
	return C.cv_probe_fences(c) != 0
}

// gateUsers returns the number of cv_users. This is the largest number of threads that existed at
// the same time and had used a gate.
func gateUsers() int { return int(C.cv_gate_users()) }

// gateUser returns the address of this thread's cv_user, or 0.
func gateUser() uintptr { return uintptr(C.cv_probe_user()) }

// gateLitmus opens and closes a gate while another thread enters it, all in C. It returns how often
// that thread was inside the gate after cv_gate_busy had reported that no thread was.
func gateLitmus(rounds int) uint64 {
	inside := make(chan uint64)
	go func() { inside <- uint64(C.cv_probe_enter()) }()
	C.cv_probe_shut(C.uint32_t(rounds))
	return <-inside
}

// countPolls returns the number of polls of the queue's device context since the first countPolls.
func countPolls(q *CQ) uint64 { return uint64(C.cv_probe_polls(q.c)) }
