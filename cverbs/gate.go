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

// gate guards a C object of the data path (posts, polls, arming) against Close. To enter and leave
// a gate needs no locked instruction. With the methods enter and leave of type life, a post and a
// poll together would execute four locked instructions, which is a fifth of their cost. The zero
// value is closed.
//
// A call passes the gate's address to C. In C the calling thread first stores that address in its
// own cv_user, then loads the object from the gate; zero means closed. At its end the call clears
// the cv_user. The method destroy stores zero in the gate, makes the kernel run a memory barrier on
// every thread of the process (membarrier), and then waits until no cv_user contains the gate's
// address. So destroy waits for a call that stored its address before the barrier; a later call
// loads zero. The wait is short, because data path calls do not block. If the kernel does not
// support membarrier, each call runs the barrier itself.
//
// A gate is part of a Go object, which stays reachable while a call has the gate's address. So no
// other gate can have this address during the call.
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

// destroy closes the gate, waits until no call is inside, and runs f. If f or membarrier fails,
// destroy opens the gate again.
func (g *gate) destroy(f func() error) error {
	object := atomic.SwapUintptr(&g.object, 0)
	for pause := time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		busy := C.cv_gate_busy(g.c())
		if busy == 0 {
			break
		}
		if busy < 0 {
			atomic.StoreUintptr(&g.object, object)
			return &Error{Verb: "membarrier", Errno: syscall.Errno(-busy),
				Advice: "calls in flight cannot be waited for; the object is still open"}
		}
		time.Sleep(pause)
	}
	err := f()
	if err != nil {
		atomic.StoreUintptr(&g.object, object)
	}
	return err
}
