package cverbs

import (
	"math/bits"
	"time"
)

// CQInit describes an extended completion queue to create.
type CQInit struct {
	Depth   int          // the least number of completions; see Context.CreateCQ
	Channel *CompChannel // nil: the queue can only be polled
	Vector  int          // 0 to NumCompVectors-1
	Fields  WCFields     // fields of completions that polls read; 0: WCFieldsStandard
	Flags   CQFlags

	// Domain, if it is not nil, must be a parent domain. The queue then belongs to the thread
	// domain of Domain, and the caller must serialize polls as with CQSingleThreaded.
	Domain *PD
}

// CQFlags change how an extended completion queue works.
type CQFlags uint32

// Flags of extended completion queues, with the values of enum ibv_create_cq_attr_flags.
const (
	// The driver does not lock the queue. The caller must serialize polls and Resize of the queue,
	// and ToReset and Close of the queue pairs that use the queue. Two of these calls at once
	// damage the queue.
	CQSingleThreaded CQFlags = 1 << 0
	// The device does not check for an overflow, which then loses completions unnoticed.
	CQIgnoreOverrun CQFlags = 1 << 1

	cqFlagsKnown = CQSingleThreaded | CQIgnoreOverrun
)

var cqFlagNames = []bitName{{1 << 0, "SINGLE_THREADED"}, {1 << 1, "IGNORE_OVERRUN"}}

// String joins the names of the flags with |.
//
// Extension.
func (f CQFlags) String() string { return bitNames(cqFlagNames, f) }

// WCFields selects the fields of WC and WCEx that polls of an extended completion queue read. ID,
// Status, Opcode, VendorErr and Flags need no bit. QPNum is read in every completion. Timestamp and
// WallClock are read in every successful completion. The other fields are read in successful
// completions of receives. Reading a field costs one function call in C.
type WCFields uint32

// Fields of completions, with the values of enum ibv_create_cq_wc_flags.
const (
	WCFieldByteLen      WCFields = 1 << 0
	WCFieldImm          WCFields = 1 << 1 // immediate data, and an invalidated key
	WCFieldQPNum        WCFields = 1 << 2
	WCFieldSrcQP        WCFields = 1 << 3
	WCFieldSLID         WCFields = 1 << 4 // the low 16 bits of the SLID
	WCFieldSL           WCFields = 1 << 5
	WCFieldDLIDPathBits WCFields = 1 << 6
	WCFieldTimestamp    WCFields = 1 << 7
	WCFieldCVLAN        WCFields = 1 << 8
	WCFieldFlowTag      WCFields = 1 << 9
	WCFieldTM           WCFields = 1 << 10
	WCFieldWallClock    WCFields = 1 << 11

	// WCFieldsStandard are all fields of WC except PKeyIndex, which only an ordinary queue reports.
	// Every device with extended queues supports these fields.
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
func (f WCFields) String() string { return bitNames(wcFieldNames, f) }

// WCEx is one completion of an extended queue: a flat struct of 88 bytes with the same layout in C.
// A field that CQInit.Fields did not select is 0. If Status is not WCSuccess, only ID, Status,
// VendorErr and QPNum are set. In the completion of a send, Flags and the fields of receives, such
// as ByteLen, are 0.
type WCEx struct {
	WC
	Timestamp uint64 // WCFieldTimestamp: the device's clock at the completion; see DeviceAttr.Elapsed
	WallClock uint64 // WCFieldWallClock: nanoseconds since 1970, by the host's clock
	TMTag     uint64 // WCFieldTM: the tag of the message
	TMPriv    uint32 // WCFieldTM: the data that the sender added to the tag
	FlowTag   uint32 // WCFieldFlowTag: the tag of the flow rule that matched the packet; 24 bits
	CVLAN     uint16 // WCFieldCVLAN: the VLAN tag of a raw packet
}

// Elapsed returns the time that passed between two values of the device's clock, as
// [WCEx.Timestamp] and [Context.Clock] return them. The first argument is the earlier value. The
// clock wraps around at TimestampMask, so the time must be shorter than one period of the clock.
// Elapsed returns 0 if the device does not report the rate of its clock (HCACoreClock).
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
