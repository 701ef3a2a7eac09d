//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/godat/godat/udat"
)

// epAttr translates endpoint attributes. A count of 0 selects udat's default, except that read
// depths of 0 remain 0.
//
// Unless the adapter is strict, epAttr omits the size limits of messages and RDMA, and the
// completion flags, because C DAPL ignores all of them. Programs exceed the limits, and use
// different flags on one dispatcher. Without the flags every completion notifies.
func (ia *adapter) epAttr(a *C.DAT_EP_ATTR) *udat.EPAttr {
	if a == nil {
		return nil
	}
	attr := &udat.EPAttr{
		ServiceType:            udat.ServiceType(a.service_type),
		QoS:                    udat.QoS(a.qos),
		MaxRequestIOV:          int(a.max_request_iov),
		MaxRDMAWriteIOV:        int(a.max_rdma_write_iov),
		MaxRDMAReadIOV:         int(a.max_rdma_read_iov),
		MaxRecvIOV:             int(a.max_recv_iov),
		RecvCompletionFlags:    udat.CompletionFlags(a.recv_completion_flags),
		RequestCompletionFlags: udat.CompletionFlags(a.request_completion_flags),
		MaxRecvDTOs:            int(a.max_recv_dtos),
		MaxRequestDTOs:         int(a.max_request_dtos),
		MaxRDMAReadIn:          int(a.max_rdma_read_in),
		MaxRDMAReadOut:         int(a.max_rdma_read_out),
		SRQSoftHW:              int(a.srq_soft_hw),
	}
	if attr.MaxRDMAReadOut == 0 {
		attr.MaxRDMAReadOut = udat.None
	}
	if ia.strict {
		attr.MaxMessageSize, attr.MaxRDMASize = uint64(a.max_message_size), uint64(a.max_rdma_size)
		return attr
	}
	attr.RequestCompletionFlags = udat.CompletionDefault
	if attr.RecvCompletionFlags != udat.CompletionSuppress { // CompletionSuppress stays, so that udat refuses it
		attr.RecvCompletionFlags = udat.CompletionDefault
	}
	return attr
}

// streams looks up the dispatchers of an endpoint.
func streams(recv, request, connect C.DAT_EVD_HANDLE) (r, q, c *udat.EVD, ret C.DAT_RETURN) {
	r, rOK := optional[*udat.EVD](recv)
	q, qOK := optional[*udat.EVD](request)
	c, cOK := optional[*udat.EVD](connect)
	switch {
	case !rOK:
		ret = badHandle(udat.SubHandleEVDRecv)
	case !qOK:
		ret = badHandle(udat.SubHandleEVDRequest)
	case !cOK:
		ret = badHandle(udat.SubHandleEVDConn)
	}
	return r, q, c, ret
}

//export godat_ep_create
func godat_ep_create(h C.DAT_IA_HANDLE, pzHandle C.DAT_PZ_HANDLE, recv, request, connect C.DAT_EVD_HANDLE,
	attr *C.cDAT_EP_ATTR, out *C.DAT_EP_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	pz, ok := optional[*udat.PZ](pzHandle)
	if !ok {
		return badHandle(udat.SubHandlePZ)
	}
	r, q, c, ret := streams(recv, request, connect)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	a := e.ia.epAttr((*C.DAT_EP_ATTR)(attr))
	_, ret = create(e.ia, (*C.DAT_HANDLE)(out), 7, func() (*udat.EP, error) { return opened.CreateEP(pz, r, q, c, a) })
	return ret
}

//export godat_ep_create_with_srq
func godat_ep_create_with_srq(h C.DAT_IA_HANDLE, pzHandle C.DAT_PZ_HANDLE, recv, request, connect C.DAT_EVD_HANDLE,
	srqHandle C.DAT_SRQ_HANDLE, attr *C.cDAT_EP_ATTR, out *C.DAT_EP_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	pz, ok := optional[*udat.PZ](pzHandle)
	if !ok {
		return badHandle(udat.SubHandlePZ)
	}
	srq, srqEntry := find[*udat.SRQ](srqHandle)
	if srqEntry == nil {
		return badHandle(udat.SubHandleSRQ)
	}
	r, q, c, ret := streams(recv, request, connect)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	a := e.ia.epAttr((*C.DAT_EP_ATTR)(attr))
	switch {
	case e.ia.strict:
	case a == nil: // C DAPL uses its defaults
		a = new(udat.EPAttr)
	default: // C DAPL has no watermarks on a shared queue
		a.MaxRecvDTOs, a.SRQSoftHW = 0, 0
	}
	_, ret = create(e.ia, (*C.DAT_HANDLE)(out), 8, func() (*udat.EP, error) {
		return opened.CreateEPWithSRQ(pz, r, q, c, srq, a)
	})
	return ret
}

