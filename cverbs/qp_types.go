package cverbs

import (
	"fmt"
	"strconv"
)

// QPType is the transport service of a queue pair.
type QPType uint32

// Queue pair types, with the values of enum ibv_qp_type.
const (
	QPTypeRC QPType = 2 // reliable connection
	QPTypeUC QPType = 3 // unreliable connection
	QPTypeUD QPType = 4 // unreliable datagram

	QPTypeRawPacket QPType = 8  // Ethernet frames, selected by flows (QP.CreateFlow)
	QPTypeXRCSend   QPType = 9  // extended reliable connection: the end that sends
	QPTypeXRCRecv   QPType = 10 // the end that receives; XRCD.CreateQP creates it
)

var qpTypeNames = map[QPType]string{QPTypeRC: "RC", QPTypeUC: "UC", QPTypeUD: "UD", QPTypeRawPacket: "RAW_PACKET",
	QPTypeXRCSend: "XRC_SEND", QPTypeXRCRecv: "XRC_RECV"}

// String returns the type's name.
//
// Extension.
func (t QPType) String() string { return enumName(qpTypeNames, t, "QPType") }

// QPTypes is a set of queue pair types: bit 1<<t for type t.
type QPTypes uint32

// Has reports whether a type is in the set.
//
// Implements: ibv_is_qpt_supported.
func (s QPTypes) Has(t QPType) bool { return s&(1<<t) != 0 }

var qpTypesNames = func() (names []bitName) {
	for t := QPType(0); t < 32; t++ {
		if name := qpTypeNames[t]; name != "" {
			names = append(names, bitName{1 << t, name})
		}
	}
	return names
}()

// String joins the names of the types with |.
//
// Extension.
func (s QPTypes) String() string { return bitNames(qpTypesNames, s) }

// QPState is the state of a queue pair.
type QPState uint32

// Queue pair states, with the values of enum ibv_qp_state.
const (
	QPStateReset QPState = 0
	QPStateInit  QPState = 1
	QPStateRTR   QPState = 2
	QPStateRTS   QPState = 3
	QPStateSQD   QPState = 4
	QPStateSQE   QPState = 5
	QPStateErr   QPState = 6
)

var qpStateNames = map[QPState]string{
	QPStateReset: "RESET", QPStateInit: "INIT", QPStateRTR: "RTR", QPStateRTS: "RTS", QPStateSQD: "SQD",
	QPStateSQE: "SQE", QPStateErr: "ERR",
}

// String returns the state's name.
//
// Extension.
func (s QPState) String() string { return enumName(qpStateNames, s, "QPState") }

// MigState is the state of a queue pair's migration to its alternate path.
type MigState uint32

// Migration states, with the values of enum ibv_mig_state.
const (
	MigMigrated MigState = 0 // the queue pair uses one path and has no alternate path
	MigRearm    MigState = 1 // AltAH is being made ready
	MigArmed    MigState = 2 // if the path fails the queue pair uses AltAH
)

var migNames = map[MigState]string{MigMigrated: "MIGRATED", MigRearm: "REARM", MigArmed: "ARMED"}

// String returns the verbs name without its prefix.
//
// Extension.
func (s MigState) String() string { return enumName(migNames, s, "MigState") }

// MTU is a path MTU in the verbs encoding; Bytes returns its size.
type MTU uint32

// Path MTUs, with the values of enum ibv_mtu.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the size in bytes, 0 for an invalid value.
//
// Extension.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// String returns the size in bytes, as a decimal number.
//
// Extension.
func (m MTU) String() string {
	if b := m.Bytes(); b != 0 {
		return strconv.Itoa(b)
	}
	return fmt.Sprintf("MTU(%d)", uint32(m))
}

// DefaultMaxInline is the [QPCap.MaxInline] that package udat and datperf request, in bytes. It is
// enough for small messages. A higher limit makes each entry of the queue larger and gains little.
//
// Extension.
const DefaultMaxInline = 128

// QPCap holds the sizes of a queue pair. Devices round up.
type QPCap struct {
	MaxSendWR  uint32 // outstanding send work requests
	MaxRecvWR  uint32 // outstanding receive work requests; ignored with an SRQ
	MaxSendSGE uint32 // segments of one send
	MaxRecvSGE uint32 // segments of one receive
	MaxInline  uint32 // bytes that SendInline may carry
}

