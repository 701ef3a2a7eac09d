//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import "syscall"

// ForkInit makes it safe to fork this process while memory is registered. Only kernels before 5.12
// need ForkInit; on newer kernels it changes nothing. Call it before any other function of this
// package, or set RDMAV_FORK_SAFE=1 in the environment. Errors: EINVAL after the first
// registration, ENOSYS.
//
// Few Go programs need ForkInit. os/exec is safe without ForkInit, because the child of os/exec
// shares the parent's memory until the child executes the other program. ForkInit is for processes
// in which C code forks and both processes continue. The child then lacks all pages that contain
// registered memory. Pages of Go's heap may be among them, so the child must not run Go code that
// accesses such pages.
//
// Implements: ibv_fork_init.
func ForkInit() error {
	if err := load(); err != nil {
		return err
	}
	rc, err := C.ibv_fork_init()
	if rc == 0 {
		return nil
	}
	e := rcError("ibv_fork_init", rc, err).(*Error)
	if e.Errno == syscall.EINVAL {
		e.Advice = "memory has been registered already: call it first"
	}
	return e
}

// ForkInitialized reports whether it is safe to fork while memory is registered, and why.
//
// Implements: ibv_is_fork_initialized.
func ForkInitialized() (ForkStatus, error) {
	if err := load(); err != nil {
		return 0, err
	}
	s := C.ibv_is_fork_initialized()
	if int32(s) == -1 { // the library is older than the headers
		return 0, &Error{Verb: "ibv_is_fork_initialized", Errno: syscall.EOPNOTSUPP}
	}
	return ForkStatus(s), nil
}
