package cverbs

import (
	"math/bits"
	"time"
)

// CQInit describes an extended completion queue to create.
type CQInit struct {
	Depth   int          // completions, at least; see Context.CreateCQ
	Channel *CompChannel // nil: the queue can only be polled
	Vector  int          // 0 to NumCompVectors-1
	Fields  WCFields     // what a poll reads of a completion; 0: WCFieldsStandard
	Flags   CQFlags

	// Domain, if it is not nil, is a parent domain: the queue belongs to its thread domain, and so
	// its polls are for the caller to serialize, as with CQSingleThreaded.
	Domain *PD
}

// CQFlags change how an extended completion queue works.
type CQFlags uint32

// Flags of extended completion queues, with the values of enum ibv_create_cq_attr_flags.
const (
	// The driver takes no lock: the caller serializes polls, Resize, and ToReset and Close of the
	// queue pairs that use the queue. Two of these calls at once damage the queue.
	CQSingleThreaded CQFlags = 1 << 0
	// The device does not check for an overflow, which then loses completions unnoticed.
	CQIgnoreOverrun CQFlags = 1 << 1

	cqFlagsKnown = CQSingleThreaded | CQIgnoreOverrun
)

var cqFlagNames = []bitName{{1 << 0, "SINGLE_THREADED"}, {1 << 1, "IGNORE_OVERRUN"}}

// String joins the names of the flags with |.
//
// Extension.
func (f CQFlags) String() string { return bitNames(cqFlagNames, uint32(f)) }

// WCFields are the fields that polls of an extended completion queue read: those of WC but for ID,
// Status, Opcode, VendorErr and Flags, which are always read, and those of WCEx. Each costs a call
// in C for each completion. QPNum and the two times are read of every completion, the others of
// receives only.
type WCFields uint32

// Fields of completions, with the values of enum ibv_create_cq_wc_flags.
const (
	WCFieldByteLen      WCFields = 1 << 0
	WCFieldImm          WCFields = 1 << 1 // immediate data, and an invalidated key
	WCFieldQPNum        WCFields = 1 << 2
	WCFieldSrcQP        WCFields = 1 << 3
	WCFieldSLID         WCFields = 1 << 4 // its low 16 bits
	WCFieldSL           WCFields = 1 << 5
	WCFieldDLIDPathBits WCFields = 1 << 6
	WCFieldTimestamp    WCFields = 1 << 7
	WCFieldCVLAN        WCFields = 1 << 8
	WCFieldFlowTag      WCFields = 1 << 9
	WCFieldTM           WCFields = 1 << 10
	WCFieldWallClock    WCFields = 1 << 11

	// WCFieldsStandard are all fields of WC except PKeyIndex, which only an ordinary queue reports.
	// Every device with extended queues has them.
	WCFieldsStandard WCFields = 1<<7 - 1

	wcFieldsKnown = 1<<12 - 1
)

var wcFieldNames = []bitName{
	{1 << 0, "BYTE_LEN"}, {1 << 1, "IMM"}, {1 << 2, "QP_NUM"}, {1 << 3, "SRC_QP"}, {1 << 4, "SLID"}, {1 << 5, "SL"},
	{1 << 6, "DLID_PATH_BITS"}, {1 << 7, "COMPLETION_TIMESTAMP"}, {1 << 8, "CVLAN"}, {1 << 9, "FLOW_TAG"},
	{1 << 10, "TM_INFO"}, {1 << 11, "COMPLETION_TIMESTAMP_WALLCLOCK"},
}

// String joins the names of the fields with |.
//
// Extension.
func (f WCFields) String() string { return bitNames(wcFieldNames, uint32(f)) }

// WCEx is one completion of an extended queue: a flat struct of 88 bytes with the same layout in C.
// A field is 0 if the queue was not created for it. On failure only the fields are set that are
// valid in a WC then. Flags, and what receives alone have, such as ByteLen, are 0 in completions of
// sends.
type WCEx struct {
	WC
	Timestamp uint64 // WCFieldTimestamp: the device's clock at the completion; see DeviceAttr.Elapsed
	WallClock uint64 // WCFieldWallClock: nanoseconds since 1970, by the host's clock
	TMTag     uint64 // WCFieldTM: the tag of the message
	TMPriv    uint32 // WCFieldTM: what the sender put beside the tag
	FlowTag   uint32 // WCFieldFlowTag: of the flow rule that directed the packet here; 24 bits
	CVLAN     uint16 // WCFieldCVLAN: of a raw packet
}

// Elapsed returns the time from one value of the device's clock to a later one, of
// [WCEx.Timestamp] or [Context.Clock]. The clock goes round at TimestampMask: Elapsed is right for
// less than one round. It is 0 if the device does not report the rate of its clock (HCACoreClock).
//
// Extension.
func (a *DeviceAttr) Elapsed(from, to uint64) time.Duration {
	ticks := to - from
	if a.TimestampMask != 0 {
		ticks &= a.TimestampMask
	}
	hi, lo := bits.Mul64(ticks, uint64(time.Millisecond))
	if a.HCACoreClock == 0 || hi >= a.HCACoreClock {
		return 0
	}
	d, _ := bits.Div64(hi, lo, a.HCACoreClock)
	return time.Duration(d)
}
