//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/godat/godat/udat"
)

//export godat_pz_create
func godat_pz_create(h C.DAT_IA_HANDLE, out *C.DAT_PZ_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	_, ret := create(e.ia, (*C.DAT_HANDLE)(out), 2, opened.CreatePZ)
	return ret
}

//export godat_pz_query
func godat_pz_query(h C.DAT_PZ_HANDLE, mask C.DAT_PZ_PARAM_MASK, out *C.DAT_PZ_PARAM) C.DAT_RETURN {
	p, _, ret := query(h, udat.SubHandlePZ, mask&^C.DAT_PZ_FIELD_ALL == 0, out != nil, (*udat.PZ).Query)
	if ret == C.DAT_SUCCESS {
		out.ia_handle = handleOf(p.IA)
	}
	return ret
}

//export godat_pz_free
func godat_pz_free(h C.DAT_PZ_HANDLE) C.DAT_RETURN { return free[*udat.PZ](h, udat.SubHandlePZ) }

// godat_lmr_create registers the program's memory in place: the slice for udat is that memory.
// Unless the adapter is strict, every region gets the right to be read locally, because programs
// for C DAPL also send from regions that they have registered without this right. C DAPL allows
// that, because verbs has no such right.
//
//export godat_lmr_create
func godat_lmr_create(h C.DAT_IA_HANDLE, kind C.DAT_MEM_TYPE, memory, id unsafe.Pointer, size C.DAT_VLEN,
	pzHandle C.DAT_PZ_HANDLE, priv C.DAT_MEM_PRIV_FLAGS, va C.DAT_VA_TYPE, out *C.DAT_LMR_HANDLE,
	lmrContext *C.DAT_LMR_CONTEXT, rmrContext *C.DAT_RMR_CONTEXT, outSize *C.DAT_VLEN,
	outAddress *C.DAT_VADDR) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	pz, pzEntry := find[*udat.PZ](pzHandle)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleIA)
	case pzEntry == nil:
		return badHandle(udat.SubHandlePZ)
	case va != C.DAT_VA_TYPE_VA:
		return failure(udat.ModelNotSupported, udat.SubNone)
	case kind != C.DAT_MEM_TYPE_LMR && size == 0:
		return failure(udat.LengthError, udat.SubNone)
	case kind != C.DAT_MEM_TYPE_LMR && (memory == nil || uint64(size) > 1<<47):
		return badArgument(4)
	}
	rights := udat.MemPriv(priv)
	if !e.ia.strict {
		rights |= udat.PrivLocalRead
		if rights&udat.PrivRemoteWrite != 0 {
			rights |= udat.PrivLocalWrite
		}
	}
	var register func() (*udat.LMR, error)
	switch kind {
	case C.DAT_MEM_TYPE_VIRTUAL:
		register = func() (*udat.LMR, error) {
			return opened.CreateLMR(pz, unsafe.Slice((*byte)(memory), size), rights)
		}
	case C.DAT_MEM_TYPE_LMR:
		from, fromEntry := find[*udat.LMR](C.DAT_HANDLE(memory))
		if fromEntry == nil {
			return badHandle(udat.SubHandleLMR)
		}
		register = func() (*udat.LMR, error) { return opened.CreateLMRFromLMR(pz, from, rights) }
	case C.DAT_MEM_TYPE_SHARED_VIRTUAL:
		if id == nil {
			return badArgument(3)
		}
		register = func() (*udat.LMR, error) {
			return opened.CreateLMRShared(pz, unsafe.Slice((*byte)(memory), size), *(*udat.SharedMemoryID)(id), rights)
		}
	default:
		return badArgument(2)
	}
	made, ret := create(e.ia, (*C.DAT_HANDLE)(out), 8, register)
	if made == nil {
		return ret
	}
	lmr := made.Handle.(*udat.LMR)
	set(lmrContext, C.DAT_LMR_CONTEXT(lmr.Context()))
	set(rmrContext, C.DAT_RMR_CONTEXT(lmr.RMRContext()))
	set(outSize, C.DAT_VLEN(len(lmr.Bytes())))
	set(outAddress, C.DAT_VADDR(uintptr(unsafe.Pointer(unsafe.SliceData(lmr.Bytes())))))
	return C.DAT_SUCCESS
}

//export godat_lmr_query
func godat_lmr_query(h C.DAT_LMR_HANDLE, mask C.DAT_LMR_PARAM_MASK, out *C.DAT_LMR_PARAM) C.DAT_RETURN {
	p, _, ret := query(h, udat.SubHandleLMR, mask&^C.DAT_LMR_FIELD_ALL == 0, out != nil, (*udat.LMR).Query)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	*out = C.DAT_LMR_PARAM{
		ia_handle: handleOf(p.IA), mem_type: C.DAT_MEM_TYPE(p.MemType), length: C.DAT_VLEN(p.Length),
		pz_handle: handleOf(p.PZ), mem_priv: C.DAT_MEM_PRIV_FLAGS(p.Privileges),
		lmr_context: C.DAT_LMR_CONTEXT(p.LMRContext), rmr_context: C.DAT_RMR_CONTEXT(p.RMRContext),
		registered_size: C.DAT_VLEN(p.RegisteredSize), registered_address: C.DAT_VADDR(p.RegisteredAddress),
	}
	region := (*C.DAT_HANDLE)(unsafe.Pointer(&out.region_desc))
	if p.MemType == udat.MemLMR {
		*region = handleOf(p.Region.LMR)
	} else {
		*region = C.DAT_HANDLE(unsafe.SliceData(p.Region.Memory))
	}
	return C.DAT_SUCCESS
}

//export godat_lmr_free
func godat_lmr_free(h C.DAT_LMR_HANDLE) C.DAT_RETURN { return free[*udat.LMR](h, udat.SubHandleLMR) }

