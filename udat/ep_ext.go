package udat

import (
	"encoding/binary"

	"github.com/godat/godat/udat/internal/fabric"
)

// PostSendImmediate is PostSend with 32 bits of immediate data that come with the peer's receive completion
// (Operation DTOReceiveImm). The device's ProviderAttr tells of AttrImmediateData; without, ModelNotSupported. The wire carries the
// bytes of the integer in this host's memory, as with OpenFabrics DAPL, and not in network order, as verbs programs have it.
//
// Extension. It is a Send of the IB extension of DAT 2.0.
func (ep *EP) PostSendImmediate(iov []LMRTriplet, cookie Cookie, immediate uint32, flags CompletionFlags) error {
	return ep.post(&Op{Kind: OpSendImmediate, IOV: iov, Cookie: cookie, Immediate: immediate, Flags: flags})
}

// rawImmediate makes the fabric, which puts immediate data in network order, carry the integer's bytes as this host's memory has
// them, and is its own reverse.
func rawImmediate(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
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

// local translates part of the binding into the region behind it.
func (r *RMR) local(t RMRTriplet) (LMRTriplet, error) {
	const op = "ep_post_rdma_read_to_rmr"
	if err := r.object().check(op, HandleRMR); err != nil {
		return LMRTriplet{}, err
	}
	b := r.binding()
	off := t.TargetAddress - b.triplet.VirtualAddress
	switch {
	case b.region == nil:
		return LMRTriplet{}, fail(op, InvalidState, SubNone, "the window is not bound")
	case b.priv&PrivRemoteWrite == 0:
		return LMRTriplet{}, fail(op, PrivilegesViolation, SubPrivilegesRDMAWrite, "the binding has privileges %v and lacks remote write", b.priv)
	case t.RMRContext != b.context:
		return LMRTriplet{}, fail(op, InvalidParameter, SubArg2, "context 0x%x is not the binding's 0x%x", t.RMRContext, b.context)
	case off > b.triplet.SegmentLength || t.SegmentLength > b.triplet.SegmentLength-off:
		return LMRTriplet{}, fail(op, InvalidParameter, SubArg2, "[0x%x, +%d) is not inside the binding [0x%x, +%d)",
			t.TargetAddress, t.SegmentLength, b.triplet.VirtualAddress, b.triplet.SegmentLength)
	}
	return LMRTriplet{LMR: b.region, VirtualAddress: t.TargetAddress, SegmentLength: t.SegmentLength}, nil
}

// canInvalidate says whether a Send can end the binding of an RMR: windows of type 1 cannot be invalidated.
func canInvalidate(d *fabric.Attr) bool { return d.SendInvalidate && d.MWType2 }

// supported says whether the device has the operation; those of DAT 1.2 it has.
func (r *opRule) supported(ia *IA) error {
	d := ia.device.Attr()
	switch {
	case r.atomic && !d.Atomics:
		return fail(r.call, ModelNotSupported, SubNone, "the device has no atomics")
	case r.opcode == fabric.OpSendInv && !canInvalidate(&d):
		return fail(r.call, ModelNotSupported, SubNone, "the device cannot invalidate memory windows with a Send")
	case (r.opcode == fabric.OpWriteImm || r.opcode == fabric.OpSendImm) && !d.WriteImmediate:
		return fail(r.call, ModelNotSupported, SubNone, "the device has no immediate data")
	}
	return nil
}
