// Package errmap gives errors of package cverbs the sentinels of package fabric.
package errmap

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// Wrap adds the fabric's sentinel to an error of cverbs; errors.Is matches both.
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

// WrapPost is Wrap for posts, where ENOMEM means a full queue.
func WrapPost(err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		return join(fabric.ErrQueueFull, err)
	}
	return Wrap(err)
}

// WrapAddr is Wrap for calls with an address.
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

// Unreachable reports whether a resolve error is about the path to the peer.
func Unreachable(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.ETIMEDOUT,
		syscall.ENODEV, syscall.ENODATA, syscall.EADDRNOTAVAIL:
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

// Invalid is an error about an argument.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", fabric.ErrInvalid, fmt.Sprintf(format, args...))
}