func lmrSync(h C.DAT_IA_HANDLE, segments *C.DAT_LMR_TRIPLET, n C.DAT_VLEN,
	sync func(*udat.IA, []udat.LMRTriplet) error) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	if n > 1<<20 {
		return badArgument(3)
	}
	iov, ret := e.appendSegments(nil, C.DAT_COUNT(n), segments)
	if ret != C.DAT_SUCCESS {
		return badArgument(2)
	}
	return code(sync(opened, iov))
}

//export godat_lmr_sync_rdma_read
func godat_lmr_sync_rdma_read(h C.DAT_IA_HANDLE, segments *C.cDAT_LMR_TRIPLET, n C.DAT_VLEN) C.DAT_RETURN {
	return lmrSync(h, (*C.DAT_LMR_TRIPLET)(segments), n, (*udat.IA).LMRSyncRDMARead)
}

//export godat_lmr_sync_rdma_write
func godat_lmr_sync_rdma_write(h C.DAT_IA_HANDLE, segments *C.cDAT_LMR_TRIPLET, n C.DAT_VLEN) C.DAT_RETURN {
	return lmrSync(h, (*C.DAT_LMR_TRIPLET)(segments), n, (*udat.IA).LMRSyncRDMAWrite)
}

//export godat_rmr_create
func godat_rmr_create(h C.DAT_PZ_HANDLE, out *C.DAT_RMR_HANDLE) C.DAT_RETURN {
	pz, e := find[*udat.PZ](h)
	if e == nil {
		return badHandle(udat.SubHandlePZ)
	}
	_, ret := create(e.ia, (*C.DAT_HANDLE)(out), 2, pz.CreateRMR)
	return ret
}

//export godat_rmr_query
func godat_rmr_query(h C.DAT_RMR_HANDLE, mask C.DAT_RMR_PARAM_MASK, out *C.DAT_RMR_PARAM) C.DAT_RETURN {
	p, _, ret := query(h, udat.SubHandleRMR, mask&^C.DAT_RMR_FIELD_ALL == 0, out != nil, (*udat.RMR).Query)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	*out = C.DAT_RMR_PARAM{
		ia_handle: handleOf(p.IA), pz_handle: handleOf(p.PZ), mem_priv: C.DAT_MEM_PRIV_FLAGS(p.Privileges),
		rmr_context: C.DAT_RMR_CONTEXT(p.Context), rmr_scope: C.DAT_RMR_SCOPE_PZ,
		lmr_triplet: C.DAT_LMR_TRIPLET{virtual_address: C.DAT_VADDR(p.Triplet.VirtualAddress),
			segment_length: length(p.Triplet.SegmentLength)},
	}
	if p.Triplet.LMR != nil {
		out.lmr_triplet.lmr_context = C.DAT_LMR_CONTEXT(p.Triplet.LMR.Context())
	}
	return C.DAT_SUCCESS
}

//export godat_rmr_free
func godat_rmr_free(h C.DAT_RMR_HANDLE) C.DAT_RETURN { return free[*udat.RMR](h, udat.SubHandleRMR) }

//export godat_srq_create
func godat_srq_create(h C.DAT_IA_HANDLE, pzHandle C.DAT_PZ_HANDLE, attr *C.DAT_SRQ_ATTR,
	out *C.DAT_SRQ_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	pz, pzEntry := find[*udat.PZ](pzHandle)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleIA)
	case pzEntry == nil:
		return badHandle(udat.SubHandlePZ)
	case attr == nil:
		return badArgument(3)
	}
	_, ret := create(e.ia, (*C.DAT_HANDLE)(out), 4, func() (*udat.SRQ, error) {
		return opened.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: int(attr.max_recv_dtos),
			MaxRecvIOV: int(attr.max_recv_iov), LowWatermark: int(attr.low_watermark)})
	})
	return ret
}

//export godat_srq_query
func godat_srq_query(h C.DAT_SRQ_HANDLE, mask C.DAT_SRQ_PARAM_MASK, out *C.DAT_SRQ_PARAM) C.DAT_RETURN {
	p, _, ret := query(h, udat.SubHandleSRQ, mask&^C.DAT_SRQ_FIELD_ALL == 0, out != nil, (*udat.SRQ).Query)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	*out = C.DAT_SRQ_PARAM{
		ia_handle: handleOf(p.IA), srq_state: C.DAT_SRQ_STATE_OPERATIONAL, pz_handle: handleOf(p.PZ),
		max_recv_dtos: count(p.MaxRecvDTOs), max_recv_iov: count(p.MaxRecvIOV), low_watermark: count(p.LowWatermark),
		available_dto_count: count(p.AvailableDTOCount), outstanding_dto_count: count(p.OutstandingDTOCount),
	}
	if p.State == udat.SRQError {
		out.srq_state = C.DAT_SRQ_STATE_ERROR
	}
	return C.DAT_SUCCESS
}

//export godat_srq_resize
func godat_srq_resize(h C.DAT_SRQ_HANDLE, n C.DAT_COUNT) C.DAT_RETURN {
	return callOn(h, udat.SubHandleSRQ, func(srq *udat.SRQ) error { return srq.Resize(int(n)) })
}

//export godat_srq_set_lw
func godat_srq_set_lw(h C.DAT_SRQ_HANDLE, low C.DAT_COUNT) C.DAT_RETURN {
	return callOn(h, udat.SubHandleSRQ, func(srq *udat.SRQ) error { return srq.SetLW(int(low)) })
}

//export godat_srq_free
func godat_srq_free(h C.DAT_SRQ_HANDLE) C.DAT_RETURN { return free[*udat.SRQ](h, udat.SubHandleSRQ) }