// QPInit describes a queue pair to create.
type QPInit struct {
	Type   QPType // QPTypeRC when 0
	SendCQ *CQ
	RecvCQ *CQ
	SRQ    *SRQ // nil: the queue pair has its own receive queue
	Cap    QPCap
	SigAll bool   // every send work request is signalled
	QKey   uint32 // UD: the Q_Key that ToInit sets

	// SendOps, if it is not 0, selects an extended queue pair (see the manual page ibv_wr_post(3)).
	// PostSend then accepts only these operations. A request with SendInline may have 32 segments,
	// whatever Cap.MaxSendSGE is. PostSend divides a batch into chains of up to 128 requests, and
	// posts each chain as a whole or not at all.
	//
	// On soft-RoCE a request with SendInline may have at most 1024 bytes. Any other request may
	// have at most one segment, because the driver handles more segments wrong.
	SendOps SendOps

	// The following fields, too, need a device with extended queue pairs. CreateQP returns
	// ErrNotSupported if the device does not support a field that is not 0.
	CreateFlags  QPCreateFlags
	SourceQPN    uint32 // QPCreateSourceQPN: the source QP number in packets
	MaxTSOHeader uint16 // OpTSO: bytes of the longest header
	RSS          *RSS   // spreads received packets over other queues; SendCQ and RecvCQ may be nil then
}

// QPCreateFlags are properties of a queue pair.
type QPCreateFlags uint32

// Flags of creation, with the values of enum ibv_qp_create_flags.
const (
	QPCreateBlockSelfMcastLB   QPCreateFlags = 1 << 1  // UD, raw packets: do not receive own multicast
	QPCreateScatterFCS         QPCreateFlags = 1 << 8  // raw packets: the checksum of the frame follows the data
	QPCreateCVLANStripping     QPCreateFlags = 1 << 9  // raw packets: the VLAN tag goes into the completion
	QPCreateSourceQPN          QPCreateFlags = 1 << 10 // packets carry QPInit.SourceQPN
	QPCreatePCIWriteEndPadding QPCreateFlags = 1 << 11 // the device pads what it writes to whole cache lines
)

// SendOps are the send operations of an extended queue pair.
type SendOps uint64

// Send operations, with the values of enum ibv_qp_create_send_ops_flags.
const (
	WithRDMAWrite         SendOps = 1 << 0
	WithRDMAWriteWithImm  SendOps = 1 << 1
	WithSend              SendOps = 1 << 2
	WithSendWithImm       SendOps = 1 << 3
	WithRDMARead          SendOps = 1 << 4
	WithAtomicCmpAndSwp   SendOps = 1 << 5
	WithAtomicFetchAndAdd SendOps = 1 << 6
	WithLocalInv          SendOps = 1 << 7
	WithBindMW            SendOps = 1 << 8 // for QP.BindMW
	WithSendWithInv       SendOps = 1 << 9
	WithTSO               SendOps = 1 << 10
	WithAtomicWrite       SendOps = 1 << 12

	sendOpsKnown = 1<<11 - 1 | WithAtomicWrite
)

var sendOpNames = []bitName{
	{1 << 0, "RDMA_WRITE"}, {1 << 1, "RDMA_WRITE_WITH_IMM"}, {1 << 2, "SEND"}, {1 << 3, "SEND_WITH_IMM"},
	{1 << 4, "RDMA_READ"}, {1 << 5, "ATOMIC_CMP_AND_SWP"}, {1 << 6, "ATOMIC_FETCH_AND_ADD"}, {1 << 7, "LOCAL_INV"},
	{1 << 8, "BIND_MW"}, {1 << 9, "SEND_WITH_INV"}, {1 << 10, "TSO"}, {1 << 12, "ATOMIC_WRITE"},
}

// String joins the names of the operations with |.
//
// Extension.
func (o SendOps) String() string { return bitNames(sendOpNames, o) }

// QPAttrMask selects fields of QPAttr.
type QPAttrMask uint32

