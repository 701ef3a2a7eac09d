//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"slices"

	"github.com/godat/godat/udat"
)

//export godat_psp_create
func godat_psp_create(h C.DAT_IA_HANDLE, qual C.DAT_CONN_QUAL, evdHandle C.DAT_EVD_HANDLE, flags C.DAT_PSP_FLAGS,
	out *C.DAT_PSP_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	evd, evdEntry := find[*udat.EVD](evdHandle)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleIA)
	case evdEntry == nil:
		return badHandle(udat.SubHandleEVDCR)
	}
	e.ia.points.Lock()
	defer e.ia.points.Unlock()
	_, ret := create(e.ia, (*C.DAT_HANDLE)(out), 5, func() (*udat.PSP, error) {
		return opened.CreatePSP(udat.ConnQual(qual), evd, udat.PSPFlags(flags))
	})
	return ret
}

//export godat_psp_create_any
func godat_psp_create_any(h C.DAT_IA_HANDLE, outQual *C.DAT_CONN_QUAL, evdHandle C.DAT_EVD_HANDLE,
	flags C.DAT_PSP_FLAGS, out *C.DAT_PSP_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	evd, evdEntry := find[*udat.EVD](evdHandle)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleIA)
	case evdEntry == nil:
		return badHandle(udat.SubHandleEVDCR)
	case outQual == nil:
		return badArgument(2)
	}
	e.ia.points.Lock()
	defer e.ia.points.Unlock()
	_, ret := create(e.ia, (*C.DAT_HANDLE)(out), 5, func() (*udat.PSP, error) {
		qual, psp, err := opened.CreatePSPAny(evd, udat.PSPFlags(flags))
		if err == nil {
			*outQual = C.DAT_CONN_QUAL(qual)
		}
		return psp, err
	})
	return ret
}

//export godat_psp_query
func godat_psp_query(h C.DAT_PSP_HANDLE, mask C.DAT_PSP_PARAM_MASK, out *C.DAT_PSP_PARAM) C.DAT_RETURN {
	p, _, ret := query(h, udat.SubHandlePSP, mask&^C.DAT_PSP_FIELD_ALL == 0, out != nil, (*udat.PSP).Query)
	if ret == C.DAT_SUCCESS {
		*out = C.DAT_PSP_PARAM{ia_handle: handleOf(p.IA), conn_qual: C.DAT_CONN_QUAL(p.ConnQual),
			evd_handle: handleOf(p.EVD), psp_flags: C.DAT_PSP_FLAGS(p.Flags)}
	}
	return ret
}

//export godat_psp_free
func godat_psp_free(h C.DAT_PSP_HANDLE) C.DAT_RETURN { return free[*udat.PSP](h, udat.SubHandlePSP) }

//export godat_rsp_create
func godat_rsp_create(h C.DAT_IA_HANDLE, qual C.DAT_CONN_QUAL, epHandle C.DAT_EP_HANDLE, evdHandle C.DAT_EVD_HANDLE,
	out *C.DAT_RSP_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	evd, evdEntry := find[*udat.EVD](evdHandle)
	ep, ok := optional[*udat.EP](epHandle)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleIA)
	case !ok:
		return badHandle(udat.SubHandleEP)
	case evdEntry == nil:
		return badHandle(udat.SubHandleEVDCR)
	}
	e.ia.points.Lock()
	defer e.ia.points.Unlock()
	made, ret := create(e.ia, (*C.DAT_HANDLE)(out), 5, func() (*udat.RSP, error) {
		return opened.CreateRSP(udat.ConnQual(qual), ep, evd)
	})
	if made != nil {
		made.request = reserved{udat.ConnQual(qual), evdEntry, epHandle}
		e.ia.reserved = append(e.ia.reserved, made)
	}
	return ret
}

// Type reserved has the arguments with which a reserved service point was created. A request ends
// the service point, and the event of the request does not name the service point.
type reserved struct {
	qual udat.ConnQual
	evd  *entry
	ep   C.DAT_EP_HANDLE
}

// unreserve removes the first reserved service point for which match returns true. It returns the
// handle of that service point, or nil if match returns true for none. The caller holds ia.points.
func (ia *adapter) unreserve(match func(*entry) bool) C.DAT_HANDLE {
	i := slices.IndexFunc(ia.reserved, match)
	if i < 0 {
		return nil
	}
	e := ia.reserved[i]
	ia.reserved = slices.Delete(ia.reserved, i, i+1)
	return C.DAT_HANDLE(e.c)
}

// requestPoint returns the handle of the service point that received the request ev. If this
// service point is a reserved one, requestPoint removes it from ia.reserved. evd is the dispatcher
// of the request.
func (ia *adapter) requestPoint(ev *udat.Event, evd *entry) C.DAT_HANDLE {
	ia.points.Lock()
	defer ia.points.Unlock()
	if ev.Object != nil {
		return handleOf(ev.Object)
	}
	return ia.unreserve(func(e *entry) bool { return e.request.qual == ev.ConnQual() && e.request.evd == evd })
}

// With C DAPL a reserved service point stays valid after its request has arrived, and programs
// query and free it. The next two functions allow that, unless the adapter is strict.

//export godat_rsp_query
func godat_rsp_query(h C.DAT_RSP_HANDLE, mask C.DAT_RSP_PARAM_MASK, out *C.DAT_RSP_PARAM) C.DAT_RETURN {
	_, e, ret := query(h, udat.SubHandleRSP, mask&^C.DAT_RSP_FIELD_ALL == 0, out != nil, (*udat.RSP).Query)
	if ret != C.DAT_SUCCESS && (e == nil || e.ia.strict) {
		return ret
	}
	*out = C.DAT_RSP_PARAM{ia_handle: handleOf(e.ia.IA), conn_qual: C.DAT_CONN_QUAL(e.request.qual),
		evd_handle: C.DAT_EVD_HANDLE(e.request.evd.c), ep_handle: e.request.ep}
	return C.DAT_SUCCESS
}

//export godat_rsp_free
func godat_rsp_free(h C.DAT_RSP_HANDLE) C.DAT_RETURN {
	rsp, e := find[*udat.RSP](h)
	if e == nil {
		return badHandle(udat.SubHandleRSP)
	}
	err := rsp.Free()
	if failed, ok := err.(*udat.Error); ok && failed.Type == udat.InvalidHandle && !e.ia.strict {
		err = nil
	}
	if err == nil {
		e.ia.points.Lock()
		e.ia.unreserve(func(other *entry) bool { return other == e })
		e.ia.points.Unlock()
	}
	return e.afterFree(err)
}
