package cverbs

// NodeType is the kind of a device.
type NodeType int32

// Node types, with the values of enum ibv_node_type.
const (
	NodeUnknown     NodeType = -1
	NodeCA          NodeType = 1 // InfiniBand or RoCE channel adapter
	NodeSwitch      NodeType = 2
	NodeRouter      NodeType = 3
	NodeRNIC        NodeType = 4 // iWARP
	NodeUsnic       NodeType = 5
	NodeUsnicUDP    NodeType = 6
	NodeUnspecified NodeType = 7
)

var nodeNames = map[NodeType]string{
	NodeUnknown: "unknown", NodeCA: "CA", NodeSwitch: "switch", NodeRouter: "router", NodeRNIC: "RNIC", NodeUsnic: "usNIC",
	NodeUsnicUDP: "usNIC UDP", NodeUnspecified: "unspecified",
}

// String returns the node type's name.
//
// Implements: ibv_node_type_str.
func (t NodeType) String() string { return enumName(nodeNames, t, "NodeType") }

// DeviceInfo describes a device that is present, opened or not.
type DeviceInfo struct {
	Name      string // kernel name: "rxe0"
	GUID      uint64 // node GUID
	NodeType  NodeType
	Index     int // kernel index, -1 where not known
	Transport TransportType
}

// Library is a library of rdma-core that this process has opened.
type Library struct {
	Name    string // "libibverbs"
	File    string // path of the file, with symbolic links resolved
	Version string // version of rdma-core: "44.0"; "" if the file's name contains no version
}

// AtomicCap is the scope in which a device's atomics are atomic.
type AtomicCap uint32

// Atomic capabilities, with the values of enum ibv_atomic_cap.
const (
	AtomicNone AtomicCap = 0
	AtomicHCA  AtomicCap = 1
	AtomicGlob AtomicCap = 2
)

var atomicCapNames = map[AtomicCap]string{AtomicNone: "NONE", AtomicHCA: "HCA", AtomicGlob: "GLOB"}

// String returns the verbs name without its prefix.
//
// Extension.
func (a AtomicCap) String() string { return enumName(atomicCapNames, a, "AtomicCap") }

// DeviceCaps are capability bits of a device.
type DeviceCaps uint64

// Device capability bits, with the values of enum ibv_device_cap_flags.
const (
	DeviceResizeMaxWR  DeviceCaps = 1 << 0
	DeviceRCRNRNakGen  DeviceCaps = 1 << 12
	DeviceSRQResize    DeviceCaps = 1 << 13
	DeviceMemWindow    DeviceCaps = 1 << 17 // type 1
	DeviceXRC          DeviceCaps = 1 << 20
	DeviceMemMgtExt    DeviceCaps = 1 << 21
	DeviceMemWindow2A  DeviceCaps = 1 << 23 // type 2A
	DeviceMemWindow2B  DeviceCaps = 1 << 24 // type 2B
	DeviceManagedSteer DeviceCaps = 1 << 29
)

var deviceCapNames = []bitName{
	{1 << 0, "RESIZE_MAX_WR"}, {1 << 1, "BAD_PKEY_CNTR"}, {1 << 2, "BAD_QKEY_CNTR"}, {1 << 3, "RAW_MULTI"},
	{1 << 4, "AUTO_PATH_MIG"}, {1 << 5, "CHANGE_PHY_PORT"}, {1 << 6, "UD_AV_PORT_ENFORCE"}, {1 << 7, "CURR_QP_STATE_MOD"},
	{1 << 8, "SHUTDOWN_PORT"}, {1 << 9, "INIT_TYPE"}, {1 << 10, "PORT_ACTIVE_EVENT"}, {1 << 11, "SYS_IMAGE_GUID"},
	{1 << 12, "RC_RNR_NAK_GEN"}, {1 << 13, "SRQ_RESIZE"}, {1 << 14, "N_NOTIFY_CQ"}, {1 << 17, "MEM_WINDOW"},
	{1 << 18, "UD_IP_CSUM"}, {1 << 20, "XRC"}, {1 << 21, "MEM_MGT_EXTENSIONS"}, {1 << 23, "MEM_WINDOW_TYPE_2A"},
	{1 << 24, "MEM_WINDOW_TYPE_2B"}, {1 << 25, "RC_IP_CSUM"}, {1 << 26, "RAW_IP_CSUM"},
	{1 << 29, "MANAGED_FLOW_STEERING"},
}

