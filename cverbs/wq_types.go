package cverbs

// WQInit describes a receive queue to create.
type WQInit struct {
	CQ     *CQ
	MaxWR  uint32 // outstanding receives
	MaxSGE uint32 // segments of one receive
	Flags  WQFlags
}

// WQFlags are properties of a receive queue of raw packets.
type WQFlags uint32

// Receive queue flags, with the values of enum ibv_wq_flags.
const (
	WQCVLANStripping     WQFlags = 1 << 0 // the VLAN tag goes into the completion
	WQScatterFCS         WQFlags = 1 << 1 // the checksum of the frame follows the data
	WQDelayDrop          WQFlags = 1 << 2 // packets wait for a while if no receive is posted
	WQPCIWriteEndPadding WQFlags = 1 << 3 // the device pads what it writes to whole cache lines
)

// WQState is the state of a receive queue.
type WQState uint32

// Receive queue states, with the values of enum ibv_wq_state.
const (
	WQStateReset   WQState = 0
	WQStateReady   WQState = 1
	WQStateErr     WQState = 2
	WQStateUnknown WQState = 3
)

var wqStateNames = map[WQState]string{WQStateReset: "RESET", WQStateReady: "RDY", WQStateErr: "ERR",
	WQStateUnknown: "UNKNOWN"}

// String returns the state's name.
//
// Extension.
func (s WQState) String() string { return enumName(wqStateNames, s, "WQState") }

// WQAttrMask selects fields of WQAttr.
type WQAttrMask uint32

// Attribute mask bits, with the values of enum ibv_wq_attr_mask.
const (
	WQAttrState    WQAttrMask = 1 << 0
	WQAttrCurState WQAttrMask = 1 << 1
	WQAttrFlags    WQAttrMask = 1 << 2
)

// WQAttr is a change of a receive queue.
type WQAttr struct {
	Mask      WQAttrMask
	State     WQState // the new state
	CurState  WQState // the state in which the caller believes the queue to be
	Flags     WQFlags // values of the flags
	FlagsMask WQFlags // the flags to change
}

// RSS spreads the packets of a queue pair over the receive queues of a table: the hash of the
// chosen fields of a packet chooses the entry.
type RSS struct {
	Table    *IndTable
	Function HashFunction
	Key      []byte // key of the hash function: 40 bytes for HashToeplitz
	Fields   HashFields
}

// HashFunction is the hash function of RSS.
type HashFunction uint8

// Hash functions, with the values of enum ibv_rx_hash_function_flags.
const (
	HashToeplitz HashFunction = 1 << 0
)

// HashFields selects the fields of a packet that are hashed. Fields of IPv4 cannot be combined with
// fields of IPv6. Fields of TCP cannot be combined with fields of UDP.
type HashFields uint64

// Hashed fields, with the values of enum ibv_rx_hash_fields.
const (
	HashSrcIPv4    HashFields = 1 << 0
	HashDstIPv4    HashFields = 1 << 1
	HashSrcIPv6    HashFields = 1 << 2
	HashDstIPv6    HashFields = 1 << 3
	HashSrcPortTCP HashFields = 1 << 4
	HashDstPortTCP HashFields = 1 << 5
	HashSrcPortUDP HashFields = 1 << 6
	HashDstPortUDP HashFields = 1 << 7
	HashIPSecSPI   HashFields = 1 << 8
	HashInner      HashFields = 1 << 31 // hash the packet inside a tunnel
)
