//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/godat/godat/udat"
)

// segments appends the local segments of a post to iov. Each segment in the array local names its
// region by the region's context. If n is above the adapter's limit, segments returns an error and
// does not read the array.
func (e *entry) segments(iov []udat.LMRTriplet, n C.DAT_COUNT, local *C.DAT_LMR_TRIPLET) ([]udat.LMRTriplet,
	C.DAT_RETURN) {
	if int(n) > e.ia.maxIOV {
		return nil, badArgument(2)
	}
	return e.appendSegments(iov, n, local)
}

func (e *entry) appendSegments(iov []udat.LMRTriplet, n C.DAT_COUNT, local *C.DAT_LMR_TRIPLET) ([]udat.LMRTriplet,
	C.DAT_RETURN) {
	if n < 0 || n > 0 && local == nil {
		return nil, badArgument(2)
	}
	for i := range unsafe.Slice(local, n) {
		s := (*C.DAT_LMR_TRIPLET)(unsafe.Add(unsafe.Pointer(local), i*C.sizeof_DAT_LMR_TRIPLET))
		var region *udat.LMR
		if s.segment_length > 0 {
			if region = e.region(uint32(s.lmr_context)); region == nil {
				return nil, failure(udat.PrivilegesViolation, udat.SubPrivilegesRead)
			}
		}
		iov = append(iov, udat.LMRTriplet{LMR: region, VirtualAddress: uint64(s.virtual_address),
			SegmentLength: uint64(s.segment_length)})
	}
	return iov, C.DAT_SUCCESS
}

// region returns the region with this context, or nil. It first compares the region of the latest
// post, which most posts use again.
func (e *entry) region(context uint32) *udat.LMR {
	if l := e.lmr.Load(); l != nil && l.Context() == context {
		return l
	}
	l, err := e.ia.LMRByContext(context)
	if err != nil {
		return nil
	}
	e.lmr.Store(l)
	return l
}

// remoteTriplet returns the remote memory of an RDMA operation of n bytes. Programs for C DAPL
// leave the length in the triplet unset, or set it to less than they transfer, because C DAPL
// ignores it. So unless the adapter is strict, remoteTriplet sets the length to n. Only a read's
// triplet keeps a length from 1 to n.
func (e *entry) remoteTriplet(r *C.DAT_RMR_TRIPLET, n uint64, read bool) udat.RMRTriplet {
	t := udat.RMRTriplet{RMRContext: uint32(r.rmr_context), TargetAddress: uint64(r.virtual_address),
		SegmentLength: uint64(r.segment_length)}
	if !e.ia.strict && (!read || t.SegmentLength == 0 || t.SegmentLength > n) {
		t.SegmentLength = n
	}
	return t
}

// flags translates the completion flags of a post. Unless the adapter is strict, every completion
// notifies, as with C DAPL.
func (e *entry) flags(f C.DAT_COMPLETION_FLAGS) udat.CompletionFlags {
	if !e.ia.strict {
		f &^= C.DAT_COMPLETION_UNSIGNALLED_FLAG
	}
	return udat.CompletionFlags(f)
}

// godat_ep_post posts a request of any kind except a bind and a read into a window. The parameter a
// is the immediate data, or the context of the remote memory to invalidate. For an atomic, the
// parameters a and b are the operands.
//
//export godat_ep_post
func godat_ep_post(h C.DAT_EP_HANDLE, kind C.uint32_t, n C.DAT_COUNT, local *C.DAT_LMR_TRIPLET, cookie C.uint64_t,
	remote *C.DAT_RMR_TRIPLET, flags C.DAT_COMPLETION_FLAGS, a, b C.uint64_t) C.DAT_RETURN {
	ep, e := find[*udat.EP](h)
	if e == nil {
		return badHandle(udat.SubHandleEP)
	}
	var few [8]udat.LMRTriplet
	iov, ret := e.segments(few[:0], n, local)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	if kind == C.GODAT_SEND {
		return code(ep.PostSend(iov, udat.Cookie(cookie), e.flags(flags)))
	}
	var to udat.RMRTriplet
	if kind != C.GODAT_SEND_INVALIDATE {
		if remote == nil {
			return badArgument(5)
		}
		if len(iov) == 0 && !e.ia.strict {
			iov = few[:1] // one segment of no bytes
		}
		total := uint64(0)
		for i := range iov {
			total += iov[i].SegmentLength
		}
		to = e.remoteTriplet(remote, total, kind == C.GODAT_READ)
	}
	switch kind {
	case C.GODAT_WRITE:
		return code(ep.PostRDMAWrite(iov, udat.Cookie(cookie), to, e.flags(flags)))
	case C.GODAT_READ:
		return code(ep.PostRDMARead(iov, udat.Cookie(cookie), to, e.flags(flags)))
	}
	_, err := ep.PostBatch([]udat.Op{{Kind: udat.OpKind(kind), Flags: e.flags(flags),
		Cookie: udat.Cookie(cookie), IOV: iov, Remote: to, Immediate: uint32(a), InvalidateContext: uint32(a),
		CompareAdd: uint64(a), Swap: uint64(b)}})
	return code(err)
}

