package verbsfabric

import (
	"unsafe"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// The slices of work pass from udat to C as they are. What follows does not compile when the two packages disagree.

var (
	_ = cverbs.SGE(fabric.SGE{})
	_ = cverbs.RecvWR(fabric.RecvWR{})

	_ = zero[unsafe.Sizeof(fabric.SendWR{})-unsafe.Sizeof(cverbs.SendWR{})]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.ID)-unsafe.Offsetof(cverbs.SendWR{}.ID)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.RemoteAddr)-unsafe.Offsetof(cverbs.SendWR{}.RemoteAddr)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.CompareAdd)-unsafe.Offsetof(cverbs.SendWR{}.CompareAdd)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.Swap)-unsafe.Offsetof(cverbs.SendWR{}.Swap)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.RKey)-unsafe.Offsetof(cverbs.SendWR{}.RKey)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.Imm)-unsafe.Offsetof(cverbs.SendWR{}.Imm)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.Opcode)-unsafe.Offsetof(cverbs.SendWR{}.Opcode)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.Flags)-unsafe.Offsetof(cverbs.SendWR{}.Flags)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.FirstSGE)-unsafe.Offsetof(cverbs.SendWR{}.FirstSGE)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.NumSGE)-unsafe.Offsetof(cverbs.SendWR{}.NumSGE)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.AH)-unsafe.Offsetof(cverbs.SendWR{}.AH)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.RemoteQPN)-unsafe.Offsetof(cverbs.SendWR{}.RemoteQPN)]
	_ = zero[unsafe.Offsetof(fabric.SendWR{}.RemoteQKey)-unsafe.Offsetof(cverbs.SendWR{}.RemoteQKey)]

	_ = zero[unsafe.Sizeof(fabric.WC{})-unsafe.Sizeof(cverbs.WC{})]
	_ = zero[unsafe.Offsetof(fabric.WC{}.ID)-unsafe.Offsetof(cverbs.WC{}.ID)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.Status)-unsafe.Offsetof(cverbs.WC{}.Status)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.Opcode)-unsafe.Offsetof(cverbs.WC{}.Opcode)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.VendorErr)-unsafe.Offsetof(cverbs.WC{}.VendorErr)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.ByteLen)-unsafe.Offsetof(cverbs.WC{}.ByteLen)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.Imm)-unsafe.Offsetof(cverbs.WC{}.Imm)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.QPNum)-unsafe.Offsetof(cverbs.WC{}.QPNum)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.SrcQP)-unsafe.Offsetof(cverbs.WC{}.SrcQP)]
	_ = zero[unsafe.Offsetof(fabric.WC{}.Flags)-unsafe.Offsetof(cverbs.WC{}.Flags)]

	_ = zero[uint32(fabric.OpWrite)-uint32(cverbs.OpRDMAWrite)]
	_ = zero[uint32(fabric.OpWriteImm)-uint32(cverbs.OpRDMAWriteWithImm)]
	_ = zero[uint32(fabric.OpSend)-uint32(cverbs.OpSend)]
	_ = zero[uint32(fabric.OpSendImm)-uint32(cverbs.OpSendWithImm)]
	_ = zero[uint32(fabric.OpRead)-uint32(cverbs.OpRDMARead)]
	_ = zero[uint32(fabric.OpCmpSwap)-uint32(cverbs.OpAtomicCmpAndSwp)]
	_ = zero[uint32(fabric.OpFetchAdd)-uint32(cverbs.OpAtomicFetchAndAdd)]
	_ = zero[uint32(fabric.OpLocalInv)-uint32(cverbs.OpLocalInv)]
	_ = zero[uint32(fabric.OpSendInv)-uint32(cverbs.OpSendWithInv)]
	_ = zero[uint32(fabric.Fence)-uint32(cverbs.SendFence)]
	_ = zero[uint32(fabric.Signaled)-uint32(cverbs.SendSignaled)]
	_ = zero[uint32(fabric.Solicited)-uint32(cverbs.SendSolicited)]
	_ = zero[uint32(fabric.Inline)-uint32(cverbs.SendInline)]

	_ = zero[uint32(fabric.StatusSuccess)-uint32(cverbs.WCSuccess)]
	_ = zero[uint32(fabric.StatusLocalLength)-uint32(cverbs.WCLocLenErr)]
	_ = zero[uint32(fabric.StatusLocalQPOp)-uint32(cverbs.WCLocQPOpErr)]
	_ = zero[uint32(fabric.StatusLocalEEC)-uint32(cverbs.WCLocEECOpErr)]
	_ = zero[uint32(fabric.StatusLocalProt)-uint32(cverbs.WCLocProtErr)]
	_ = zero[uint32(fabric.StatusFlush)-uint32(cverbs.WCWRFlushErr)]
	_ = zero[uint32(fabric.StatusMWBind)-uint32(cverbs.WCMWBindErr)]
	_ = zero[uint32(fabric.StatusBadResponse)-uint32(cverbs.WCBadRespErr)]
	_ = zero[uint32(fabric.StatusLocalAccess)-uint32(cverbs.WCLocAccessErr)]
	_ = zero[uint32(fabric.StatusRemoteInvReq)-uint32(cverbs.WCRemInvReqErr)]
	_ = zero[uint32(fabric.StatusRemoteAccess)-uint32(cverbs.WCRemAccessErr)]
	_ = zero[uint32(fabric.StatusRemoteOp)-uint32(cverbs.WCRemOpErr)]
	_ = zero[uint32(fabric.StatusRetryExceeded)-uint32(cverbs.WCRetryExcErr)]
	_ = zero[uint32(fabric.StatusRNRExceeded)-uint32(cverbs.WCRNRRetryExcErr)]
	_ = zero[uint32(fabric.StatusLocalRDD)-uint32(cverbs.WCLocRDDViolErr)]
	_ = zero[uint32(fabric.StatusRemoteInvRD)-uint32(cverbs.WCRemInvRDReqErr)]
	_ = zero[uint32(fabric.StatusRemoteAborted)-uint32(cverbs.WCRemAbortErr)]
	_ = zero[uint32(fabric.StatusInvEECN)-uint32(cverbs.WCInvEECNErr)]
	_ = zero[uint32(fabric.StatusInvEECState)-uint32(cverbs.WCInvEECStateErr)]
	_ = zero[uint32(fabric.StatusFatal)-uint32(cverbs.WCFatalErr)]
	_ = zero[uint32(fabric.StatusRespTimeout)-uint32(cverbs.WCRespTimeoutErr)]
	_ = zero[uint32(fabric.StatusGeneral)-uint32(cverbs.WCGeneralErr)]
	_ = zero[uint32(fabric.StatusTagMatching)-uint32(cverbs.WCTMErr)]
	_ = zero[uint32(fabric.StatusTMRndvComplete)-uint32(cverbs.WCTMRndvIncomplete)]

	_ = zero[uint32(fabric.OpWCSend)-uint32(cverbs.WCSend)]
	_ = zero[uint32(fabric.OpWCWrite)-uint32(cverbs.WCRDMAWrite)]
	_ = zero[uint32(fabric.OpWCRead)-uint32(cverbs.WCRDMARead)]
	_ = zero[uint32(fabric.OpWCCmpSwap)-uint32(cverbs.WCCompSwap)]
	_ = zero[uint32(fabric.OpWCFetchAdd)-uint32(cverbs.WCFetchAdd)]
	_ = zero[uint32(fabric.OpWCBind)-uint32(cverbs.WCBindMW)]
	_ = zero[uint32(fabric.OpWCLocalInv)-uint32(cverbs.WCLocalInv)]
	_ = zero[uint32(fabric.OpWCRecv)-uint32(cverbs.WCRecv)]
	_ = zero[uint32(fabric.OpWCRecvWithImm)-uint32(cverbs.WCRecvRDMAWithImm)]
	_ = zero[uint32(fabric.WCGRH)-uint32(cverbs.WCGRH)]
	_ = zero[uint32(fabric.WCWithImm)-uint32(cverbs.WCWithImm)]
	_ = zero[uint32(fabric.WCWithInv)-uint32(cverbs.WCWithInv)]

	_ = zero[uint32(fabric.LocalWrite)-uint32(cverbs.AccessLocalWrite)]
	_ = zero[uint32(fabric.RemoteWrite)-uint32(cverbs.AccessRemoteWrite)]
	_ = zero[uint32(fabric.RemoteRead)-uint32(cverbs.AccessRemoteRead)]
	_ = zero[uint32(fabric.RemoteAtomic)-uint32(cverbs.AccessRemoteAtomic)]
	_ = zero[uint32(fabric.WindowBind)-uint32(cverbs.AccessMWBind)]
)

// zero has one element: only the constant index 0 compiles.
var zero [1]struct{}

func sendWRs(w []fabric.SendWR) []cverbs.SendWR {
	return unsafe.Slice((*cverbs.SendWR)(unsafe.Pointer(unsafe.SliceData(w))), len(w))
}

func recvWRs(w []fabric.RecvWR) []cverbs.RecvWR {
	return unsafe.Slice((*cverbs.RecvWR)(unsafe.Pointer(unsafe.SliceData(w))), len(w))
}

func segments(s []fabric.SGE) []cverbs.SGE {
	return unsafe.Slice((*cverbs.SGE)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

func completions(w []fabric.WC) []cverbs.WC {
	return unsafe.Slice((*cverbs.WC)(unsafe.Pointer(unsafe.SliceData(w))), len(w))
}
