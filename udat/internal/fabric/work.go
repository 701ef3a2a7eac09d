package fabric

import "github.com/godat/godat/cverbs"

// These types are those of package cverbs, so that a batch of work requests or completions is
// passed to C unchanged. Package cverbs compiles on every platform. On platforms without verbs only
// its types are used.
type (
	SGE       = cverbs.SGE
	SendWR    = cverbs.SendWR
	RecvWR    = cverbs.RecvWR
	Opcode    = cverbs.WROpcode
	SendFlags = cverbs.SendFlags
	WC        = cverbs.WC
	WCOpcode  = cverbs.WCOpcode
	WCFlags   = cverbs.WCFlags
	Status    = cverbs.WCStatus
	Access    = cverbs.AccessFlags

	Path        = cverbs.Path
	PathOptions = cverbs.PathOptions
)

// Operations of a send work request.
const (
	OpWrite    = cverbs.OpRDMAWrite
	OpWriteImm = cverbs.OpRDMAWriteWithImm
	OpSend     = cverbs.OpSend
	OpSendImm  = cverbs.OpSendWithImm
	OpRead     = cverbs.OpRDMARead
	OpCmpSwap  = cverbs.OpAtomicCmpAndSwp
	OpFetchAdd = cverbs.OpAtomicFetchAndAdd
	OpLocalInv = cverbs.OpLocalInv
	OpSendInv  = cverbs.OpSendWithInv
)

// Flags of a send work request.
const (
	Fence     = cverbs.SendFence
	Signaled  = cverbs.SendSignaled
	Solicited = cverbs.SendSolicited
	Inline    = cverbs.SendInline
)

// Statuses of a completion.
const (
	StatusSuccess       = cverbs.WCSuccess
	StatusLocalLength   = cverbs.WCLocLenErr
	StatusLocalQPOp     = cverbs.WCLocQPOpErr
	StatusLocalProt     = cverbs.WCLocProtErr
	StatusFlush         = cverbs.WCWRFlushErr
	StatusMWBind        = cverbs.WCMWBindErr
	StatusBadResponse   = cverbs.WCBadRespErr
	StatusLocalAccess   = cverbs.WCLocAccessErr
	StatusRemoteInvReq  = cverbs.WCRemInvReqErr
	StatusRemoteAccess  = cverbs.WCRemAccessErr
	StatusRemoteOp      = cverbs.WCRemOpErr
	StatusRetryExceeded = cverbs.WCRetryExcErr
	StatusRNRExceeded   = cverbs.WCRNRRetryExcErr
	StatusLocalRDD      = cverbs.WCLocRDDViolErr
	StatusRemoteInvRD   = cverbs.WCRemInvRDReqErr
	StatusRemoteAborted = cverbs.WCRemAbortErr
	StatusGeneral       = cverbs.WCGeneralErr
	StatusLocalEEC      = cverbs.WCLocEECOpErr
	StatusFatal         = cverbs.WCFatalErr
)

// Kinds of completed operations. A completion has a kind only if its status is StatusSuccess.
const (
	OpWCSend        = cverbs.WCSend
	OpWCWrite       = cverbs.WCRDMAWrite
	OpWCRead        = cverbs.WCRDMARead
	OpWCCmpSwap     = cverbs.WCCompSwap
	OpWCFetchAdd    = cverbs.WCFetchAdd
	OpWCBind        = cverbs.WCBindMW
	OpWCLocalInv    = cverbs.WCLocalInv
	OpWCRecv        = cverbs.WCRecv
	OpWCRecvWithImm = cverbs.WCRecvRDMAWithImm
)

// Flags of a completion.
const (
	WCWithImm = cverbs.WCWithImm
	WCWithInv = cverbs.WCWithInv
)

// Access rights. Local read is always granted.
const (
	LocalWrite   = cverbs.AccessLocalWrite
	RemoteWrite  = cverbs.AccessRemoteWrite
	RemoteRead   = cverbs.AccessRemoteRead
	RemoteAtomic = cverbs.AccessRemoteAtomic
	WindowBind   = cverbs.AccessMWBind
)

// BindWR is a request to bind a memory window.
type BindWR struct {
	ID     uint64
	Flags  SendFlags // Signaled and Fence
	MR     MR
	Addr   uint64
	Length uint64 // 0 unbinds
	Access Access
}
