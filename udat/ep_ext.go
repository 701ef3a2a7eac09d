package udat

// PostSendImmediate is PostSend with 32 bits of immediate data that come with the peer's receive completion
// (Operation DTOReceiveImm). The device's ProviderAttr tells of AttrImmediateData; without, ModelNotSupported. The wire carries the
// bytes of the integer in this host's memory, as with OpenFabrics DAPL, and not in network order, as verbs programs have it.
//
// Extension. It is a Send of the IB extension of DAT 2.0.
func (ep *EP) PostSendImmediate(iov []LMRTriplet, cookie Cookie, immediate uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendImmediate, IOV: iov, Cookie: cookie, Immediate: immediate, Flags: flags})
}

// PostSendWithInvalidate is PostSend that also ends the binding of the peer's RMR with the given context, before the
// peer's receive completes (Operation DTOReceiveInv, RMRContext). A context that is no binding in the peer's zone breaks
// the connection. The device's ProviderAttr tells of AttrSendWithInvalidate; without, ModelNotSupported.
//
// Extension. It is dat_ep_post_send_with_invalidate of DAT 2.0.
func (ep *EP) PostSendWithInvalidate(iov []LMRTriplet, cookie Cookie, rmrContext uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendInvalidate, IOV: iov, Cookie: cookie, InvalidateContext: rmrContext, Flags: flags})
}

// PostRDMAWriteImmediate is PostRDMAWrite that, when the data is in place, uses up one receive of the peer's, whose
// completion (Operation DTOReceiveWriteImm) has the 32 bits of immediate data and leaves its buffer alone. Solicited wait is
// allowed, as the peer has a receive completion. Without AttrImmediateData it is ModelNotSupported.
//
// Extension. It is dat_ib_post_rdma_write_immed of the IB extension of DAT 2.0.
func (ep *EP) PostRDMAWriteImmediate(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, immediate uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMAWriteImmediate, IOV: iov, Cookie: cookie, Remote: remote, Immediate: immediate, Flags: flags})
}

// PostFetchAdd adds to the 64-bit word at remote, atomically among the device's atomics, and puts the word's old value,
// in host order, into local. Both are 8 bytes long, remote at a multiple of 8 in a region with remote atomic privilege.
// It counts against the read depth. A device without atomics (AttrFetchAndAdd) is ModelNotSupported.
//
// Extension. It is dat_ib_post_fetch_and_add of the IB extension of DAT 2.0.
func (ep *EP) PostFetchAdd(add uint64, local LMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
	iov := [1]LMRTriplet{local}
	return ep.post(&Op{Kind: OpFetchAdd, IOV: iov[:], Cookie: cookie, Remote: remote, CompareAdd: add, Flags: flags})
}

// PostCmpSwap stores swap in the 64-bit word at remote if it equals compare, and puts the word's old value into local
// either way; all else is as with PostFetchAdd.
//
// Extension. It is dat_ib_post_cmp_and_swap of the IB extension of DAT 2.0.
func (ep *EP) PostCmpSwap(compare, swap uint64, local LMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
	iov := [1]LMRTriplet{local}
	return ep.post(&Op{Kind: OpCmpSwap, IOV: iov[:], Cookie: cookie, Remote: remote, CompareAdd: compare, Swap: swap, Flags: flags})
}

// PostRDMAReadToRMR is PostRDMARead whose sink is part of a bound RMR of this adapter, as local names it: InvalidState
// while the RMR is not bound, PrivilegesViolation if the binding lacks remote write, InvalidParameter for a part outside
// of it or another context than its own.
//
// Extension. It is dat_ep_post_rdma_read_to_rmr of DAT 2.0.
func (ep *EP) PostRDMAReadToRMR(rmr *RMR, local RMRTriplet, cookie Cookie, remote RMRTriplet, flags CompletionFlags) error {
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
