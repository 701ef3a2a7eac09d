//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import "syscall"

// ForkInit makes forks of this process safe for registered memory, on kernels before 5.12; newer
// ones do that by themselves, and it changes nothing. Call it before anything else of this package,
// or set RDMAV_FORK_SAFE=1 in the environment. Errors: EINVAL after the first registration, ENOSYS.
//
// Few Go programs need it. os/exec is safe without it: its child shares the parent's memory until
// it runs the other program. It is for processes in which C code forks and both sides go on. The
// child then lacks all pages that hold registered memory, Go's heap among them, and must not run Go
// code that touches them.
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

// ForkInitialized returns whether forks are safe for registered memory, and by what.
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
