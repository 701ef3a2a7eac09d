package cverbs

// QPType is the transport service of a queue pair.
type QPType uint32

// Queue pair types, with the values of enum ibv_qp_type.
const (
	QPTypeRC QPType = 2 // reliable connection
	QPTypeUC QPType = 3 // unreliable connection
	QPTypeUD QPType = 4 // unreliable datagram
)

var qpTypeNames = map[QPType]string{QPTypeRC: "RC", QPTypeUC: "UC", QPTypeUD: "UD"}

// String returns the type's name.
//
// Extension.
func (t QPType) String() string { return enumName(qpTypeNames, t, "QPType") }

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
}

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
)

var qpAttrNames = []bitName{
	{1 << 0, "STATE"}, {1 << 1, "CUR_STATE"}, {1 << 2, "EN_SQD_ASYNC_NOTIFY"}, {1 << 3, "ACCESS_FLAGS"},
	{1 << 4, "PKEY_INDEX"},
	{1 << 5, "PORT"}, {1 << 6, "QKEY"}, {1 << 7, "AV"}, {1 << 8, "PATH_MTU"}, {1 << 9, "TIMEOUT"}, {1 << 10, "RETRY_CNT"},
	{1 << 11, "RNR_RETRY"}, {1 << 12, "RQ_PSN"}, {1 << 13, "MAX_QP_RD_ATOMIC"}, {1 << 14, "ALT_PATH"},
	{1 << 15, "MIN_RNR_TIMER"},
	{1 << 16, "SQ_PSN"}, {1 << 17, "MAX_DEST_RD_ATOMIC"}, {1 << 18, "PATH_MIG_STATE"}, {1 << 19, "CAP"},
	{1 << 20, "DEST_QPN"},
}

// String joins the names of the bits with |.
//
// Extension.
func (m QPAttrMask) String() string { return bitNames(qpAttrNames, uint32(m)) }

// QPAttr are the attributes of a queue pair: struct ibv_qp_attr.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     uint32
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
	StaticRate   uint8
	IsGlobal     bool // the GRH fields are used; always on RoCE
	Port         uint8
}

// SRQInit describes a shared receive queue to create.
type SRQInit struct {
	MaxWR  uint32 // outstanding receives
	MaxSGE uint32 // segments of one receive
}

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32 // the event is due when fewer receives are left; 0: not armed
}
