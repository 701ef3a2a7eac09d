//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_get_async_event
// #cgo nocallback cv_get_async_event
import "C"

import (
	"context"
	"os"
	"syscall"
	"time"
)

// AsyncEvent waits for the device's next asynchronous event and acknowledges it. The zero deadline
// never expires. Concurrent callers take turns. Errors: os.ErrDeadlineExceeded at the deadline and
// after WakeAsync; ErrClosed once Close has begun.
//
// Implements: ibv_get_async_event, ibv_ack_async_event.
func (c *Context) AsyncEvent(deadline time.Time) (AsyncEvent, error) {
	return orZero(c).waitAsync(context.Background(), deadline)
}

// AsyncEventContext does what AsyncEvent does, with a context instead of a deadline. When ctx ends,
// AsyncEventContext returns context.Cause(ctx).
//
// Extension.
func (c *Context) AsyncEventContext(ctx context.Context) (AsyncEvent, error) {
	c = orZero(c)
	return c.waitAsync(ctx, time.Time{})
}

// WakeAsync interrupts AsyncEvent: the call that is waiting, or else the next call, returns
// os.ErrDeadlineExceeded at once.
//
// Extension.
func (c *Context) WakeAsync() {
	c = orZero(c)
	if c.life.enter() {
		c.async.wake()
		c.life.leave()
	}
}

func (c *Context) waitAsync(ctx context.Context, deadline time.Time) (AsyncEvent, error) {
	if !c.life.enter() {
		return AsyncEvent{}, ErrClosed
	}
	defer c.life.leave()
	if err := c.async.enter(ctx, deadline); err != nil {
		return AsyncEvent{}, err
	}
	defer c.async.exit()
	if c.asyncFn == nil {
		c.asyncFn = c.takeAsync // stored, because a new func value for each wait would allocate
	}
	switch err := c.async.wait(ctx, deadline, c.asyncFn); {
	case err == errWoken:
		return AsyncEvent{}, os.ErrDeadlineExceeded
	case err != nil:
		return AsyncEvent{}, err
	case c.asyncRC != 0:
		return AsyncEvent{}, rcError("ibv_get_async_event", c.asyncRC, nil)
	}
	return c.asyncEvent(), nil
}

// takeAsync reads one event. It returns false if no event is pending. Only the goroutine that has
// called async.enter may call takeAsync.
func (c *Context) takeAsync(uintptr) bool {
	c.asyncRC = C.cv_get_async_event(c.c, &c.asyncEv)
	return syscall.Errno(c.asyncRC) != syscall.EAGAIN
}

func (c *Context) asyncEvent() AsyncEvent {
	e := &c.asyncEv
	return AsyncEvent{
		Type: AsyncEventType(e._type), Port: uint8(e.port),
		QP: byHandle.qps.get(uintptr(e.qp)), CQ: byHandle.cqs.get(uintptr(e.cq)), SRQ: byHandle.srqs.get(uintptr(e.srq)),
		WQ: byHandle.wqs.get(uintptr(e.wq)),
	}
}