//export godat_ep_query
func godat_ep_query(h C.DAT_EP_HANDLE, mask C.DAT_EP_PARAM_MASK, out *C.DAT_EP_PARAM) C.DAT_RETURN {
	p, e, ret := query(h, udat.SubHandleEP, mask&^C.DAT_EP_FIELD_ALL == 0, out != nil, (*udat.EP).Query)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	putAddr(&e.c.local, p.LocalAddr, uint16(p.LocalPortQual))
	putAddr(&e.c.remote, p.RemoteAddr, uint16(p.RemotePortQual))
	*out = C.DAT_EP_PARAM{
		ia_handle:             handleOf(p.IA),
		ep_state:              C.DAT_EP_STATE(p.State),
		local_ia_address_ptr:  (C.DAT_IA_ADDRESS_PTR)(unsafe.Pointer(&e.c.local)),
		local_port_qual:       C.DAT_PORT_QUAL(p.LocalPortQual),
		remote_ia_address_ptr: (C.DAT_IA_ADDRESS_PTR)(unsafe.Pointer(&e.c.remote)),
		remote_port_qual:      C.DAT_PORT_QUAL(p.RemotePortQual),
		pz_handle:             handleOf(p.PZ),
		recv_evd_handle:       handleOf(p.RecvEVD),
		request_evd_handle:    handleOf(p.RequestEVD),
		connect_evd_handle:    handleOf(p.ConnectEVD),
		srq_handle:            handleOf(p.SRQ),
		ep_attr: C.DAT_EP_ATTR{
			max_message_size:         length(p.Attr.MaxMessageSize),
			max_rdma_size:            length(p.Attr.MaxRDMASize),
			qos:                      C.DAT_QOS(p.Attr.QoS),
			recv_completion_flags:    C.DAT_COMPLETION_FLAGS(p.Attr.RecvCompletionFlags),
			request_completion_flags: C.DAT_COMPLETION_FLAGS(p.Attr.RequestCompletionFlags),
			max_recv_dtos:            count(p.Attr.MaxRecvDTOs),
			max_request_dtos:         count(p.Attr.MaxRequestDTOs),
			max_recv_iov:             count(p.Attr.MaxRecvIOV),
			max_request_iov:          count(p.Attr.MaxRequestIOV),
			max_rdma_read_in:         count(p.Attr.MaxRDMAReadIn),
			max_rdma_read_out:        count(p.Attr.MaxRDMAReadOut),
			srq_soft_hw:              count(p.Attr.SRQSoftHW),
			max_rdma_read_iov:        count(p.Attr.MaxRDMAReadIOV),
			max_rdma_write_iov:       count(p.Attr.MaxRDMAWriteIOV),
		},
	}
	return C.DAT_SUCCESS
}

// epMask translates the mask of dat_ep_modify. DAT 2.0 has inserted the bit COMM below the bits of
// the attributes; epMask removes it, and shifts the bits between COMM and the attributes down by
// one.
func epMask(mask C.DAT_EP_PARAM_MASK) udat.EPField {
	const below = C.DAT_EP_FIELD_COMM - 1
	low := uint64(mask) & 0xfff
	return udat.EPField(uint64(mask)&C.DAT_EP_FIELD_EP_ATTR_ALL | low&below | low>>1&^below)
}

//export godat_ep_modify
func godat_ep_modify(h C.DAT_EP_HANDLE, mask C.DAT_EP_PARAM_MASK, param *C.cDAT_EP_PARAM) C.DAT_RETURN {
	ep, e := find[*udat.EP](h)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleEP)
	case mask&^C.DAT_EP_FIELD_ALL != 0 || mask&C.DAT_EP_FIELD_COMM != 0:
		return badArgument(2)
	case param == nil:
		return badArgument(3)
	}
	p := (*C.DAT_EP_PARAM)(param)
	var to udat.EPParam
	var ok bool
	if mask&C.DAT_EP_FIELD_PZ_HANDLE != 0 {
		if to.PZ, ok = optional[*udat.PZ](p.pz_handle); !ok {
			return badHandle(udat.SubHandlePZ)
		}
	}
	evds := []struct {
		bit  C.DAT_EP_PARAM_MASK
		from C.DAT_EVD_HANDLE
		to   **udat.EVD
		sub  udat.Subtype
	}{
		{C.DAT_EP_FIELD_RECV_EVD_HANDLE, p.recv_evd_handle, &to.RecvEVD, udat.SubHandleEVDRecv},
		{C.DAT_EP_FIELD_REQUEST_EVD_HANDLE, p.request_evd_handle, &to.RequestEVD, udat.SubHandleEVDRequest},
		{C.DAT_EP_FIELD_CONNECT_EVD_HANDLE, p.connect_evd_handle, &to.ConnectEVD, udat.SubHandleEVDConn},
	}
	for _, x := range evds {
		if mask&x.bit == 0 {
			continue
		}
		if *x.to, ok = optional[*udat.EVD](x.from); !ok {
			return badHandle(x.sub)
		}
	}
	to.Attr = *e.ia.epAttr(&p.ep_attr)
	to.Attr.MaxMessageSize, to.Attr.MaxRDMASize = uint64(p.ep_attr.max_message_size), uint64(p.ep_attr.max_rdma_size)
	to.Attr.MaxRDMAReadOut = int(p.ep_attr.max_rdma_read_out) // Modify has no defaults
	return code(ep.Modify(epMask(mask), to))
}

