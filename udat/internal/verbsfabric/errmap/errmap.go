// Package errmap adds the sentinel errors of package fabric to errors of package cverbs.
package errmap

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// Wrap adds a sentinel of package fabric to an error of cverbs. errors.Is matches both.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	sentinel := error(nil)
	switch {
	case errors.Is(err, cverbs.ErrClosed):
		sentinel = fabric.ErrClosed
	case errors.Is(err, cverbs.ErrInUse):
		sentinel = fabric.ErrInUse
	case errors.Is(err, cverbs.ErrNotSupported):
		sentinel = fabric.ErrNotSupported
	case errors.As(err, &errno):
		switch errno {
		case syscall.EBUSY:
			sentinel = fabric.ErrInUse
		case syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EAGAIN:
			sentinel = fabric.ErrResources
		case syscall.EINVAL, syscall.EFAULT:
			sentinel = fabric.ErrInvalid
		case syscall.ENODEV:
			sentinel = fabric.ErrDeviceRemoved
		}
	}
	return join(sentinel, err)
}

// WrapPost is like Wrap, for errors of posts. In these ENOMEM means that the queue is full.
func WrapPost(err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		return join(fabric.ErrQueueFull, err)
	}
	return Wrap(err)
}

// WrapAddr is like Wrap, for errors of calls that have an address as an argument.
func WrapAddr(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case syscall.EADDRINUSE:
			return join(fabric.ErrAddrInUse, err)
		case syscall.EACCES, syscall.EPERM:
			return join(fabric.ErrAddrDenied, err)
		case syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT, syscall.EINVAL, syscall.ENODEV:
			return join(fabric.ErrAddrInvalid, err)
		}
	}
	return Wrap(err)
}

// Unreachable reports whether an error of resolving an address or a route means that there is no
// path to the peer.
func Unreachable(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.ETIMEDOUT,
		syscall.ENODEV, noData, syscall.EADDRNOTAVAIL:
		return true
	}
	return false
}

func join(sentinel, err error) error {
	if sentinel == nil {
		return fmt.Errorf("verbs: %w", err)
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// Invalid returns an ErrInvalid about an argument.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", fabric.ErrInvalid, fmt.Sprintf(format, args...))
}