//export godat_ep_post_recv
func godat_ep_post_recv(h C.DAT_EP_HANDLE, n C.DAT_COUNT, local *C.DAT_LMR_TRIPLET, cookie C.uint64_t,
	flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, e := find[*udat.EP](h)
	if e == nil {
		return badHandle(udat.SubHandleEP)
	}
	var few [8]udat.LMRTriplet
	iov, ret := e.segments(few[:0], n, local)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	return code(ep.PostRecv(iov, udat.Cookie(cookie), e.flags(flags)))
}

//export godat_srq_post_recv
func godat_srq_post_recv(h C.DAT_SRQ_HANDLE, n C.DAT_COUNT, local *C.DAT_LMR_TRIPLET, cookie C.uint64_t) C.DAT_RETURN {
	srq, e := find[*udat.SRQ](h)
	if e == nil {
		return badHandle(udat.SubHandleSRQ)
	}
	var few [8]udat.LMRTriplet
	iov, ret := e.segments(few[:0], n, local)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	return code(srq.PostRecv(iov, udat.Cookie(cookie)))
}

//export godat_ep_post_rdma_read_to_rmr
func godat_ep_post_rdma_read_to_rmr(h C.DAT_EP_HANDLE, local *C.DAT_RMR_TRIPLET, cookie C.uint64_t,
	remote *C.DAT_RMR_TRIPLET, flags C.DAT_COMPLETION_FLAGS) C.DAT_RETURN {
	ep, e := find[*udat.EP](h)
	if e == nil {
		return badHandle(udat.SubHandleEP)
	}
	if local == nil {
		return badArgument(2)
	}
	if remote == nil {
		return badArgument(4)
	}
	sink := e.remoteTriplet(local, uint64(local.segment_length), true)
	e.ia.mu.Lock()
	var window *udat.RMR
	for w := range e.ia.entries {
		if r, ok := w.Handle.(*udat.RMR); ok && r.RMRTriplet().RMRContext == sink.RMRContext {
			window = r
		}
	}
	e.ia.mu.Unlock()
	if window == nil {
		return failure(udat.PrivilegesViolation, udat.SubPrivilegesWrite)
	}
	return code(ep.PostRDMAReadToRMR(window, sink, udat.Cookie(cookie), e.remoteTriplet(remote, sink.SegmentLength, true),
		e.flags(flags)))
}

//export godat_rmr_bind
func godat_rmr_bind(h C.DAT_RMR_HANDLE, lmr C.DAT_LMR_HANDLE, t *C.DAT_LMR_TRIPLET, priv C.DAT_MEM_PRIV_FLAGS,
	va C.DAT_VA_TYPE, epHandle C.DAT_EP_HANDLE, cookie C.uint64_t, flags C.DAT_COMPLETION_FLAGS,
	context *C.DAT_RMR_CONTEXT) C.DAT_RETURN {
	rmr, e := find[*udat.RMR](h)
	ep, epEntry := find[*udat.EP](epHandle)
	region, ok := optional[*udat.LMR](lmr)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleRMR)
	case epEntry == nil:
		return badHandle(udat.SubHandleEP)
	case !ok:
		return badHandle(udat.SubHandleLMR)
	case t == nil:
		return badArgument(3)
	case va != C.DAT_VA_TYPE_VA:
		return failure(udat.ModelNotSupported, udat.SubNone)
	}
	if region == nil && t.segment_length > 0 {
		if region = epEntry.region(uint32(t.lmr_context)); region == nil {
			return badArgument(3)
		}
	}
	bound, err := rmr.Bind(udat.LMRTriplet{LMR: region, VirtualAddress: uint64(t.virtual_address),
		SegmentLength: uint64(t.segment_length)}, udat.MemPriv(priv), ep, udat.Cookie(cookie),
		e.flags(flags))
	if err == nil && context != nil {
		*context = C.DAT_RMR_CONTEXT(bound)
	}
	ret := code(err)
	// In DAT 2.0 the call has two arguments that it does not have in 1.2. Argument 2 is the region,
	// and argument 5 is the kind of address.
	switch ret {
	case badArgument(2):
		return badArgument(3)
	case badArgument(3):
		return badArgument(4)
	case badArgument(6):
		return badArgument(8)
	}
	return ret
}