func microseconds(t C.DAT_TIMEOUT) time.Duration {
	if t == ^C.DAT_TIMEOUT(0) {
		return udat.Infinite
	}
	return time.Duration(t) * time.Microsecond
}

// privateBytes returns private data of the program as a slice, without a copy.
func privateBytes(n C.DAT_COUNT, data C.DAT_PVOID) []byte {
	if n <= 0 || data == nil {
		return nil
	}
	return unsafe.Slice((*byte)(data), n)
}

//export godat_ep_connect
func godat_ep_connect(h C.DAT_EP_HANDLE, addr C.DAT_IA_ADDRESS_PTR, qual C.DAT_CONN_QUAL, timeout C.DAT_TIMEOUT,
	n C.DAT_COUNT, data C.DAT_PVOID, qos C.DAT_QOS, flags C.DAT_CONNECT_FLAGS) C.DAT_RETURN {
	ep, e := find[*udat.EP](h)
	switch {
	case e == nil:
		return badHandle(udat.SubHandleEP)
	case n < 0 || n > 0 && data == nil:
		return badArgument(5)
	}
	if flags&C.DAT_CONNECT_MULTIPATH_REQUIRED_FLAG != 0 { // DAT 1.2 has only the other flag
		flags = flags&^C.DAT_CONNECT_MULTIPATH_REQUIRED_FLAG | C.DAT_CONNECT_FLAGS(udat.ConnectMultipath)
	}
	return code(ep.Connect(getAddr(addr), udat.ConnQual(qual), microseconds(timeout), privateBytes(n, data), udat.QoS(qos),
		udat.ConnectFlags(flags)))
}

//export godat_ep_dup_connect
func godat_ep_dup_connect(h, dupHandle C.DAT_EP_HANDLE, timeout C.DAT_TIMEOUT, n C.DAT_COUNT, data C.DAT_PVOID,
	qos C.DAT_QOS) C.DAT_RETURN {
	ep, e := find[*udat.EP](h)
	dup, dupEntry := find[*udat.EP](dupHandle)
	switch {
	case e == nil || dupEntry == nil:
		return badHandle(udat.SubHandleEP)
	case n < 0 || n > 0 && data == nil:
		return badArgument(4)
	}
	return code(ep.DupConnect(dup, microseconds(timeout), privateBytes(n, data), udat.QoS(qos)))
}

//export godat_ep_disconnect
func godat_ep_disconnect(h C.DAT_EP_HANDLE, flags C.DAT_CLOSE_FLAGS) C.DAT_RETURN {
	return callOn(h, udat.SubHandleEP, func(ep *udat.EP) error { return ep.Disconnect(udat.CloseFlags(flags)) })
}

//export godat_ep_reset
func godat_ep_reset(h C.DAT_EP_HANDLE) C.DAT_RETURN {
	return callOn(h, udat.SubHandleEP, (*udat.EP).Reset)
}

//export godat_ep_set_watermark
func godat_ep_set_watermark(h C.DAT_EP_HANDLE, soft, hard C.DAT_COUNT) C.DAT_RETURN {
	return callOn(h, udat.SubHandleEP, func(ep *udat.EP) error { return ep.SetWatermark(int(soft), int(hard)) })
}

//export godat_ep_recv_query
func godat_ep_recv_query(h C.DAT_EP_HANDLE, allocated, span *C.DAT_COUNT) C.DAT_RETURN {
	return callOn(h, udat.SubHandleEP, func(ep *udat.EP) error {
		n, s, err := ep.RecvQuery()
		if err == nil {
			set(allocated, count(n))
			set(span, count(s))
		}
		return err
	})
}

//export godat_ep_get_status
func godat_ep_get_status(h C.DAT_EP_HANDLE, state *C.DAT_EP_STATE, recvIdle, requestIdle *C.DAT_BOOLEAN) C.DAT_RETURN {
	return callOn(h, udat.SubHandleEP, func(ep *udat.EP) error {
		s, recv, request, err := ep.GetStatus()
		if err != nil {
			return err
		}
		set(state, C.DAT_EP_STATE(s))
		set(recvIdle, boolean(recv))
		set(requestIdle, boolean(request))
		return nil
	})
}

//export godat_ep_free
func godat_ep_free(h C.DAT_EP_HANDLE) C.DAT_RETURN { return free[*udat.EP](h, udat.SubHandleEP) }
