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
	c         *C.godat_handle
	ia        *adapter
	slot      slot
	lmr       atomic.Pointer[udat.LMR] // the region of the latest post
	rawPoll   bool                     // an empty queue returns QUEUE_EMPTY without the error bit, as with C DAPL
	agent     agent                    // the agent of a CNO
	extension C.DAT_EVD_FLAGS          // DAT_IB_EVD_EXTENSION_FLAG, if an EVD has it
	untaken   atomic.Pointer[wait]     // the wait of a cancelled thread, with its event
	request   reserved                 // the arguments of a reserved service point
}

// quarantine is how many more handles must be freed before a freed handle is reused. Until then
// calls with the freed handle return INVALID_HANDLE. Each C handle has a slot of its own for ever:
// the position of the handle in the memory of handles determines the slot.
const quarantine = 4096

type slot = *atomic.Pointer[entry]

var (
	table [C.GODAT_PIECES]atomic.Pointer[[]atomic.Pointer[entry]]

	handles struct {
		sync.Mutex
		piece, used int // number of pieces of memory; number of handles made in the latest piece
		freed       []slotted
	}
)

// slotted is the memory of a handle, and its slot.
type slotted struct {
	c    *C.godat_handle
	slot slot
}

// slotOf returns the slot of a handle, or nil if this provider did not make the handle. It does not
// read the memory that the handle points to.
func slotOf(h C.DAT_HANDLE) slot {
	for i := range table {
		piece := table[i].Load()
		if piece == nil {
			break
		}
		offset := uintptr(h) - uintptr(unsafe.Pointer(C.godat_handles[i]))
		if n := offset / C.sizeof_godat_handle; n < uintptr(len(*piece)) {
			if offset%C.sizeof_godat_handle != 0 {
				break
			}
			return &(*piece)[n]
		}
	}
	return nil
}

// newSlot returns memory for a handle. ok is false if memory is short. The caller has locked the
// variable handles.
func newSlot() (s slotted, ok bool) {
	if len(handles.freed) > quarantine {
		s = handles.freed[0]
		handles.freed = handles.freed[1:]
		return s, true
	}
	if handles.piece == 0 || handles.used == C.GODAT_PIECE<<(handles.piece-1) {
		if handles.piece == len(table) || C.godat_handles_more(C.int(handles.piece)) == nil {
			return s, false
		}
		piece := make([]atomic.Pointer[entry], C.GODAT_PIECE<<handles.piece)
		table[handles.piece].Store(&piece)
		handles.piece++
		handles.used = 0
	}
	i, n := handles.piece-1, handles.used
	handles.used++
	memory := unsafe.Add(unsafe.Pointer(C.godat_handles[i]), n*C.sizeof_godat_handle)
	return slotted{(*C.godat_handle)(memory), &(*table[i].Load())[n]}, true
}

// find returns the object of a handle and its entry. e is nil if this provider did not make the
// handle, or if the handle has another type or was freed.
func find[T udat.Handle](h C.DAT_HANDLE) (object T, e *entry) {
	s := slotOf(h)
	if s == nil {
		return object, nil
	}
	if e = s.Load(); e == nil {
		return object, nil
	}
	object, ok := e.Handle.(T)
	if !ok {
		return object, nil
	}
	return object, e
}

// optional is like find, but for an argument that may be DAT_HANDLE_NULL. ok is false if the handle
// is bad.
func optional[T udat.Handle](h C.DAT_HANDLE) (object T, ok bool) {
	if h == nil {
		return object, true
	}
	object, e := find[T](h)
	return object, e != nil
}

