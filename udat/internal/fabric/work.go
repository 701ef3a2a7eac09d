package fabric

import "strconv"

// SGE is one segment of local memory; the layout is that of struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Opcode is the operation of a send work request; the values are those of verbs (ibv_wr_opcode).
type Opcode uint32

// Operations.
const (
	OpWrite    Opcode = 0
	OpWriteImm Opcode = 1
	OpSend     Opcode = 2
	OpSendImm  Opcode = 3
	OpRead     Opcode = 4
	OpCmpSwap  Opcode = 5
	OpFetchAdd Opcode = 6
	OpLocalInv Opcode = 7
	OpSendInv  Opcode = 9
)

// SendFlags modify a send work request; the values are those of verbs (ibv_send_flags).
type SendFlags uint32

// Flags of a send work request.
const (
	Fence     SendFlags = 1 << 0
	Signaled  SendFlags = 1 << 1
	Solicited SendFlags = 1 << 2
	Inline    SendFlags = 1 << 3
)

// SendWR is one work request for the send queue: a flat value without pointers, laid out as in cverbs, so that a
// batch crosses into C as it is. Its segments are sges[FirstSGE:FirstSGE+NumSGE] of the slice posted with it.
type SendWR struct {
	ID         uint64
	RemoteAddr uint64
	CompareAdd uint64 // compare-and-swap: the value expected; fetch-and-add: the addend
	Swap       uint64
	RKey       uint32 // remote key; the key to invalidate with OpSendInv and OpLocalInv
	FirstSGE   uint32
	NumSGE     uint32
	Opcode     Opcode
	Flags      SendFlags
	Imm        uint32 // immediate data, host order
	AH         uint64 // datagrams only
	RemoteQPN  uint32
	RemoteQKey uint32
}

// RecvWR is one receive work request.
type RecvWR struct {
	ID       uint64
	FirstSGE uint32
	NumSGE   uint32
}

// BindWR binds a memory window.
type BindWR struct {
	ID     uint64
	Flags  SendFlags // Signaled and Fence
	MR     MR
	Addr   uint64
	Length uint64 // 0 unbinds
	Access Access
}

// Status is the outcome of a work request; the values are those of verbs (ibv_wc_status).
type Status uint32

// Outcomes.
const (
	StatusSuccess        Status = 0
	StatusLocalLength    Status = 1
	StatusLocalQPOp      Status = 2
	StatusLocalEEC       Status = 3
	StatusLocalProt      Status = 4
	StatusFlush          Status = 5
	StatusMWBind         Status = 6
	StatusBadResponse    Status = 7
	StatusLocalAccess    Status = 8
	StatusRemoteInvReq   Status = 9
	StatusRemoteAccess   Status = 10
	StatusRemoteOp       Status = 11
	StatusRetryExceeded  Status = 12
	StatusRNRExceeded    Status = 13
	StatusLocalRDD       Status = 14
	StatusRemoteInvRD    Status = 15
	StatusRemoteAborted  Status = 16
	StatusInvEECN        Status = 17
	StatusInvEECState    Status = 18
	StatusFatal          Status = 19
	StatusRespTimeout    Status = 20
	StatusGeneral        Status = 21
	StatusTagMatching    Status = 22
	StatusTMRndvComplete Status = 23
)

var statusText = [...]string{
	"success", "local length error", "local queue pair operation error", "local EE context operation error",
	"local protection error", "flushed", "memory window bind error", "bad response", "local access error",
	"remote invalid request", "remote access error", "remote operation error", "transport retries exceeded",
	"receiver not ready retries exceeded", "local RDD violation", "remote invalid RD request",
	"remote aborted", "invalid EE context number", "invalid EE context state", "fatal error",
	"response timeout", "general error", "tag matching error", "tag matching rendezvous incomplete",
}

// String names the status in words.
func (s Status) String() string {
	if int(s) < len(statusText) {
		return statusText[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// WCOpcode is the kind of a completed operation; the values are those of verbs (ibv_wc_opcode). It is valid only
// on success.
type WCOpcode uint32

// Kinds of completions.
const (
	OpWCSend        WCOpcode = 0
	OpWCWrite       WCOpcode = 1
	OpWCRead        WCOpcode = 2
	OpWCCmpSwap     WCOpcode = 3
	OpWCFetchAdd    WCOpcode = 4
	OpWCBind        WCOpcode = 5
	OpWCLocalInv    WCOpcode = 6
	OpWCRecv        WCOpcode = 128
	OpWCRecvWithImm WCOpcode = 129
)

// WCFlags tell what else a completion carries; the values are those of verbs (ibv_wc_flags).
type WCFlags uint32

// Flags of a completion.
const (
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// WC is a work completion: a flat value, laid out as in cverbs. On an error only ID, Status, VendorErr and QPNum
// mean something.
type WC struct {
	ID        uint64
	Status    Status
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // immediate data in host order, or with WCWithInv the key that was invalidated
	QPNum     uint32
	SrcQP     uint32
	Flags     WCFlags
	_         uint64 // the rest of struct ibv_wc
}
