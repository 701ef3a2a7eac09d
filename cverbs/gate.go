//go:build linux && cgo

package cverbs

// #include "gate.h"
import "C"

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// gate is the way of the data path (posts, polls, arming) to an object in C, which Close may shut at any time. The zero value is shut.
// Calls go through it without a locked instruction: a post and a poll would need four, a fifth of what they cost.
//
// A call passes the gate's address to C. There its thread notes the address in a place of its own (cv_user), then reads the object
// from the gate: zero is a closed one. It clears its note when it is done. destroy sets the gate to zero, has the kernel run a memory
// barrier on every thread of the process (membarrier), and then waits until no note names the gate. A call whose note came before the
// barrier is seen and waited for; one whose note comes after it reads zero. Where the kernel refuses membarrier from the start each
// call has the barrier itself. The gate is part of an object in Go, which stays while a call has its address, so that no note
// ever means another gate of the same address. Calls of the data path do not block: the wait is for a verb that has begun.
type gate struct {
	object uintptr // read by C
}

func (g *gate) open(object unsafe.Pointer) { atomic.StoreUintptr(&g.object, uintptr(object)) }

func (g *gate) err() error {
	if atomic.LoadUintptr(&g.object) == 0 {
		return ErrClosed
	}
	return nil
}

func (g *gate) c() *C.uintptr_t { return (*C.uintptr_t)(unsafe.Pointer(&g.object)) }

// destroy runs f while no call is inside; when that fails the gate is open again.
func (g *gate) destroy(f func() error) error {
	object := atomic.SwapUintptr(&g.object, 0)
	for pause := time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		busy := C.cv_gate_busy(g.c())
		if busy == 0 {
			break
		}
		if busy < 0 {
			atomic.StoreUintptr(&g.object, object)
			return &Error{Verb: "membarrier", Errno: syscall.Errno(-busy), Advice: "calls in flight cannot be waited for; the object is still open"}
		}
		time.Sleep(pause)
	}
	err := f()
	if err != nil {
		atomic.StoreUintptr(&g.object, object)
	}
	return err
}