// newHandle makes the handle of an object. It returns nil if memory is short.
func (ia *adapter) newHandle(object udat.Handle) *entry {
	kind, err := udat.GetHandleType(object)
	if err != nil {
		return nil
	}
	handles.Lock()
	defer handles.Unlock()
	s, ok := newSlot()
	if !ok {
		return nil
	}
	s.c.provider, s.c.context = ia.provider, C.DAT_CONTEXT{}
	e := &entry{Handle: object, c: s.c, ia: ia, slot: s.slot}
	s.slot.Store(e)
	atomic.StoreUint32((*uint32)(&s.c.kind), uint32(kind)+1)
	udat.SetConsumerContext(object, uint64(uintptr(unsafe.Pointer(s.c)))) // handleOf reads it
	ia.mu.Lock()
	ia.entries[e] = struct{}{}
	ia.mu.Unlock()
	return e
}

// free ends the handle of an object that has been freed. It does nothing if the handle is freed
// already.
func (e *entry) free() {
	e.ia.mu.Lock()
	delete(e.ia.entries, e)
	e.ia.mu.Unlock()
	if !e.slot.CompareAndSwap(e, nil) {
		return // another call has freed the handle
	}
	atomic.StoreUint32((*uint32)(&e.c.kind), 0)
	handles.Lock()
	handles.freed = append(handles.freed, slotted{e.c, e.slot})
	handles.Unlock()
}

// handleOf returns the handle of an object, for the results of calls and events, or nil if object
// is nil. An object that has been freed keeps its handle until another object reuses the handle.
// For an adapter handleOf returns libdat2's handle, because calls with the provider's handle crash
// in libdat2.
func handleOf(object udat.Handle) C.DAT_HANDLE {
	context, err := udat.GetConsumerContext(object)
	h := *(*C.DAT_HANDLE)(unsafe.Pointer(&context)) // memory of C
	if err != nil && h != nil {
		if other := slotOf(h).Load(); other != nil && other.Handle != object {
			return nil
		}
	}
	if _, ok := object.(*udat.IA); ok {
		C.dats_get_ia_handle(C.DAT_IA_HANDLE(h), (*C.DAT_IA_HANDLE)(&h))
	}
	return h
}

// create makes an object and stores its handle in out, which is argument n of the call. If memory
// for a handle is short, create frees the object.
func create[T interface {
	udat.Handle
	Free() error
}](ia *adapter, out *C.DAT_HANDLE, n int, made func() (T, error)) (*entry, C.DAT_RETURN) {
	if out == nil {
		return nil, badArgument(n)
	}
	object, err := made()
	if err != nil {
		return nil, code(err)
	}
	e := ia.newHandle(object)
	if e == nil {
		object.Free()
		return nil, failure(udat.InsufficientResources, udat.SubResourceMemory)
	}
	*out = C.DAT_HANDLE(e.c)
	return e, C.DAT_SUCCESS
}

// afterFree ends a handle if err is nil. err is the result of a call that frees the object of the
// handle. afterFree returns the code of err.
func (e *entry) afterFree(err error) C.DAT_RETURN {
	if err == nil {
		e.free()
	}
	return code(err)
}

// set stores a result of a call, if the program has a place for it.
func set[T any](to *T, value T) {
	if to != nil {
		*to = value
	}
}

// callOn calls a function with the object of a handle. The parameter bad is the subtype of the
// error for an invalid handle.
func callOn[T udat.Handle](h C.DAT_HANDLE, bad udat.Subtype, call func(T) error) C.DAT_RETURN {
	object, e := find[T](h)
	if e == nil {
		return badHandle(bad)
	}
	return code(call(object))
}

// free frees the object of a handle, and then the handle.
func free[T interface {
	udat.Handle
	Free() error
}](h C.DAT_HANDLE, bad udat.Subtype) C.DAT_RETURN {
	object, e := find[T](h)
	if e == nil {
		return badHandle(bad)
	}
	return e.afterFree(object.Free())
}

// query checks the arguments of a query, and calls the function ask with the object of the handle
// h. The parameters mask and out report whether arguments 2 and 3 are valid. The parameter bad is
// the subtype of the error for an invalid handle.
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
