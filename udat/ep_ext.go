package udat

// PostSendImmediate is PostSend with 32 bits of immediate data. The event of the peer's receive
// contains these bits, with Operation DTOReceiveImm. Without the provider attribute
// AttrImmediateData the call returns ModelNotSupported. The integer is sent as the bytes that it
// has in this host's memory, as in OpenFabrics DAPL; programs on verbs use network byte order.
//
// Extension. It is a Send of the IB extension of DAT 2.0.
func (ep *EP) PostSendImmediate(iov []LMRTriplet, cookie Cookie, immediate uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendImmediate, IOV: iov, Cookie: cookie, Immediate: immediate, Flags: flags})
}

// PostSendWithInvalidate does the same as PostSend, and also unbinds the peer's RMR with the
// context rmrContext. After that the peer's receive completes, with Operation DTOReceiveInv and the
// context in RMRContext. If no RMR in the peer's zone is bound with this context, the connection
// breaks. Without the provider attribute AttrSendWithInvalidate the call returns ModelNotSupported.
//
// Extension. It is dat_ep_post_send_with_invalidate of DAT 2.0.
func (ep *EP) PostSendWithInvalidate(iov []LMRTriplet, cookie Cookie, rmrContext uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendInvalidate, IOV: iov, Cookie: cookie, InvalidateContext: rmrContext, Flags: flags})
}

// PostRDMAWriteImmediate does the same as PostRDMAWrite, and also completes one receive of the peer
// after the data has arrived. The event of that receive has the 32 bits of immediate data
// (Operation DTOReceiveWriteImm). The buffer of the receive is not written. The event's Length is
// the length of the write, which may be greater than the buffer. Solicited wait is allowed. Without
// the provider attribute AttrImmediateData the call returns ModelNotSupported.
//
// Extension. It is dat_ib_post_rdma_write_immed of the IB extension of DAT 2.0.
func (ep *EP) PostRDMAWriteImmediate(iov []LMRTriplet, cookie Cookie, remote RMRTriplet, immediate uint32,
	flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpRDMAWriteImmediate, IOV: iov, Cookie: cookie, Remote: remote, Immediate: immediate,
		Flags: flags})
}

// PostFetchAdd adds to the 64-bit word at remote. It stores the old value of the word, in host byte
// order, in the memory of the triplet local. The operation is atomic with respect to other atomics
// of the peer's device. The parameter local must be 8 bytes long, and remote at least 8. The
// address in remote must be a multiple of 8, in a region with the remote atomic privilege. A
// fetch-and-add in flight counts as an RDMA read. Without the provider attribute AttrFetchAndAdd
// the call returns ModelNotSupported.
//
// Extension. It is dat_ib_post_fetch_and_add of the IB extension of DAT 2.0.
func (ep *EP) PostFetchAdd(add uint64, local LMRTriplet, cookie Cookie, remote RMRTriplet,
	flags CompletionFlags) error {
	iov := [1]LMRTriplet{local}
	return ep.post(&Op{Kind: OpFetchAdd, IOV: iov[:], Cookie: cookie, Remote: remote, CompareAdd: add, Flags: flags})
}

// PostCmpSwap compares the 64-bit word at remote with the parameter compare. If they are equal, it
// replaces the word by the parameter swap. In either case it stores the old value in the memory of
// the triplet local. The requirements are those of PostFetchAdd, but the provider attribute is
// AttrCmpAndSwap.
//
// Extension. It is dat_ib_post_cmp_and_swap of the IB extension of DAT 2.0.
func (ep *EP) PostCmpSwap(compare, swap uint64, local LMRTriplet, cookie Cookie, remote RMRTriplet,
	flags CompletionFlags) error {
	iov := [1]LMRTriplet{local}
	return ep.post(&Op{Kind: OpCmpSwap, IOV: iov[:], Cookie: cookie, Remote: remote, CompareAdd: compare, Swap: swap,
		Flags: flags})
}

// PostRDMAReadToRMR is PostRDMARead into memory that an RMR of this adapter is bound to. The
// parameter local has the context of that RMR, and the address and length of the part of the memory
// to fill. Three more errors are possible: InvalidState if the RMR is not bound,
// PrivilegesViolation if the binding lacks remote write, InvalidParameter if local is outside the
// binding or has another context.
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