// String joins the names of the bits with |.
//
// Extension.
func (c DeviceCaps) String() string { return bitNames(deviceCapNames, c) }

// DeviceAttr holds a device's limits and properties. All processes together share MaxDMSize and the
// limits on numbers of objects, such as MaxQP.
type DeviceAttr struct {
	FirmwareVersion  string
	NodeGUID         uint64
	SysImageGUID     uint64
	MaxMRSize        uint64 // bytes
	PageSizeCap      uint64 // bit mask of page sizes
	VendorID         uint32
	VendorPartID     uint32
	HWVersion        uint32
	MaxQP            int
	MaxQPWR          int // work requests of one queue
	Caps             DeviceCaps
	MaxSGE           int
	MaxSGERD         int // segments of one RDMA read
	MaxCQ            int
	MaxCQE           int
	MaxMR            int
	MaxPD            int
	MaxQPRDAtom      int // RDMA reads and atomics in flight to a queue pair as responder
	MaxEERDAtom      int
	MaxResRDAtom     int
	MaxQPInitRDAtom  int // RDMA reads and atomics in flight from a queue pair as initiator
	MaxEEInitRDAtom  int
	AtomicCap        AtomicCap
	MaxEE            int
	MaxRDD           int
	MaxMW            int
	MaxRawIPv6QP     int
	MaxRawEthyQP     int
	MaxMcastGrp      int
	MaxMcastQPAttach int
	MaxTotalMcastQP  int
	MaxAH            int
	MaxFMR           int
	MaxMapPerFMR     int
	MaxSRQ           int
	MaxSRQWR         int
	MaxSRQSGE        int
	MaxPKeys         int
	LocalCAAckDelay  uint8
	PhysPortCnt      int

	// From the extended query; 0 where the device does not report them.
	ODPGeneralCaps   ODPCaps
	ODPRCCaps        ODPOps
	ODPUCCaps        ODPOps
	ODPUDCaps        ODPOps
	ODPXRCCaps       ODPOps
	TimestampMask    uint64
	HCACoreClock     uint64 // kHz
	MaxCQModCount    uint16
	MaxCQModPeriod   uint16 // microseconds
	MaxDMSize        uint64 // bytes of device memory
	RawPacketCaps    RawPacketCaps
	MaxTSO           uint32  // bytes of one OpTSO
	TSOQPTypes       QPTypes // types that support OpTSO
	RSSQPTypes       QPTypes // types that support RSS
	MaxIndTables     uint32
	MaxIndTableSize  uint32
	HashFields       HashFields
	HashFunctions    HashFunction
	MaxWQ            uint32
	PCIAtomicFAdd    PCIAtomicSizes
	PCIAtomicSwap    PCIAtomicSizes
	PCIAtomicCmpSwap PCIAtomicSizes
	RateLimitMin     uint32  // kbit/s, of QP.SetRateLimit
	RateLimitMax     uint32  // kbit/s; 0: the device has no rate limits
	RateLimitQPTypes QPTypes // types that QP.SetRateLimit can limit
}

// RawPacketCaps are features that a device has for queue pairs of QPTypeRawPacket.
type RawPacketCaps uint32

// Raw packet capabilities, with the values of enum ibv_raw_packet_caps.
const (
	RawPacketCVLANStripping RawPacketCaps = 1 << 0
	RawPacketScatterFCS     RawPacketCaps = 1 << 1
	RawPacketIPCsum         RawPacketCaps = 1 << 2 // supports SendIPCsum
	RawPacketDelayDrop      RawPacketCaps = 1 << 3
)

// PortState is the state of a port.
type PortState uint32

// Port states, with the values of enum ibv_port_state.
const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

var portStateNames = map[PortState]string{
	PortNop: "NOP", PortDown: "DOWN", PortInit: "INIT", PortArmed: "ARMED", PortActive: "ACTIVE",
	PortActiveDefer: "ACTIVE_DEFER",
}

