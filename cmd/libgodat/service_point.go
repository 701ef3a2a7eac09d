//go:build dat2

package main

// #include "shim.h"
import "C"

import "github.com/godat/godat/udat"

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
	psp, err := opened.CreatePSP(udat.ConnQual(qual), evd, udat.PSPFlags(flags))
	return e.ia.made(psp, err, (*C.DAT_HANDLE)(out))
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
	qual, psp, err := opened.CreatePSPAny(evd, udat.PSPFlags(flags))
	if err != nil {
		return code(err)
	}
	*outQual = C.DAT_CONN_QUAL(qual)
	return e.ia.made(psp, nil, (*C.DAT_HANDLE)(out))
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
	rsp, err := opened.CreateRSP(udat.ConnQual(qual), ep, evd)
	return e.ia.made(rsp, err, (*C.DAT_HANDLE)(out))
}

//export godat_rsp_query
func godat_rsp_query(h C.DAT_RSP_HANDLE, mask C.DAT_RSP_PARAM_MASK, out *C.DAT_RSP_PARAM) C.DAT_RETURN {
	p, _, ret := query(h, udat.SubHandleRSP, mask&^C.DAT_RSP_FIELD_ALL == 0, out != nil, (*udat.RSP).Query)
	if ret == C.DAT_SUCCESS {
		*out = C.DAT_RSP_PARAM{ia_handle: handleOf(p.IA), conn_qual: C.DAT_CONN_QUAL(p.ConnQual),
			evd_handle: handleOf(p.EVD), ep_handle: handleOf(p.EP)}
	}
	return ret
}

// godat_rsp_free: a request that has come has ended the service point, but programs for C DAPL,
// where it stays, free it.
//
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
	return e.freed(err)
}
