//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_drain_cq_events
// #cgo nocallback cv_drain_cq_events
import "C"

import (
	"context"
	"syscall"
	"time"
	"unsafe"
)

// CompChannel reports which armed completion queues have completions to poll.
type CompChannel struct {
	life  life
	c     *C.struct_ibv_comp_channel
	w     *waiter
	try   func(uintptr) bool
	fired [64]C.uint64_t
	n     int
	err   error
}

// CreateCompChannel creates a completion channel for CreateCQ. Several queues may share it.
//
// Implements: ibv_create_comp_channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	c = orZero(c)
	ch := &CompChannel{}
	if err := ch.life.begin(kindCompChannel, &c.life); err != nil {
		return nil, err
	}
	v, err := C.ibv_create_comp_channel(c.c)
	if v == nil {
		ch.life.abort()
		return nil, nodeError("ibv_create_comp_channel", errnoOf(err), "the device", "ib_uverbs")
	}
	if ch.w, err = newWaiter(int(v.fd), "completion channel"); err != nil {
		C.ibv_destroy_comp_channel(v)
		ch.life.abort()
		return nil, err
	}
	ch.c, ch.try, ch.w.blocks = v, ch.drain, true
	ch.life.open()
	return ch, nil
}

// Wait blocks until at least one completion event is pending. Then it takes and acknowledges
// pending events, and returns their number. CQ.Fired reports the queues that the events belong to.
// One Wait takes at most as many events as the channel has completion queues, and at most 64. If
// events are left, the next Wait returns at once.
//
// An event means that a completion arrived after the queue was armed. So arm the queue, poll until
// it is empty, and then call Wait.
//
// The zero deadline never expires; with an expired deadline Wait still takes pending events. After
// Wake it returns 0, nil. Concurrent callers take turns. Wait does not allocate unless callers
// contend. Errors: os.ErrDeadlineExceeded; ErrClosed once Close has begun.
//
// Implements: ibv_get_cq_event, ibv_ack_cq_events.
func (ch *CompChannel) Wait(deadline time.Time) (int, error) {
	return orZero(ch).wait(context.Background(), deadline)
}

// WaitContext does what Wait does, with a context instead of a deadline. When ctx ends, WaitContext
// returns context.Cause(ctx).
//
// Extension.
func (ch *CompChannel) WaitContext(ctx context.Context) (int, error) {
	ch = orZero(ch)
	return ch.wait(ctx, time.Time{})
}

// Wake interrupts Wait: the call that is waiting, or else the next call, returns 0, nil at once.
// Several Wakes before that call count as one. On a closed channel Wake does nothing.
//
// Extension.
func (ch *CompChannel) Wake() {
	ch = orZero(ch)
	if ch.life.enter() {
		ch.w.wake()
		ch.life.leave()
	}
}

// Close destroys the channel. A blocked Wait returns ErrClosed. Errors: ErrInUse while a completion
// queue uses the channel.
//
// Implements: ibv_destroy_comp_channel.
func (ch *CompChannel) Close() error {
	ch = orZero(ch)
	return ch.life.close(ch.w.close, func() error {
		rc, err := C.ibv_destroy_comp_channel(ch.c)
		return rcError("ibv_destroy_comp_channel", rc, err)
	})
}

func (ch *CompChannel) wait(ctx context.Context, deadline time.Time) (int, error) {
	if !ch.life.enter() {
		return 0, ErrClosed
	}
	defer ch.life.leave()
	if err := ch.w.enter(ctx, deadline); err != nil {
		return 0, err
	}
	defer ch.w.exit()
	ch.n, ch.err = 0, nil
	if err := ch.w.wait(ctx, deadline, ch.try); err != nil {
		if err == errWoken {
			err = nil
		}
		return 0, err
	}
	return ch.n, ch.err
}

// drain takes pending events. It returns false if no event is pending. It stops after as many
// events as the channel has queues: with one queue this saves a second read, which would find no
// event. Only the goroutine that has called w.enter may call drain.
func (ch *CompChannel) drain(uintptr) bool {
	most := min(max(ch.life.children(kindCQ), 1), len(ch.fired))
	k := int(C.cv_drain_cq_events(ch.c, (*C.uint64_t)(unsafe.Pointer(&ch.fired)), C.int(most)))
	if k < 0 {
		if syscall.Errno(-k) == syscall.EAGAIN {
			return false
		}
		ch.err = &Error{Verb: "ibv_get_cq_event", Errno: syscall.Errno(-k)}
		return true
	}
	for _, h := range ch.fired[:k] {
		if q := byHandle.cqs.get(uintptr(h)); q != nil {
			q.fired.Store(true)
		}
	}
	ch.n = k
	return true
}
