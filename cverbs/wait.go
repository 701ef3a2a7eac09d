//go:build linux && cgo

package cverbs

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errWoken ends a wait that Wake interrupted.
var errWoken = errors.New("woken")

// waiter parks goroutines on a descriptor that belongs to a C object. The descriptor is duplicated, so that Go's poller and the C
// library each close their own.
type waiter struct {
	file  *os.File
	raw   syscall.RawConn
	gate  chan struct{} // holds a token while one goroutine waits: the deadline belongs to the descriptor, not to a goroutine
	done  chan struct{}
	woken atomic.Bool
}

func newWaiter(fd int, name string) (*waiter, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, &Error{Verb: "fcntl", Errno: errnoOf(err), Advice: name}
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &Error{Verb: "fcntl", Errno: errnoOf(err), Advice: "duplicating the descriptor of a " + name + "; see ulimit -n"}
	}
	w := &waiter{file: os.NewFile(uintptr(dup), name), gate: make(chan struct{}, 1), done: make(chan struct{})}
	if err = w.file.SetReadDeadline(time.Time{}); err == nil { // fails where the descriptor cannot be polled
		w.raw, err = w.file.SyscallConn()
	}
	if err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// wait parks until try returns true, and calls it at least once; the zero deadline never expires, ctx may be nil. The caller is
// between enter and exit: no other goroutine's try runs.
func (w *waiter) wait(ctx context.Context, deadline time.Time, try func(uintptr) bool) error {
	if ctx != nil {
		stop := context.AfterFunc(ctx, w.interrupt)
		defer stop()
	}
	if w.woken.Swap(false) {
		return errWoken
	}
	if try(0) {
		return nil
	}
	for {
		// A Wake or a cancellation that came before this line is seen below; a later one moves the deadline again.
		w.file.SetReadDeadline(deadline)
		if w.woken.Swap(false) {
			return errWoken
		}
		if ctx != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := w.raw.Read(try)
		if err == nil {
			return nil
		}
		select {
		case <-w.done:
			return ErrClosed
		default:
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) && !w.woken.Load() {
			return os.ErrDeadlineExceeded
		}
	}
}

// enter waits for its turn, within the same bounds.
func (w *waiter) enter(ctx context.Context, deadline time.Time) error {
	select {
	case w.gate <- struct{}{}:
		return nil
	default:
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		expired = t.C
	}
	var cancelled <-chan struct{}
	if ctx != nil {
		cancelled = ctx.Done()
	}
	select {
	case w.gate <- struct{}{}:
		return nil
	case <-w.done:
		return ErrClosed
	case <-expired:
		return os.ErrDeadlineExceeded
	case <-cancelled:
		return context.Cause(ctx)
	}
}

func (w *waiter) exit() { <-w.gate }

// interrupt makes the parked goroutine look around.
func (w *waiter) interrupt() { w.file.SetReadDeadline(time.Unix(1, 0)) }

func (w *waiter) wake() {
	w.woken.Store(true)
	w.interrupt()
}

func (w *waiter) close() {
	close(w.done)
	w.file.Close()
}
