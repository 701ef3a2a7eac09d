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

// cmContexts are the Contexts that CMID.Context has returned.
var cmContexts struct {
	mu sync.Mutex
	m  map[*C.struct_ibv_context]*Context
}

// softContexts.m has the device contexts that librdmacm has opened. The context of a hardware
// device maps to nil.
//
// librdmacm never closes a context, and the kernel does not complete the removal of a software
// device while a process has a context of the device open. But when a removal begins, the device
// disappears from sysfs. The method release then replaces the file descriptors of the context by
// descriptors of /dev/null. librdmacm still owns the context itself. The drivers of hardware
// devices can remove a device in spite of open contexts.
var softContexts struct {
	mu    sync.Mutex
	m     map[*C.struct_ibv_context]*softContext
	timer *time.Timer // timer of the next check of sysfs; nil if there is no software device
}

type softContext struct {
	folder os.FileInfo            // the device's folder in sysfs
	list   **C.struct_ibv_context // a list of rdma_get_devices; librdmacm keeps the contexts in it
}

// renew replaces soft.list by a new list from rdma_get_devices, which does not contain removed
// devices. The context of soft is v. If v is not in the new list, renew keeps the old list.
func (soft *softContext) renew(v *C.struct_ibv_context) {
	list := C.cv_cm_devices()
	if list == nil {
		return
	}
	for other := range contexts(list) {
		if other == v {
			soft.list, list = list, soft.list
			recordContexts(soft.list)
			break
		}
	}
	C.rdma_free_devices(list)
}

// removalPoll is the time between two checks of sysfs, while there is a software device. The kernel
// completes the removal of the device only after a check has released its contexts.
const removalPoll = 500 * time.Millisecond

// keepContext records the device context that librdmacm has chosen for an id. If librdmacm has not
// chosen a context yet, v is nil and keepContext does nothing.
func keepContext(v *C.struct_ibv_context) {
	s := &softContexts
	s.mu.Lock()
	defer s.mu.Unlock()
	recordContext(v)
}

// recordContext records a context in softContexts. If the device is a software device, it also
// records the contexts of all other devices of the host, because cv_cm_devices makes librdmacm open
// them. The caller holds softContexts.mu.
func recordContext(v *C.struct_ibv_context) {
	s := &softContexts
	if _, known := s.m[v]; known || v == nil {
		return
	}
	if s.m == nil {
		s.m = map[*C.struct_ibv_context]*softContext{}
	}
	switch C.cv_vendor(v) {
	case 0: // the query failed; the next id on this device repeats the query
	case vendorRXE, vendorSIW:
		folder, err := os.Stat(C.GoString(&v.device.dev_path[0]))
		if err != nil {
			return
		}
		if list := C.cv_cm_devices(); list != nil {
			s.m[v] = &softContext{folder, list}
			if s.timer == nil {
				s.timer = time.AfterFunc(removalPoll, releaseRemoved)
			}
			recordContexts(list)
		}
	default:
		s.m[v] = nil
	}
}

func recordContexts(list **C.struct_ibv_context) {
	for v := range contexts(list) {
		recordContext(v)
	}
}

// contexts returns an iterator over the contexts in a list of rdma_get_devices.
func contexts(list **C.struct_ibv_context) iter.Seq[*C.struct_ibv_context] {
	return func(yield func(*C.struct_ibv_context) bool) {
		for *list != nil && yield(*list) {
			list = (**C.struct_ibv_context)(unsafe.Add(unsafe.Pointer(list), unsafe.Sizeof(*list)))
		}
	}
}

// The function borrowed reports whether CMID.Context has returned a Context for v, and objects of
// this Context are open.
func borrowed(v *C.struct_ibv_context) bool {
	cmContexts.mu.Lock()
	defer cmContexts.mu.Unlock()
	c := cmContexts.m[v]
	return c != nil && c.life.used() != nil
}

// releaseRemoved releases the contexts whose devices have left sysfs. A context on which the
// program still has objects open (see CMID.Context) is released by a later check.
func releaseRemoved() {
	s := &softContexts
	s.mu.Lock()
	defer s.mu.Unlock()
	for v, soft := range s.m {
		if soft == nil {
			continue
		}
		now, err := os.Stat(C.GoString(&v.device.dev_path[0]))
		if (os.IsNotExist(err) || err == nil && !os.SameFile(soft.folder, now)) && !borrowed(v) {
			soft.release(v)
		}
	}
	for _, soft := range s.m { // release may have added other devices
		if soft != nil {
			s.timer.Reset(removalPoll)
			return
		}
	}
	s.timer = nil
}

// release replaces the descriptors of the context v by descriptors of /dev/null, and frees
// soft.list. If the process cannot open /dev/null, the next check tries again. The caller holds
// softContexts.mu.
func (soft *softContext) release(v *C.struct_ibv_context) {
	s := &softContexts
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	unix.Dup3(null, int(v.cmd_fd), unix.O_CLOEXEC)
	unix.Dup3(null, int(v.async_fd), unix.O_CLOEXEC)
	unix.Close(null)
	C.rdma_free_devices(soft.list)
	delete(s.m, v)
	for other, soft := range s.m { // the lists of other contexts contain v, too
		if soft != nil {
			soft.renew(other)
		}
	}
}