// Attribute mask bits, with the values of enum ibv_qp_attr_mask.
const (
	QPAttrState            QPAttrMask = 1 << 0
	QPAttrCurState         QPAttrMask = 1 << 1
	QPAttrEnSQDAsyncNotify QPAttrMask = 1 << 2
	QPAttrAccessFlags      QPAttrMask = 1 << 3
	QPAttrPKeyIndex        QPAttrMask = 1 << 4
	QPAttrPort             QPAttrMask = 1 << 5
	QPAttrQKey             QPAttrMask = 1 << 6
	QPAttrAV               QPAttrMask = 1 << 7
	QPAttrPathMTU          QPAttrMask = 1 << 8
	QPAttrTimeout          QPAttrMask = 1 << 9
	QPAttrRetryCnt         QPAttrMask = 1 << 10
	QPAttrRNRRetry         QPAttrMask = 1 << 11
	QPAttrRQPSN            QPAttrMask = 1 << 12
	QPAttrMaxRDAtomic      QPAttrMask = 1 << 13
	QPAttrAltPath          QPAttrMask = 1 << 14
	QPAttrMinRNRTimer      QPAttrMask = 1 << 15
	QPAttrSQPSN            QPAttrMask = 1 << 16
	QPAttrMaxDestRDAtomic  QPAttrMask = 1 << 17
	QPAttrPathMigState     QPAttrMask = 1 << 18
	QPAttrCap              QPAttrMask = 1 << 19
	QPAttrDestQPN          QPAttrMask = 1 << 20
	QPAttrRateLimit        QPAttrMask = 1 << 25
)

var qpAttrNames = []bitName{
	{1 << 0, "STATE"}, {1 << 1, "CUR_STATE"}, {1 << 2, "EN_SQD_ASYNC_NOTIFY"}, {1 << 3, "ACCESS_FLAGS"},
	{1 << 4, "PKEY_INDEX"},
	{1 << 5, "PORT"}, {1 << 6, "QKEY"}, {1 << 7, "AV"}, {1 << 8, "PATH_MTU"}, {1 << 9, "TIMEOUT"}, {1 << 10, "RETRY_CNT"},
	{1 << 11, "RNR_RETRY"}, {1 << 12, "RQ_PSN"}, {1 << 13, "MAX_QP_RD_ATOMIC"}, {1 << 14, "ALT_PATH"},
	{1 << 15, "MIN_RNR_TIMER"},
	{1 << 16, "SQ_PSN"}, {1 << 17, "MAX_DEST_RD_ATOMIC"}, {1 << 18, "PATH_MIG_STATE"}, {1 << 19, "CAP"},
	{1 << 20, "DEST_QPN"}, {1 << 25, "RATE_LIMIT"},
}

// String joins the names of the bits with |.
//
// Extension.
func (m QPAttrMask) String() string { return bitNames(qpAttrNames, m) }

// QPAttr are the attributes of a queue pair: struct ibv_qp_attr.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     MigState
	QKey             uint32
	RQPSN            uint32 // 24 bits
	SQPSN            uint32 // 24 bits
	DestQPNum        uint32
	AccessFlags      AccessFlags
	Cap              QPCap
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool
	MaxRDAtomic      uint8 // RDMA reads and atomics outstanding as initiator
	MaxDestRDAtomic  uint8 // RDMA reads and atomics outstanding as responder
	MinRNRTimer      uint8 // 5-bit code
	Port             uint8
	Timeout          uint8 // ACK timeout is 4.096 us << Timeout; 0 is none
	RetryCnt         uint8 // 0 to 7
	RNRRetry         uint8 // 0 to 7; 7 is unlimited
	AltPort          uint8
	AltTimeout       uint8
	RateLimit        uint32 // kbit/s; see QP.SetRateLimit
}

// AHAttr is a path to a destination: struct ibv_ah_attr.
type AHAttr struct {
	DGID         GID
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   Rate // RateMax: the port's speed
	IsGlobal     bool // the GRH fields are used; always on RoCE
	Port         uint8
}

// SRQInit describes a shared receive queue to create.
type SRQInit struct {
	MaxWR  uint32 // outstanding receives
	MaxSGE uint32 // segments of one receive

	// Set both for extended reliable connections: the XRC domain, and the queue for the completions of
	// receives.
	XRCD *XRCD
	CQ   *CQ
}

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32 // AsyncSRQLimitReached comes when fewer receives are left; 0: not armed
}
