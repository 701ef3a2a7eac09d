//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"context"
	"os"
	"time"
	"unsafe"
)

// Get blocks until an event is pending, copies the event and acknowledges it. The zero deadline
// never expires; with an expired deadline Get still takes a pending event. Get drops the events of
// closed ids, and of multicast groups that have been left. Concurrent callers take turns. Errors:
// os.ErrDeadlineExceeded at the deadline and after Wake; ErrClosed once Close has begun.
//
// Implements: rdma_get_cm_event, rdma_ack_cm_event.
func (ch *EventChannel) Get(deadline time.Time) (CMEvent, error) {
	return orZero(ch).get(context.Background(), deadline)
}

// GetContext does what Get does, with a context instead of a deadline. When ctx ends, GetContext
// returns context.Cause(ctx).
//
// Extension.
func (ch *EventChannel) GetContext(ctx context.Context) (CMEvent, error) {
	ch = orZero(ch)
	return ch.get(ctx, time.Time{})
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

// event converts the event that the method take has read. It returns false if Get must drop the
// event, because the event's id or listener is closed, or its multicast group has been left.
func (ch *EventChannel) event() (CMEvent, bool) {
	e := &ch.ev
	ev := CMEvent{
		Type: CMEventType(e._type), Status: int(e.status),
		ConnParam: goConnParam(&e.conn),
		QKey:      uint32(e.qkey), AH: goAHAttr(&e.ah),
	}
	if n := int(e.private_len); n > 0 {
		ev.PrivateData = C.GoBytes(unsafe.Pointer(&e.private_data[0]), C.int(n))
	}
	if e.new_id == 0 {
		ev.ID = byHandle.ids.get(uintptr(e.id))
		if ev.ID != nil && ev.Type <= CMEventDeviceRemoval { // later types are not steps of an id
			ev.ID.step.Store(uint32(cmEvents) + uint32(ev.Type))
		}
		if ev.ID != nil && e.join != 0 {
			ev.Group = ev.ID.group(uintptr(e.join))
			return ev, ev.Group.IsValid()
		}
		return ev, ev.ID != nil
	}
	ev.ListenID = byHandle.ids.get(uintptr(e.listen_id))
	c := C.cv_cm_id_of(e.new_id)
	id := &CMID{ch: ch}
	if err := id.life.begin(kindCMID, &ch.life); err != nil || ev.ListenID == nil {
		// The listener or the channel is closed. Destroying the id rejects the request.
		if err == nil {
			id.life.abort()
		}
		C.rdma_destroy_id(c)
		return ev, false
	}
	id.open(c)
	id.step.Store(uint32(cmConnectRequest))
	ev.ID = id
	return ev, true
}
