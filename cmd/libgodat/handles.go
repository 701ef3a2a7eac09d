//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/godat/godat/udat"
)

// entry is the Go side of a handle.
type entry struct {
	udat.Handle
	c       *C.godat_handle
	ia      *adapter
	lmr     atomic.Pointer[udat.LMR] // the region of the latest post
	rawPoll bool                     // an empty queue answers without the error bit, as C DAPL does
	agent   agent                    // of a CNO
}

// Each C handle has a slot of the table for ever. A handle that is freed is used again when
// quarantine more have been freed after it: until then it answers INVALID_HANDLE.
const (
	chunk      = 1024
	quarantine = 4096
)

var (
	table [4096]atomic.Pointer[[chunk]atomic.Pointer[entry]]

	handles struct {
		sync.Mutex
		made  uint32
		freed []*C.godat_handle
	}
)

// find returns the object of a handle and its entry, nil if the handle is none of this provider's,
// of another kind, or freed.
func find[T udat.Handle](h C.DAT_HANDLE) (object T, e *entry) {
	c := (*C.godat_handle)(h)
	if c == nil || c.magic != C.GODAT_MAGIC {
		return object, nil
	}
	if e = table[c.slot/chunk].Load()[c.slot%chunk].Load(); e == nil {
		return object, nil
	}
	object, ok := e.Handle.(T)
	if !ok {
		return object, nil
	}
	return object, e
}

// optional is find for an argument that may be DAT_HANDLE_NULL; ok is false for a bad handle.
func optional[T udat.Handle](h C.DAT_HANDLE) (object T, ok bool) {
	if h == nil {
		return object, true
	}
	object, e := find[T](h)
	return object, e != nil
}

// newHandle makes the handle of an object; nil if memory is short.
func (ia *adapter) newHandle(object udat.Handle) *entry {
	kind, err := udat.GetHandleType(object)
	if err != nil {
		return nil
	}
	handles.Lock()
	defer handles.Unlock()
	var c *C.godat_handle
	if len(handles.freed) > quarantine {
		c = handles.freed[0]
		handles.freed = handles.freed[1:]
	} else {
		if handles.made == uint32(len(table)*chunk) {
			return nil
		}
		if c = C.godat_handle_new(); c == nil {
			return nil
		}
		if c.slot = C.uint32_t(handles.made); c.slot%chunk == 0 {
			table[c.slot/chunk].Store(new([chunk]atomic.Pointer[entry]))
		}
		handles.made++
	}
	c.provider, c.context = ia.provider, C.DAT_CONTEXT{}
	e := &entry{Handle: object, c: c, ia: ia}
	table[c.slot/chunk].Load()[c.slot%chunk].Store(e)
	atomic.StoreUint32((*uint32)(&c.kind), uint32(kind)+1)
	udat.SetConsumerContext(object, uint64(uintptr(unsafe.Pointer(c)))) // for handleOf
	ia.mu.Lock()
	ia.entries[e] = struct{}{}
	ia.mu.Unlock()
	return e
}

// free ends the handle of an object that has been freed.
func (e *entry) free() {
	e.ia.mu.Lock()
	delete(e.ia.entries, e)
	e.ia.mu.Unlock()
	slot := &table[e.c.slot/chunk].Load()[e.c.slot%chunk]
	if !slot.CompareAndSwap(e, nil) {
		return // another call has freed it
	}
	atomic.StoreUint32((*uint32)(&e.c.kind), 0)
	handles.Lock()
	handles.freed = append(handles.freed, e.c)
	handles.Unlock()
}

// handleOf is the handle of an object that a call or an event returns; nil for none.
func handleOf(object udat.Handle) C.DAT_HANDLE {
	context, _ := udat.GetConsumerContext(object)
	return *(*C.DAT_HANDLE)(unsafe.Pointer(&context)) // memory of C
}

// made stores the handle of a new object, unless it could not be made; without a handle the object
// is freed.
func (ia *adapter) made(object interface {
	udat.Handle
	Free() error
}, err error, out *C.DAT_HANDLE) C.DAT_RETURN {
	if err != nil {
		return code(err)
	}
	e := ia.newHandle(object)
	if e == nil {
		object.Free()
		return failure(udat.InsufficientResources, udat.SubResourceMemory)
	}
	*out = C.DAT_HANDLE(e.c)
	return C.DAT_SUCCESS
}

// freed ends a handle if its object has been freed.
func (e *entry) freed(err error) C.DAT_RETURN {
	if err == nil {
		e.free()
	}
	return code(err)
}

// on calls a function with the object of a handle; bad is the error of a bad handle.
func on[T udat.Handle](h C.DAT_HANDLE, bad udat.Subtype, call func(T) error) C.DAT_RETURN {
	object, e := find[T](h)
	if e == nil {
		return badHandle(bad)
	}
	return code(call(object))
}

// free frees the object of a handle, and the handle.
func free[T interface {
	udat.Handle
	Free() error
}](h C.DAT_HANDLE, bad udat.Subtype) C.DAT_RETURN {
	object, e := find[T](h)
	if e == nil {
		return badHandle(bad)
	}
	return e.freed(object.Free())
}

// query checks the arguments of a query, the handle, the mask and where the result goes, and asks
// the object.
func query[T udat.Handle, P any](h C.DAT_HANDLE, bad udat.Subtype, mask, out bool, ask func(T) (P, error)) (p P,
	e *entry, ret C.DAT_RETURN) {
	object, e := find[T](h)
	switch {
	case e == nil:
		return p, nil, badHandle(bad)
	case !mask:
		return p, nil, badArgument(2)
	case !out:
		return p, nil, badArgument(3)
	}
	p, err := ask(object)
	return p, e, code(err)
}
