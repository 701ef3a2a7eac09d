package cverbs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

var (
	// ErrClosed is returned by calls on a closed object and by a wait that Close ended. errors.Is also matches os.ErrClosed and
	// net.ErrClosed.
	ErrClosed error = closedError{}
	// ErrInUse is wrapped by the error of a Close that was refused because other objects still use this one.
	ErrInUse = errors.New("in use")
	// ErrNotSupported is returned by every constructor where there are no verbs (not linux, or built without cgo). errors.Is also
	// matches it when a device or kernel answered EOPNOTSUPP or ENOSYS.
	ErrNotSupported = errors.New("cverbs: not supported")
)

type closedError struct{}

func (closedError) Error() string { return "cverbs: use of closed object" }

func (closedError) Is(target error) bool { return target == os.ErrClosed || target == net.ErrClosed }

// Error is a verb that failed. errors.Is sees the errno.
//
// Extension.
type Error struct {
	Verb   string        // the C name of the call: "ibv_reg_mr"
	Errno  syscall.Errno // what it returned
	Advice string        // what to do about it, or which argument was outside which limit; may be empty
}

// Error names the verb, the errno's text, and the advice.
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

// Is matches ErrNotSupported when the errno says so.
//
// Extension.
func (e *Error) Is(target error) bool {
	return target == ErrNotSupported && (e.Errno == syscall.ENOSYS || errors.Is(e.Errno, errors.ErrUnsupported))
}

func badArg(verb, format string, args ...any) error {
	return &Error{Verb: verb, Errno: syscall.EINVAL, Advice: fmt.Sprintf(format, args...)}
}
