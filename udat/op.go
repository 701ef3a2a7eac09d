package udat

import (
	"encoding/binary"

	"github.com/godat/godat/udat/internal/fabric"
)

// OpKind is the kind of a posted operation.
type OpKind uint8

// Operations of PostBatch. The atomics and the operations with immediate data or invalidation go
// beyond DAT 1.2.
const (
	OpSend OpKind = iota
	OpSendImmediate
	OpSendInvalidate
	OpRDMAWrite
	OpRDMAWriteImmediate
	OpRDMARead
	OpFetchAdd
	OpCmpSwap
	opKinds
)

// Op is one operation of a PostBatch. The methods that post a single operation convert their
// arguments to an Op.
type Op struct {
	Kind   OpKind
	Flags  CompletionFlags
	Cookie Cookie
	IOV    []LMRTriplet // the local segments
	Remote RMRTriplet   // the remote memory of RDMA and atomics

	Immediate         uint32 // immediate data of the operations that have it
	InvalidateContext uint32 // OpSendInvalidate: the context of the peer's RMR to invalidate
	CompareAdd        uint64 // OpCmpSwap: the value to compare with; OpFetchAdd: the addend
	Swap              uint64 // OpCmpSwap: the value to store
}

// opRule describes one kind of operation.
type opRule struct {
	call   string
	opcode fabric.Opcode
	dto    DTOOperation
	need   MemPriv // the privilege required on the local memory
	remote bool
	atomic bool
	flags  CompletionFlags // the completion flags allowed
	inline bool
	beyond bool // goes beyond DAT 1.2; not every device has it
}

const (
	rdmaFlags = CompletionSuppress | CompletionUnsignalled | CompletionBarrierFence
	sendFlags = rdmaFlags | CompletionSolicitedWait
)

var opRules = [opKinds]opRule{
	OpSend: {call: "ep_post_send", opcode: fabric.OpSend, dto: DTOSend, need: PrivLocalRead,
		flags: sendFlags, inline: true},
	OpSendImmediate: {call: "ep_post_send_immediate", opcode: fabric.OpSendImm, dto: DTOSend, need: PrivLocalRead,
		flags: sendFlags, inline: true, beyond: true},
	OpSendInvalidate: {call: "ep_post_send_with_invalidate", opcode: fabric.OpSendInv, dto: DTOSend,
		need: PrivLocalRead, flags: sendFlags, inline: true, beyond: true},
	OpRDMAWrite: {call: "ep_post_rdma_write", opcode: fabric.OpWrite, dto: DTORDMAWrite, need: PrivLocalRead,
		remote: true, flags: rdmaFlags, inline: true},
	OpRDMAWriteImmediate: {call: "ib_post_rdma_write_immed", opcode: fabric.OpWriteImm, dto: DTORDMAWriteImm,
		need: PrivLocalRead, remote: true, flags: sendFlags, inline: true, beyond: true},
	OpRDMARead: {call: "ep_post_rdma_read", opcode: fabric.OpRead, dto: DTORDMARead, need: PrivLocalWrite,
		remote: true, flags: rdmaFlags},
	OpFetchAdd: {call: "ib_post_fetch_and_add", opcode: fabric.OpFetchAdd, dto: DTOFetchAdd,
		need: PrivLocalWrite, remote: true, atomic: true, flags: rdmaFlags, beyond: true},
	OpCmpSwap: {call: "ib_post_cmp_and_swap", opcode: fabric.OpCmpSwap, dto: DTOCmpSwap, need: PrivLocalWrite,
		remote: true, atomic: true, flags: rdmaFlags, beyond: true},
}

