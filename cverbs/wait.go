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

	"github.com/godat/godat/internal/blocker"
)

// errWoken is the result of a wait that Wake ended.
var errWoken = errors.New("woken")

// waiter parks goroutines until the descriptor of a C object is readable. Go's poller does not wait
// on this descriptor, but on an epoll set that contains it, for two reasons. First, C closes the
// descriptor itself. Second, a thread may block on the descriptor (see package blocker). While a
// thread blocks, the method watch removes the descriptor from the set, so that the poller does not
// wake, too.
type waiter struct {
	file  *os.File
	raw   syscall.RawConn
	gate  chan struct{} // holds one token: only one goroutine waits at a time, because file has one deadline
	done  chan struct{}
	woken atomic.Bool

	setDeadline func(time.Time) error // file.SetReadDeadline; tests replace it

	fd      int  // descriptor of the C object; open while a call is in flight
	watched bool // fd is in the epoll set (file)

	control func(set uintptr) // runs op on the set; stored, because a new closure for each watch allocates
	op      int
	failed  error

	blocks  bool                            // block may block a thread
	last    time.Duration                   // how long the last wait took
	blocked atomic.Pointer[blocker.Blocker] // set while a thread is blocked
}

func newWaiter(fd int, name string) (*waiter, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, &Error{Verb: "fcntl", Errno: errnoOf(err), Advice: name}
	}
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		e := errnoOf(err)
		return nil, &Error{Verb: "epoll_create1", Errno: e, Advice: filesAdvice(e)}
	}
	unix.SetNonblock(set, true)
	w := &waiter{file: os.NewFile(uintptr(set), name), gate: make(chan struct{}, 1), done: make(chan struct{}), fd: fd,
		last: blocker.For}
	w.setDeadline = w.file.SetReadDeadline
	w.control = func(set uintptr) {
		w.failed = unix.EpollCtl(int(set), w.op, w.fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err = w.file.SetReadDeadline(time.Time{}); err == nil { // fails if the descriptor cannot be polled
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

// atOnce is about the time that a thread takes to block and to be woken. A wait that took less
// found its event at once.
const atOnce = 2 * time.Microsecond

// brief reports whether the next wait may block a thread. The last wait must have been shorter than
// blocker.For.
func (w *waiter) brief() bool { return w.blocks && w.last < blocker.For }

// wait parks the goroutine until the callback try returns true. It calls try at least once, unless
// Wake was called before. If the last wait was short but did not find its event at once, and there
// is no deadline, the method blocks the thread before it first calls try, which saves a system
// call. The zero deadline never expires. The caller has called enter, so no other goroutine is
// inside wait.
func (w *waiter) wait(ctx context.Context, deadline time.Time, try func(uintptr) bool) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, w.interrupt)
		defer stop()
	}
	if w.woken.Load() && w.woken.Swap(false) {
		return errWoken
	}
	early := !w.brief() || w.last < atOnce || !deadline.IsZero()
	if early && try(0) {
		w.last = 0
		return nil
	}
	start := time.Now()
	defer func() { w.last = time.Since(start) }()
	if (w.block(ctx, deadline) || !early) && try(0) {
		return nil
	}
	if err := w.watch(true); err != nil && !w.mustEnd(context.Background()) {
		return err
	}
	for {
		// The checks below see a Wake or cancellation that came before this line. A later Wake or
		// cancellation sets the deadline again, which ends the Read.
		w.setDeadline(deadline)
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

// block blocks the thread in the kernel if the last wait was shorter than blocker.For and a Blocker
// (see package blocker) is free. It returns false if it did not block. If it returns true, the
// descriptor may be readable.
func (w *waiter) block(ctx context.Context, deadline time.Time) bool {
	if !w.brief() {
		return false
	}
	b := blocker.Take()
	if b == nil {
		return false
	}
	defer b.GiveBack()
	if w.watch(false) != nil {
		return false
	}
	limit := blocker.For
	if !deadline.IsZero() {
		limit = min(limit, time.Until(deadline))
	}
	w.blocked.Store(b)
	if limit > 0 && !w.mustEnd(ctx) { // a later interrupt finds the blocker
		fds := [...]unix.PollFd{1: {Fd: int32(w.fd), Events: unix.POLLIN}}
		b.Wait(fds[:], limit)
	}
	w.blocked.Store(nil)
	return true
}

// mustEnd reports whether the wait must end: the waiter is closed, Wake was called, or ctx has
// ended.
func (w *waiter) mustEnd(ctx context.Context) bool {
	select {
	case <-w.done:
		return true
	default:
		return w.woken.Load() || ctx.Err() != nil
	}
}

// watch adds the descriptor to the set, or removes it. It is not enough to clear the descriptor's
// events in the set, because the set would still wake the poller.
func (w *waiter) watch(on bool) error {
	if w.watched == on {
		return nil
	}
	op := unix.EPOLL_CTL_DEL
	if on {
		op = unix.EPOLL_CTL_ADD
	}
	w.op = op
	if err := w.raw.Control(w.control); err != nil {
		return err
	}
	if w.failed != nil {
		return &Error{Verb: "epoll_ctl", Errno: errnoOf(w.failed)}
	}
	w.watched = on
	return nil
}

// enter waits until no other goroutine holds the waiter, at most until deadline or the end of ctx.
// If it succeeds the caller must call exit.
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

// interrupt makes the waiting goroutine check woken, done and its context.
func (w *waiter) interrupt() {
	w.file.SetReadDeadline(time.Unix(1, 0))
	if b := w.blocked.Load(); b != nil {
		b.Kick()
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
