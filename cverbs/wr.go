package cverbs

// SGE is one segment of local memory: struct ibv_sge.
type SGE struct {
	Addr   uint64 // virtual address of the first byte
	Length uint32 // bytes; avoid 0: drivers treat 0 differently, and a post hangs on siw
	LKey   uint32 // local key of the region that contains the segment
}

// WROpcode is the operation of a send work request.
type WROpcode uint32

// Send work request opcodes, with the values of enum ibv_wr_opcode.
const (
	OpRDMAWrite         WROpcode = 0
	OpRDMAWriteWithImm  WROpcode = 1
	OpSend              WROpcode = 2
	OpSendWithImm       WROpcode = 3
	OpRDMARead          WROpcode = 4
	OpAtomicCmpAndSwp   WROpcode = 5
	OpAtomicFetchAndAdd WROpcode = 6
	OpLocalInv          WROpcode = 7
	OpBindMW            WROpcode = 8 // only through QP.BindMW; PostSend refuses it
	OpSendWithInv       WROpcode = 9
	OpTSO               WROpcode = 10 // only on a queue pair with WithTSO
	OpAtomicWrite       WROpcode = 15 // writes the 8 bytes of Swap at once; only on a queue pair with WithAtomicWrite
)

var opNames = map[WROpcode]string{
	OpRDMAWrite: "RDMA_WRITE", OpRDMAWriteWithImm: "RDMA_WRITE_WITH_IMM", OpSend: "SEND", OpSendWithImm: "SEND_WITH_IMM",
	OpRDMARead: "RDMA_READ", OpAtomicCmpAndSwp: "ATOMIC_CMP_AND_SWP", OpAtomicFetchAndAdd: "ATOMIC_FETCH_AND_ADD",
	OpLocalInv: "LOCAL_INV", OpBindMW: "BIND_MW", OpSendWithInv: "SEND_WITH_INV",
	OpTSO: "TSO", OpAtomicWrite: "ATOMIC_WRITE",
}

// String returns the verbs name without its prefix.
//
// Extension.
func (o WROpcode) String() string { return enumName(opNames, o, "WROpcode") }

// SendFlags modify a send work request.
type SendFlags uint32

// Send flags, with the values of enum ibv_send_flags.
const (
	SendFence     SendFlags = 1 << 0 // wait for earlier RDMA reads and atomics
	SendSignaled  SendFlags = 1 << 1 // complete on success too; implied by QPInit.SigAll
	SendSolicited SendFlags = 1 << 2 // the receiver's completion is a solicited one
	SendInline    SendFlags = 1 << 3 // copy the data during the post; LKey is ignored
	SendIPCsum    SendFlags = 1 << 4
)

var sendFlagNames = []bitName{{1 << 0, "FENCE"}, {1 << 1, "SIGNALED"}, {1 << 2, "SOLICITED"}, {1 << 3, "INLINE"},
	{1 << 4, "IP_CSUM"}}

// String joins the names of the flags with |.
//
// Extension.
func (f SendFlags) String() string { return bitNames(sendFlagNames, f) }

// SendWR is one send work request: a flat struct of 72 bytes with the same layout in C. Fields that
// the opcode does not use are ignored.
type SendWR struct {
	ID         uint64 // returned in the completion
	RemoteAddr uint64 // RDMA and atomics: the peer's virtual address
	CompareAdd uint64 // atomics: the value to compare with, or to add
	Swap       uint64 // compare and swap, and atomic write: the new value
	RKey       uint32 // RDMA and atomics: the remote key; OpLocalInv and OpSendWithInv: the key to invalidate
	FirstSGE   uint32 // the request's segments are sges[FirstSGE : FirstSGE+NumSGE] of the slice passed with the batch
	NumSGE     uint32
	Opcode     WROpcode
	Flags      SendFlags
	Imm        uint32 // *WithImm: the immediate value, in host byte order; OpTSO: bytes of data in each packet
	AH         uint64 // UD: AH.Handle() of the destination
	RemoteQPN  uint32 // UD: the destination's QP number; XRC: the number of the destination's SRQ (SRQ.Num)
	RemoteQKey uint32 // UD: the destination's Q_Key
}

// RecvWR is one receive work request: a flat struct of 16 bytes with the same layout in C.
type RecvWR struct {
	ID       uint64 // returned in the completion
	FirstSGE uint32 // the request's segments are sges[FirstSGE : FirstSGE+NumSGE] of the slice passed with the batch
	NumSGE   uint32
}

// BindWR is a bind of a memory window.
type BindWR struct {
	ID     uint64
	Flags  SendFlags // SendFence and SendSignaled only
	MR     *MR       // the region to bind to; must be registered with AccessMWBind
	Addr   uint64    // first byte, inside the region
	Length uint64    // bytes; 0 removes the binding of a type 1 window
	Access AccessFlags
}
