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
	slot    slot
	lmr     atomic.Pointer[udat.LMR] // the region of the latest post
	rawPoll bool                     // an empty queue answers without the error bit, as C DAPL does
	agent   agent                    // of a CNO
	untaken atomic.Pointer[wait]     // what a thread that was cancelled has waited for
	request reserved                 // of a reserved service point
}

// Each C handle has a slot for ever, by its place in the memory of handles. A handle that is freed
// is used again when quarantine more have been freed after it: until then it answers
// INVALID_HANDLE.
const quarantine = 4096

type slot = *atomic.Pointer[entry]

var (
	table [C.GODAT_PIECES]atomic.Pointer[[]atomic.Pointer[entry]]

	handles struct {
		sync.Mutex
		piece, used int // of the latest piece of memory, from 1; how many of its handles are made
		freed       []slotted
	}
)

// slotted is the memory of a handle.
type slotted struct {
	c    *C.godat_handle
	slot slot
}

// slotOf returns the slot of a handle, nil if it is none of this provider's. The memory that a
// foreign handle points to is not read.
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

// newSlot returns memory for a handle; none if memory is short. handles is locked.
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

// find returns the object of a handle and its entry, nil if the handle is none of this provider's,
// of another kind, or freed.
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
	s, ok := newSlot()
	if !ok {
		return nil
	}
	s.c.provider, s.c.context = ia.provider, C.DAT_CONTEXT{}
	e := &entry{Handle: object, c: s.c, ia: ia, slot: s.slot}
	s.slot.Store(e)
	atomic.StoreUint32((*uint32)(&s.c.kind), uint32(kind)+1)
	udat.SetConsumerContext(object, uint64(uintptr(unsafe.Pointer(s.c)))) // for handleOf
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
	if !e.slot.CompareAndSwap(e, nil) {
		return // another call has freed it
	}
	atomic.StoreUint32((*uint32)(&e.c.kind), 0)
	handles.Lock()
	handles.freed = append(handles.freed, slotted{e.c, e.slot})
	handles.Unlock()
}

// handleOf is the handle of an object that a call or an event returns; nil for none. An object that
// has been freed keeps its handle until another object has it. The handle of an adapter is
// libdat2's: calls with the provider's crash in libdat2.
func handleOf(object udat.Handle) C.DAT_HANDLE {
	context, err := udat.GetConsumerContext(object)
	h := *(*C.DAT_HANDLE)(unsafe.Pointer(&context)) // memory of C
	if err != nil && h != nil && slotOf(h).Load() != nil {
		return nil
	}
	if _, ok := object.(*udat.IA); ok {
		C.dats_get_ia_handle(C.DAT_IA_HANDLE(h), (*C.DAT_IA_HANDLE)(&h))
	}
	return h
}

// create makes an object and stores its handle in out, which is argument n of the call. Without a
// handle the object is freed.
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
