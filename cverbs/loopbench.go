//go:build linux && cgo && nulldev

package cverbs

// #include "loopbench.h"
import "C"

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// LoopKind is what a loop of LoopBench does.
//
// Extension.
type LoopKind uint32

// Kinds of loops.
const (
	LoopPing    LoopKind = iota // ping-pong of sends: the samples are round trips
	LoopWrite                   // one RDMA write at a time: the samples are whole operations
	LoopRead                    // one RDMA read at a time
	LoopRate                    // RDMA writes, one post at a time, 128 in flight, one in 32 signalled
	LoopBatch                   // RDMA writes in batches, all signalled
	LoopMany                    // RDMA writes on many queue pairs in turn, 64 in flight, with one completion queue
	LoopPosters                 // RDMA writes of two threads
)

// LoopWork is a loop for LoopBench, and for the loops in Go beside it.
//
// Extension.
type LoopWork struct {
	Kind    LoopKind
	Size    int  // bytes of a message
	Batch   int  // LoopBatch: writes of one post
	Ends    int  // LoopMany: queue pairs
	Threads int  // LoopPing: 1 plays both ends in turn, 2 have one each
	Events  bool // LoopPing: wait for completion events
	Shared  bool // LoopPosters: both threads post on one queue pair

	Warmup, Time time.Duration
}

// LoopBench runs a loop in C on the loop device, as a C program has it. LoopPing, LoopWrite and
// LoopRead return a sample in nanoseconds for each round after the warm-up, at least 1,000 unless
// that takes 5 s, and in ops the number of all rounds. The others return how many operations
// completed in what time. Only one loop may run at a time. Errors: ENODEV; EINVAL for sizes out
// of range.
//
// Extension.
func LoopBench(w LoopWork) (samples []uint32, ops uint64, took time.Duration, err error) {
	c := C.struct_lb_work{
		kind: C.uint32_t(w.Kind), size: C.uint32_t(w.Size), batch: C.uint32_t(w.Batch), ends: C.uint32_t(w.Ends),
		threads: C.uint32_t(w.Threads), warmup: C.uint64_t(w.Warmup), time: C.uint64_t(w.Time),
	}
	if w.Events {
		c.events = 1
	}
	if w.Shared {
		c.shared = 1
	}
	samples = make([]uint32, 1<<20)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&samples[0])
	c.samples, c.max_samples = (*C.uint32_t)(unsafe.Pointer(&samples[0])), C.uint64_t(len(samples))
	if rc := C.lb_run(&c); rc != 0 {
		return nil, 0, 0, syscall.Errno(rc)
	}
	return samples[:c.n], uint64(c.ops), time.Duration(c.took), nil
}
