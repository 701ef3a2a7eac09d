package udat

// PostSendImmediate is PostSend with 32 bits of immediate data for the peer's receive completion
// (Operation DTOReceiveImm). Without the provider attribute AttrImmediateData it is
// ModelNotSupported. The wire carries the bytes of the integer as this host's memory has them, like
// OpenFabrics DAPL; verbs programs use network order.
//
// Extension. It is a Send of the IB extension of DAT 2.0.
func (ep *EP) PostSendImmediate(iov []LMRTriplet, cookie Cookie, immediate uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendImmediate, IOV: iov, Cookie: cookie, Immediate: immediate, Flags: flags})
}

// PostSendWithInvalidate is PostSend that also unbinds the peer's RMR with the given context,
// before the peer's receive completes (Operation DTOReceiveInv, RMRContext). A context that is not
// bound in the peer's zone breaks the connection. Without the provider attribute
// AttrSendWithInvalidate it is ModelNotSupported.
//
// Extension. It is dat_ep_post_send_with_invalidate of DAT 2.0.
func (ep *EP) PostSendWithInvalidate(iov []LMRTriplet, cookie Cookie, rmrContext uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendInvalidate, IOV: iov, Cookie: cookie, InvalidateContext: rmrContext, Flags: flags})
}

// PostRDMAWriteImmediate is PostRDMAWrite that takes one receive of the peer once the data is in
// place. The receive completes (Operation DTOReceiveWriteImm) with the 32 bits of immediate data;
// its buffer is not written, and its Length is that of the write, which may be more than the buffer
// has. Solicited wait is allowed. Without the provider attribute
// AttrImmediateData it is ModelNotSupported.
//
// Extension. It is dat_ib_post_rdma_write_immed of the IB extension of DAT 2.0.
func (ep *EP) PostRDMAWriteImmediate(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, immediate uint32,
	flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMAWriteImmediate, IOV: iov, Cookie: cookie, Remote: remote, Immediate: immediate,
		Flags: flags})
}

// PostFetchAdd adds to the 64-bit word at remote, atomically among the device's atomics, and stores
// the old value, in host order, in local. Both are 8 bytes long, remote at a multiple of 8 in a
// region with remote atomic privilege. It counts as an RDMA read in flight. Without the provider
// attribute AttrFetchAndAdd it is ModelNotSupported.
//
// Extension. It is dat_ib_post_fetch_and_add of the IB extension of DAT 2.0.
func (ep *EP) PostFetchAdd(add uint64, local LMRTriplet, cookie Cookie, remote RMRTriplet,
	flags CompletionFlags) error {
	iov := [1]LMRTriplet{local}
	return ep.post(&Op{Kind: OpFetchAdd, IOV: iov[:], Cookie: cookie, Remote: remote, CompareAdd: add, Flags: flags})
}

// PostCmpSwap stores swap in the 64-bit word at remote if the word equals compare, and stores the
// old value in local in either case. All else is as with PostFetchAdd.
//
// Extension. It is dat_ib_post_cmp_and_swap of the IB extension of DAT 2.0.
func (ep *EP) PostCmpSwap(compare, swap uint64, local LMRTriplet, cookie Cookie, remote RMRTriplet,
	flags CompletionFlags) error {
	iov := [1]LMRTriplet{local}
	return ep.post(&Op{Kind: OpCmpSwap, IOV: iov[:], Cookie: cookie, Remote: remote, CompareAdd: compare, Swap: swap,
		Flags: flags})
}

// PostRDMAReadToRMR is PostRDMARead into part of a bound RMR of this adapter, which local names.
// Errors also: InvalidState if the RMR is not bound, PrivilegesViolation if the binding lacks
// remote write, InvalidParameter for a part outside the binding or another context.
//
// Extension. It is dat_ep_post_rdma_read_to_rmr of DAT 2.0.
func (ep *EP) PostRDMAReadToRMR(rmr *RMR, local RMRTriplet, cookie Cookie, remote RMRTriplet,
	flags CompletionFlags) error {
	if err := ep.object().check("ep_post_rdma_read_to_rmr", HandleEP); err != nil {
		return err
	}
	t, err := rmr.local(local)
	if err != nil {
		return err
	}
	iov := [1]LMRTriplet{t}
	return ep.post(&Op{Kind: OpRDMARead, IOV: iov[:], Cookie: cookie, Remote: remote, Flags: flags})
}