// String returns the state's name.
//
// Implements: ibv_port_state_str.
func (s PortState) String() string { return enumName(portStateNames, s, "PortState") }

// LinkLayer is the link layer of a port.
type LinkLayer uint32

// Link layers, with the verbs values.
const (
	LinkLayerUnspecified LinkLayer = 0
	LinkLayerInfiniBand  LinkLayer = 1
	LinkLayerEthernet    LinkLayer = 2
)

var linkLayerNames = map[LinkLayer]string{LinkLayerUnspecified: "unspecified", LinkLayerInfiniBand: "InfiniBand",
	LinkLayerEthernet: "Ethernet"}

// String returns the link layer's name.
//
// Extension.
func (l LinkLayer) String() string { return enumName(linkLayerNames, l, "LinkLayer") }

// PortAttr are the properties of a port.
type PortAttr struct {
	State         PortState
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDTableLen   int
	CapFlags      PortCaps
	MaxMsgSize    uint32 // bytes
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	PKeyTableLen  int
	LID           uint16
	SMLID         uint16
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     LinkLayer
	Flags         uint8
	CapFlags2     PortCaps2
}

// AsyncEventType is the kind of an asynchronous event.
type AsyncEventType uint32

// Asynchronous events, with the values of enum ibv_event_type.
const (
	AsyncCQErr            AsyncEventType = 0
	AsyncQPFatal          AsyncEventType = 1
	AsyncQPReqErr         AsyncEventType = 2
	AsyncQPAccessErr      AsyncEventType = 3
	AsyncCommEst          AsyncEventType = 4
	AsyncSQDrained        AsyncEventType = 5
	AsyncPathMig          AsyncEventType = 6
	AsyncPathMigErr       AsyncEventType = 7
	AsyncDeviceFatal      AsyncEventType = 8
	AsyncPortActive       AsyncEventType = 9
	AsyncPortErr          AsyncEventType = 10
	AsyncLIDChange        AsyncEventType = 11
	AsyncPKeyChange       AsyncEventType = 12
	AsyncSMChange         AsyncEventType = 13
	AsyncSRQErr           AsyncEventType = 14
	AsyncSRQLimitReached  AsyncEventType = 15
	AsyncQPLastWQEReached AsyncEventType = 16
	AsyncClientReregister AsyncEventType = 17
	AsyncGIDChange        AsyncEventType = 18
	AsyncWQFatal          AsyncEventType = 19
)

var asyncNames = map[AsyncEventType]string{
	AsyncCQErr: "CQ_ERR", AsyncQPFatal: "QP_FATAL", AsyncQPReqErr: "QP_REQ_ERR", AsyncQPAccessErr: "QP_ACCESS_ERR",
	AsyncCommEst: "COMM_EST", AsyncSQDrained: "SQ_DRAINED", AsyncPathMig: "PATH_MIG", AsyncPathMigErr: "PATH_MIG_ERR",
	AsyncDeviceFatal: "DEVICE_FATAL", AsyncPortActive: "PORT_ACTIVE", AsyncPortErr: "PORT_ERR",
	AsyncLIDChange: "LID_CHANGE", AsyncPKeyChange: "PKEY_CHANGE", AsyncSMChange: "SM_CHANGE", AsyncSRQErr: "SRQ_ERR",
	AsyncSRQLimitReached: "SRQ_LIMIT_REACHED", AsyncQPLastWQEReached: "QP_LAST_WQE_REACHED",
	AsyncClientReregister: "CLIENT_REREGISTER", AsyncGIDChange: "GID_CHANGE", AsyncWQFatal: "WQ_FATAL",
}

// String returns the verbs name without its prefix.
//
// Implements: ibv_event_type_str.
func (t AsyncEventType) String() string { return enumName(asyncNames, t, "AsyncEventType") }

// AsyncEvent is one asynchronous event. At most one of QP, CQ, SRQ, WQ and Port is set: the object
// that the event concerns. If this object has been closed meanwhile, its field is nil.
type AsyncEvent struct {
	Type AsyncEventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	WQ   *WQ
	Port uint8
}
