//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_get_cm_event
// #cgo nocallback cv_get_cm_event
import "C"

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// EventChannel delivers the events of connection manager ids.
type EventChannel struct {
	life life
	c    *C.struct_rdma_event_channel
	w    *waiter
	try  func(uintptr) bool
	// mu keeps an id's QP from being destroyed while librdmacm, taking an event, may change its state.
	mu sync.Mutex
	ev C.struct_cv_cm_event
	rc C.int
}

// CreateEventChannel creates a channel for connection manager events. Errors: ENODEV, ENOENT or
// EACCES where the connection manager cannot be used; the text names what is missing.
//
// Implements: rdma_create_event_channel.
func CreateEventChannel() (*EventChannel, error) {
	ch := &EventChannel{}
	ch.life.begin(kindEventChannel)
	v, err := C.cv_cm_channel()
	if v == nil {
		return nil, nodeError("rdma_create_event_channel", errnoOf(err), "/dev/infiniband/rdma_cm", "rdma_ucm")
	}
	if ch.w, err = newWaiter(int(v.fd), "rdma_cm event channel"); err != nil {
		C.rdma_destroy_event_channel(v)
		return nil, err
	}
	ch.c, ch.try = v, ch.take
	ch.life.open()
	return ch, nil
}

// Get blocks until the next event, copies and acknowledges it. The zero deadline never expires;
// with an expired deadline Get still takes a pending event. Events of closed ids are dropped.
// Concurrent callers take turns. Errors: os.ErrDeadlineExceeded, also after Wake; ErrClosed once
// Close has begun.
//
// Implements: rdma_get_cm_event, rdma_ack_cm_event.
func (ch *EventChannel) Get(deadline time.Time) (CMEvent, error) {
	return orZero(ch).get(context.Background(), deadline)
}

// GetContext is Get with a context instead of a deadline. Its error is the cause of the context's
// end.
//
// Extension.
func (ch *EventChannel) GetContext(ctx context.Context) (CMEvent, error) {
	ch = orZero(ch)
	return ch.get(ctx, time.Time{})
}

// Wake makes the current Get, or else the next one, return os.ErrDeadlineExceeded at once.
//
// Extension.
func (ch *EventChannel) Wake() {
	ch = orZero(ch)
	if ch.life.enter() {
		ch.w.wake()
		ch.life.leave()
	}
}

// Close destroys the channel; a blocked Get returns ErrClosed. Errors: ErrInUse while an id uses
// it.
//
// Implements: rdma_destroy_event_channel.
func (ch *EventChannel) Close() error {
	ch = orZero(ch)
	return ch.life.close(ch.w.close, func() error {
		C.rdma_destroy_event_channel(ch.c)
		return nil
	})
}

func (ch *EventChannel) get(ctx context.Context, deadline time.Time) (CMEvent, error) {
	if !ch.life.enter() {
		return CMEvent{}, ErrClosed
	}
	defer ch.life.leave()
	if err := ch.w.enter(ctx, deadline); err != nil {
		return CMEvent{}, err
	}
	defer ch.w.exit()
	for {
		if err := ch.w.wait(ctx, deadline, ch.try); err != nil {
			if err == errWoken {
				err = os.ErrDeadlineExceeded
			}
			return CMEvent{}, err
		}
		if ch.rc != 0 {
			return CMEvent{}, rcError("rdma_get_cm_event", ch.rc, nil)
		}
		if ev, ok := ch.event(); ok {
			return ev, nil
		}
	}
}

// take reads one event if one is pending. Only the goroutine that holds the waiter calls it.
func (ch *EventChannel) take(uintptr) bool {
	ch.mu.Lock()
	ch.rc = C.cv_get_cm_event(ch.c, &ch.ev)
	ch.mu.Unlock()
	return syscall.Errno(ch.rc) != syscall.EAGAIN
}

// event converts the event that take read. It returns false when the event's id is closed.
func (ch *EventChannel) event() (CMEvent, bool) {
	e := &ch.ev
	ev := CMEvent{
		Type: CMEventType(e._type), Status: int(e.status),
		ConnParam: ConnParam{
			ResponderResources: uint8(e.conn.responder_resources), InitiatorDepth: uint8(e.conn.initiator_depth),
			FlowControl: e.conn.flow_control != 0, RetryCount: uint8(e.conn.retry_count),
			RNRRetryCount: uint8(e.conn.rnr_retry_count), SRQ: e.conn.srq != 0, QPNum: uint32(e.conn.qp_num),
		},
		QKey: uint32(e.qkey), AH: goAHAttr(&e.ah),
	}
	if n := int(e.private_len); n > 0 {
		ev.PrivateData = C.GoBytes(unsafe.Pointer(&e.private_data[0]), C.int(n))
	}
	if e.new_id == 0 {
		ev.ID = cmids.get(uintptr(e.id))
		if id := ev.ID; id != nil && ev.Type == CMEventAddrResolved && id.life.enter() {
			keepContext(id.c.verbs)
			id.life.leave()
		}
		return ev, ev.ID != nil
	}
	ev.ListenID = cmids.get(uintptr(e.listen_id))
	c := C.cv_cm_id_of(e.new_id)
	keepContext(c.verbs)
	id := &CMID{ch: ch}
	if err := id.life.begin(kindCMID, &ch.life); err != nil || ev.ListenID == nil {
		// The listener is closed. Destroying the id rejects the request.
		if err == nil {
			id.life.abort()
		}
		C.rdma_destroy_id(c)
		return ev, false
	}
	id.open(c)
	ev.ID = id
	return ev, true
}
