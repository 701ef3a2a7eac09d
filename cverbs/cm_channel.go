//go:build linux && cgo

package cverbs

// #include "shim.h"
// #cgo noescape cv_get_cm_event
// #cgo nocallback cv_get_cm_event
import "C"

import (
	"sync"
	"syscall"
)

// EventChannel delivers the events of connection manager ids.
type EventChannel struct {
	life life
	c    *C.struct_rdma_event_channel
	w    *waiter
	try  func(uintptr) bool
	// mu is held while librdmacm takes an event, because librdmacm may then change the state of an
	// id's queue pair. mu is also held while such a queue pair is destroyed or leaves a multicast
	// group.
	mu sync.Mutex
	ev C.struct_cv_cm_event
	rc C.int
}

// CreateEventChannel creates a channel for connection manager events. Errors: ENODEV, ENOENT or
// EACCES if the connection manager cannot be used; the text names what is missing. ErrNotSupported
// as for Devices.
//
// Implements: rdma_create_event_channel.
func CreateEventChannel() (*EventChannel, error) {
	if err := load(); err != nil {
		return nil, err
	}
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

// Wake interrupts Get: the call that is waiting, or else the next call, returns
// os.ErrDeadlineExceeded at once.
//
// Extension.
func (ch *EventChannel) Wake() {
	ch = orZero(ch)
	if ch.life.enter() {
		ch.w.wake()
		ch.life.leave()
	}
}

// Close destroys the channel. A blocked Get returns ErrClosed. Errors: ErrInUse while an id uses
// the channel.
//
// Implements: rdma_destroy_event_channel.
func (ch *EventChannel) Close() error {
	ch = orZero(ch)
	return ch.life.close(ch.w.close, func() error {
		C.rdma_destroy_event_channel(ch.c)
		return nil
	})
}

// take reads one event. It returns false if no event is pending. Only the goroutine that has called
// w.enter may call take.
func (ch *EventChannel) take(uintptr) bool {
	ch.mu.Lock()
	ch.rc = C.cv_get_cm_event(ch.c, &ch.ev)
	ch.mu.Unlock()
	return syscall.Errno(ch.rc) != syscall.EAGAIN
}
