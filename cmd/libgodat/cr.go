//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/godat/godat/udat"
)

// localEP is held while a thread makes a handle for an endpoint that udat has created for a
// connection request.
var localEP sync.Mutex

//export godat_cr_query
func godat_cr_query(h C.DAT_CR_HANDLE, mask C.DAT_CR_PARAM_MASK, out *C.DAT_CR_PARAM) C.DAT_RETURN {
	p, e, ret := query(h, udat.SubHandleCR, mask&^C.DAT_CR_FIELD_ALL == 0, out != nil, (*udat.CR).Query)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	putAddr(&e.c.remote, p.RemoteAddr, uint16(p.RemotePortQual))
	*out = C.DAT_CR_PARAM{
		remote_ia_address_ptr: (C.DAT_IA_ADDRESS_PTR)(unsafe.Pointer(&e.c.remote)),
		remote_port_qual:      C.DAT_PORT_QUAL(p.RemotePortQual),
		private_data_size:     putPrivate(e.c, p.PrivateData),
		private_data:          C.DAT_PVOID(&e.c.private_data),
	}
	if p.LocalEP != nil {
		localEP.Lock() // several threads may query a request
		defer localEP.Unlock()
		if out.local_ep_handle = handleOf(p.LocalEP); out.local_ep_handle == nil { // udat has created the endpoint
			made := e.ia.newHandle(p.LocalEP)
			if made == nil {
				return failure(udat.InsufficientResources, udat.SubResourceMemory)
			}
			out.local_ep_handle = C.DAT_HANDLE(made.c)
		}
	}
	return C.DAT_SUCCESS
}

//export godat_cr_accept
func godat_cr_accept(h C.DAT_CR_HANDLE, epHandle C.DAT_EP_HANDLE, n C.DAT_COUNT, data C.DAT_PVOID) C.DAT_RETURN {
	cr, e := find[*udat.CR](h)
	ep, ok := optional[*udat.EP](epHandle)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleCR)
	case !ok:
		return badHandle(udat.SubHandleEP)
	case n < 0 || n > 0 && data == nil:
		return badArgument(3)
	}
	if p, err := cr.Query(); err == nil && p.LocalEP == ep {
		ep = nil // nil selects the request's own endpoint
	}
	return e.afterFree(cr.Accept(ep, privateBytes(n, data)))
}

//export godat_cr_reject
func godat_cr_reject(h C.DAT_CR_HANDLE, n C.DAT_COUNT, data C.DAT_PVOID) C.DAT_RETURN {
	cr, e := find[*udat.CR](h)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleCR)
	case n < 0 || n > 0 && data == nil:
		return badArgument(2)
	}
	return e.afterFree(cr.Reject(privateBytes(n, data)))
}

//export godat_cr_handoff
func godat_cr_handoff(h C.DAT_CR_HANDLE, qual C.DAT_CONN_QUAL) C.DAT_RETURN {
	cr, e := find[*udat.CR](h)
	if e == nil {
		return badHandle(udat.SubHandleCR)
	}
	return e.afterFree(cr.Handoff(udat.ConnQual(qual)))
}
