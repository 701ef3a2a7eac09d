package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// deadline is a deadline for the calls of a connection or a listener, whose lock guards it.
type deadline struct {
	at     time.Time // has a monotonic clock reading; zero: no deadline
	passed bool
	timer  *time.Timer
}

// set sets the deadline; mu is held. When the deadline has passed, onPassed is called with mu held.
// Changes of the wall clock do not move the deadline.
func (d *deadline) set(mu sync.Locker, t time.Time, onPassed func()) {
	d.at, d.passed = time.Time{}, false
	if d.timer != nil {
		d.timer.Stop()
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		onPassed()
		return
	}
	d.at = time.Now().Add(left)
	if d.timer != nil {
		d.timer.Reset(left)
		return
	}
	d.timer = time.AfterFunc(left, func() {
		mu.Lock()
		defer mu.Unlock()
		if !d.at.IsZero() && !time.Now().Before(d.at) { // otherwise the deadline has been set again
			d.passed = true
			onPassed()
		}
	})
}

// errDeadPeer is the error if the peer's device or program does not answer.
var errDeadPeer = timeoutError{fmt.Errorf("%w: the peer does not answer", syscall.ETIMEDOUT)}

// timeoutError is a [net.Error] whose Timeout method returns true.
type timeoutError struct{ error }

func (timeoutError) Timeout() bool { return true }

func (e timeoutError) Unwrap() error { return e.error }

// lateError is the error of a Dial whose time is over. It matches context.DeadlineExceeded, as the
// error of package net does, even if only the Dialer's Timeout has passed.
type lateError struct{ timeoutError }

func (lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// withErrno returns cause with errno in its chain. The parameter cause may be nil.
func withErrno(cause error, errno syscall.Errno) error {
	switch {
	case cause == nil:
		return errno
	case errors.Is(cause, errno):
		return cause
	}
	return fmt.Errorf("%w: %w", errno, cause)
}
