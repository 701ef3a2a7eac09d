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

// softContexts are librdmacm's contexts of software devices. librdmacm keeps a context for ever,
// and the kernel does not remove a software device while a process has a context of it open. So
// their descriptors are replaced once the device has left sysfs, where it disappears first; the
// context itself is librdmacm's to free. Hardware drivers take the device away from open contexts:
// theirs are nil here.
var softContexts struct {
	mu sync.Mutex
	m  map[*C.struct_ibv_context]*softContext
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

// Vendor ids of software devices: the kernel's soft-RoCE and soft-iWARP.
const (
	vendorRXE = 0xffffff
	vendorSIW = 0x626d74
)

// removalPoll is the time between two looks at sysfs. It bounds how long the kernel waits for
// librdmacm's contexts when a device is removed.
const removalPoll = 500 * time.Millisecond

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
	case 0: // the query failed: asked again with the device's next id
	case vendorRXE, vendorSIW:
		folder, err := os.Stat(C.GoString(&v.device.dev_path[0]))
		if err != nil {
			return
		}
		if list := C.cv_cm_devices(); list != nil {
			s.m[v] = &softContext{folder, list}
			time.AfterFunc(removalPoll, func() { releaseRemoved(v) })
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

// releaseRemoved lets go of a context if its device has left sysfs and nothing of CMID.Context uses
// it; else it will look again.
func releaseRemoved(v *C.struct_ibv_context) {
	s := &softContexts
	s.mu.Lock()
	defer s.mu.Unlock()
	soft := s.m[v]
	now, err := os.Stat(C.GoString(&v.device.dev_path[0]))
	removed := os.IsNotExist(err) || err == nil && !os.SameFile(soft.folder, now)
	if removed && !borrowed(v) {
		null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
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
			return
		}
	}
	time.AfterFunc(removalPoll, func() { releaseRemoved(v) })
}
