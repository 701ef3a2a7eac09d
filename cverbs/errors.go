package cverbs

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"syscall"
)

var (
	// ErrClosed is the error of calls on a closed object and of waits that Close ended. errors.Is
	// also matches os.ErrClosed and net.ErrClosed.
	ErrClosed error = closedError{}
	// ErrInUse is the reason why Close fails while other objects use the object. The error of Close
	// wraps ErrInUse.
	ErrInUse = errors.New("in use")
	// ErrNotSupported is the error of every constructor on platforms without verbs (not linux, or no
	// cgo), and if libibverbs or librdmacm is not installed. errors.Is also matches ErrNotSupported if
	// a call failed because it is missing in the device, in the kernel, or in a library that is older
	// than this package (EOPNOTSUPP, ENOSYS, EPROTONOSUPPORT).
	ErrNotSupported = errors.New("cverbs: not supported")
)

type closedError struct{}

func (closedError) Error() string { return "cverbs: use of closed object" }

func (closedError) Is(target error) bool { return target == os.ErrClosed || target == net.ErrClosed }

// Error is the failure of a verb. errors.Is matches the errno.
//
// Extension.
type Error struct {
	Verb   string        // the C name of the call: "ibv_reg_mr"
	Errno  syscall.Errno // the errno that the call returned
	Advice string        // what to do about it, or which argument was outside which limit; may be empty
}

// Error returns the verb, the errno's text, and the advice.
//
// Extension.
func (e *Error) Error() string {
	s := fmt.Sprintf("cverbs: %s: %s", e.Verb, e.Errno.Error())
	if e.Advice != "" {
		s += " (" + e.Advice + ")"
	}
	return s
}

// Unwrap returns the errno.
//
// Extension.
func (e *Error) Unwrap() error { return e.Errno }

// Is reports whether target is ErrNotSupported and the errno is EOPNOTSUPP, ENOSYS or
// EPROTONOSUPPORT.
//
// Extension.
func (e *Error) Is(target error) bool {
	return target == ErrNotSupported && (e.Errno == syscall.ENOSYS || e.Errno == syscall.EPROTONOSUPPORT ||
		errors.Is(e.Errno, errors.ErrUnsupported))
}

func badArg(verb, format string, args ...any) error {
	return &Error{Verb: verb, Errno: syscall.EINVAL, Advice: fmt.Sprintf(format, args...)}
}

// fdError returns an error if fd does not fit into a C int. C would truncate it to another
// descriptor.
func fdError(verb string, fd int) error {
	if int(int32(fd)) != fd {
		return badArg(verb, "descriptor %d: it must be at most %d", fd, math.MaxInt32)
	}
	return nil
}