// check returns an error if the endpoint, its state or the device does not allow the operation.
func (r *opRule) check(ep *EP, o *Op) error {
	if s := ep.getState(); s != EPConnected && s != EPDisconnected {
		return ep.wrongState(r.call, s)
	}
	flags := SubArg5
	if r.remote {
		flags = SubArg6
	}
	if o.Flags&^r.flags != 0 {
		return fail(r.call, InvalidParameter, flags, "flags %v: only %v may be given", o.Flags, r.flags)
	}
	if o.Flags&CompletionUnsignalled != 0 && ep.attr.RequestCompletionFlags != CompletionUnsignalled {
		return fail(r.call, InvalidParameter, flags,
			"flag CompletionUnsignalled: the endpoint's RequestCompletionFlags are %v", ep.attr.RequestCompletionFlags)
	}
	if limit := r.maxIOV(&ep.attr); len(o.IOV) > limit {
		return fail(r.call, InvalidParameter, SubArg2, "%d segments, the limit is %d", len(o.IOV), limit)
	}
	if r.remote && len(o.IOV) == 0 {
		return fail(r.call, InvalidParameter, SubArg2, "no segments: an RDMA needs at least one")
	}
	if r.opcode == fabric.OpRead || r.atomic {
		if ep.requests.readOut == 0 && ep.getState() == EPConnected {
			who := "the peer's MaxRDMAReadIn is 0: set it in the EPAttr of its endpoint, where 0 means none"
			if ep.attr.MaxRDMAReadOut == 0 {
				who = "MaxRDMAReadOut of this endpoint is 0"
			}
			return fail(r.call, InvalidParameter, SubArg5, "the connection allows no RDMA reads and no atomics: %s", who)
		}
	}
	if r.beyond {
		if err := r.supported(ep.obj.ia); err != nil {
			return err
		}
	}
	if r.atomic {
		return r.checkAtomic(o)
	}
	return nil
}

func (r *opRule) checkAtomic(o *Op) error {
	switch {
	case len(o.IOV) != 1 || o.IOV[0].SegmentLength != 8:
		return fail(r.call, InvalidParameter, SubArg2, "an atomic needs one local segment of 8 bytes")
	case o.Remote.TargetAddress%8 != 0 || o.Remote.SegmentLength < 8:
		return fail(r.call, InvalidParameter, SubArg4, "an atomic needs 8 remote bytes at a multiple of 8")
	}
	return nil
}

func (r *opRule) maxIOV(a *EPAttr) int {
	switch {
	case r.opcode == fabric.OpRead:
		return a.MaxRDMAReadIOV
	case r.remote && !r.atomic:
		return a.MaxRDMAWriteIOV
	case r.atomic:
		return 1
	}
	return a.MaxRequestIOV
}

// maxLength returns the greatest number of bytes that the operation may transfer, and the name of
// the attribute that sets this limit.
func (r *opRule) maxLength(a *EPAttr) (uint64, string) {
	if r.remote {
		return a.MaxRDMASize, "MaxRDMASize"
	}
	return a.MaxMessageSize, "MaxMessageSize"
}

// rawImmediate converts between an integer and immediate data in network byte order, so that the
// network carries the bytes that the integer has in this host's memory. The function is its own
// inverse.
func rawImmediate(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}

// supported returns an error if the operation goes beyond DAT 1.2 and the device does not support
// it.
func (r *opRule) supported(ia *IA) error {
	d := &ia.has
	switch {
	case r.atomic && !d.Atomics:
		return fail(r.call, ModelNotSupported, SubNone, "the device has no atomics")
	case r.opcode == fabric.OpSendInv && !canInvalidate(d):
		return fail(r.call, ModelNotSupported, SubNone, "the device cannot invalidate memory windows with a Send")
	case (r.opcode == fabric.OpWriteImm || r.opcode == fabric.OpSendImm) && !d.WriteImmediate:
		return fail(r.call, ModelNotSupported, SubNone, "the device has no immediate data")
	}
	return nil
}

// canInvalidate reports whether a Send can unbind a peer's RMR. The device must have windows of
// type 2, because only these can be invalidated.
func canInvalidate(d *fabric.Attr) bool { return d.SendInvalidate && d.MWType2 }

func entryOf(f CompletionFlags) entryFlags {
	var e entryFlags
	if f&CompletionSuppress != 0 {
		e |= entrySuppressed
	}
	if f&CompletionUnsignalled != 0 {
		e |= entryUnsignalled
	}
	return e
}
