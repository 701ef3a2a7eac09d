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

// waiter parks goroutines on a descriptor that belongs to a C object. Go's poller gets an epoll set of it instead: C closes its own, and
// while a thread waits for it (blocker) the set does not, so that the poller sleeps on.
type waiter struct {
	file  *os.File
	raw   syscall.RawConn
	gate  chan struct{} // holds a token while one goroutine waits: the deadline belongs to the descriptor, not to a goroutine
	done  chan struct{}
	woken atomic.Bool

	fd      int  // the C object's, open as long as somebody waits
	watched bool // file, an epoll set, waits for it

	blocks  bool                    // may block threads
	brief   bool                    // the last wait was shorter than blockFor
	yielded time.Time               // when the goroutine that blocks yielded last
	blocked atomic.Pointer[blocker] // of the wait that blocks a thread now
}

func newWaiter(fd int, name string) (*waiter, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, &Error{Verb: "fcntl", Errno: errnoOf(err), Advice: name}
	}
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, &Error{Verb: "epoll_create1", Errno: errnoOf(err), Advice: "to wait for a " + name + "; see ulimit -n"}
	}
	unix.SetNonblock(set, true)
	w := &waiter{file: os.NewFile(uintptr(set), name), gate: make(chan struct{}, 1), done: make(chan struct{}), fd: fd}
	if err = w.file.SetReadDeadline(time.Time{}); err == nil { // fails where the descriptor cannot be polled
		w.raw, err = w.file.SyscallConn()
	}
	if err == nil {
		err = w.watch(true)
	}
	if err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// wait parks until try returns true, and calls it at least once; the zero deadline never expires. The caller is
// between enter and exit: no other goroutine's try runs.
func (w *waiter) wait(ctx context.Context, deadline time.Time, try func(uintptr) bool) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, w.interrupt)
		defer stop()
	}
	if w.woken.Swap(false) {
		return errWoken
	}
	start := time.Now()
	defer func() { w.brief = time.Since(start) < blockFor }()
	late := !deadline.IsZero() && !start.Before(deadline) // the poller would not even try
	if (late || w.block(ctx, deadline)) && try(0) {
		return nil
	}
	if err := w.watch(true); err != nil && !w.over(context.Background()) {
		return err
	}
	for {
		// A Wake or a cancellation that came before this line is seen below; a later one moves the deadline again.
		w.file.SetReadDeadline(deadline)
		if w.woken.Swap(false) {
			return errWoken
		}
		if ctx.Err() != nil {
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

// watch makes the set wait for the descriptor, or not. A set that keeps the descriptor wakes the poller whatever events it wants.
func (w *waiter) watch(on bool) error {
	if w.watched == on {
		return nil
	}
	op := unix.EPOLL_CTL_DEL
	if on {
		op = unix.EPOLL_CTL_ADD
	}
	var failed error
	err := w.raw.Control(func(set uintptr) {
		failed = unix.EpollCtl(int(set), op, w.fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	})
	if err != nil {
		return err
	}
	if failed != nil {
		return &Error{Verb: "epoll_ctl", Errno: errnoOf(failed)}
	}
	w.watched = on
	return nil
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
	select {
	case w.gate <- struct{}{}:
		return nil
	case <-w.done:
		return ErrClosed
	case <-expired:
		return os.ErrDeadlineExceeded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *waiter) exit() { <-w.gate }

// interrupt makes the goroutine that waits look around.
func (w *waiter) interrupt() {
	w.file.SetReadDeadline(time.Unix(1, 0))
	if b := w.blocked.Load(); b != nil {
		b.kick()
	}
}

func (w *waiter) wake() {
	w.woken.Store(true)
	w.interrupt()
}

func (w *waiter) close() {
	close(w.done)
	w.interrupt()
	w.file.Close()
}
