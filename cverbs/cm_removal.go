//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"iter"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cmContexts are the Contexts of CMID.Context.
var cmContexts struct {
	mu sync.Mutex
	m  map[*C.struct_ibv_context]*Context
}

// softContexts are librdmacm's contexts of software devices. librdmacm keeps a context for ever,
// and the kernel does not remove a software device while a process has a context of it open. So
// their descriptors are replaced once the device has left sysfs, where it disappears first; the
// context itself is librdmacm's to free. Hardware drivers take the device away from open contexts:
// theirs are nil here.
var softContexts struct {
	mu      sync.Mutex
	m       map[*C.struct_ibv_context]*softContext
	timer   *time.Timer // of the next look at sysfs; nil: there are none of software devices
	uevents *os.File    // nil: they cannot be had
	hurry   time.Time   // until then a device is about to leave sysfs
}

type softContext struct {
	folder os.FileInfo            // of the device in sysfs
	list   **C.struct_ibv_context // of rdma_get_devices: while it exists librdmacm frees no context in it
}

// renew exchanges the list for one without the devices that have been removed, unless v's own
// device is one of them.
func (soft *softContext) renew(v *C.struct_ibv_context) {
	list := C.cv_cm_devices()
	if list == nil {
		return
	}
	for other := range contexts(list) {
		if other == v {
			soft.list, list = list, soft.list
			knowAll(soft.list)
			break
		}
	}
	C.rdma_free_devices(list)
}

// The time between two looks at sysfs is removalPoll without the kernel's reports, and removalCheck
// with them, in case that one is lost. A report comes before the device leaves sysfs: for
// removalHurry after one the time is removalQuick. It bounds how long the kernel waits for
// librdmacm's contexts when a device is removed.
const (
	removalPoll  = 500 * time.Millisecond
	removalCheck = 10 * time.Second
	removalQuick = 20 * time.Millisecond
	removalHurry = 5 * time.Second
)

// keepContext makes an id's device context known, when librdmacm has chosen it.
func keepContext(v *C.struct_ibv_context) {
	s := &softContexts
	s.mu.Lock()
	defer s.mu.Unlock()
	know(v)
}

// know makes a context known, and those that librdmacm opens with its list: all devices of the
// host. softContexts.mu is held.
func know(v *C.struct_ibv_context) {
	s := &softContexts
	if _, known := s.m[v]; known || v == nil {
		return
	}
	if s.m == nil {
		s.m = map[*C.struct_ibv_context]*softContext{}
	}
	switch C.cv_vendor(v) {
	case 0: // the query failed; the next id of this device repeats it
	case vendorRXE, vendorSIW:
		folder, err := os.Stat(C.GoString(&v.device.dev_path[0]))
		if err != nil {
			return
		}
		if list := C.cv_cm_devices(); list != nil {
			s.m[v] = &softContext{folder, list}
			watchRemovals()
			knowAll(list)
		}
	default:
		s.m[v] = nil
	}
}

func knowAll(list **C.struct_ibv_context) {
	for v := range contexts(list) {
		know(v)
	}
}

// contexts are those of a list of rdma_get_devices.
func contexts(list **C.struct_ibv_context) iter.Seq[*C.struct_ibv_context] {
	return func(yield func(*C.struct_ibv_context) bool) {
		for *list != nil && yield(*list) {
			list = (**C.struct_ibv_context)(unsafe.Add(unsafe.Pointer(list), unsafe.Sizeof(*list)))
		}
	}
}

// borrowed reports whether objects of the Context of CMID.Context exist.
func borrowed(v *C.struct_ibv_context) bool {
	cmContexts.mu.Lock()
	defer cmContexts.mu.Unlock()
	c := cmContexts.m[v]
	return c != nil && c.life.used() != nil
}

// watchRemovals begins the looks at sysfs; softContexts.mu is held.
func watchRemovals() {
	s := &softContexts
	if s.timer != nil {
		return
	}
	s.uevents, _ = openUevents()
	if s.uevents != nil {
		go watchDevices(s.uevents, hurry)
	}
	s.timer = time.AfterFunc(removalPause(), releaseRemoved)
}

// hurry makes the looks at sysfs frequent for a while.
func hurry() {
	s := &softContexts
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.hurry = time.Now().Add(removalHurry)
		s.timer.Reset(removalPause())
	}
}

// removalPause returns the time until the next look; softContexts.mu is held.
func removalPause() time.Duration {
	switch s := &softContexts; {
	case time.Now().Before(s.hurry):
		return removalQuick
	case s.uevents == nil:
		return removalPoll
	}
	return removalCheck
}

// releaseRemoved lets go of the contexts whose devices have left sysfs. A context that objects of
// CMID.Context still use is left to a later look.
func releaseRemoved() {
	s := &softContexts
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := removalPause()
	for v, soft := range s.m {
		if soft == nil {
			continue
		}
		now, err := os.Stat(C.GoString(&v.device.dev_path[0]))
		removed := os.IsNotExist(err) || err == nil && !os.SameFile(soft.folder, now)
		if removed && (borrowed(v) || !soft.release(v)) {
			pause = min(pause, removalPoll)
		}
	}
	for _, soft := range s.m { // release may have found other devices
		if soft != nil {
			s.timer.Reset(pause)
			return
		}
	}
	s.timer = nil
	if s.uevents != nil {
		s.uevents.Close()
		s.uevents = nil
	}
}

// release lets go of a context, unless the process has too many descriptors; softContexts.mu is
// held.
func (soft *softContext) release(v *C.struct_ibv_context) bool {
	s := &softContexts
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Dup3(null, int(v.cmd_fd), unix.O_CLOEXEC)
	unix.Dup3(null, int(v.async_fd), unix.O_CLOEXEC)
	unix.Close(null)
	C.rdma_free_devices(soft.list)
	delete(s.m, v)
	for other, soft := range s.m { // their lists have held v too
		if soft != nil {
			soft.renew(other)
		}
	}
	return true
}
