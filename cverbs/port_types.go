package cverbs

// PortCaps are capability bits of a port, mostly of InfiniBand management.
type PortCaps uint32

// Port capability bits, with the values of enum ibv_port_cap_flags.
const (
	PortSM               PortCaps = 1 << 1 // the subnet manager runs here
	PortNotice           PortCaps = 1 << 2
	PortTrap             PortCaps = 1 << 3
	PortOptIPD           PortCaps = 1 << 4
	PortAutoMigration    PortCaps = 1 << 5 // can use QPAttr.PathMigState
	PortSLMap            PortCaps = 1 << 6
	PortMKeyNVRAM        PortCaps = 1 << 7
	PortPKeyNVRAM        PortCaps = 1 << 8
	PortLEDInfo          PortCaps = 1 << 9
	PortSysImageGUID     PortCaps = 1 << 11
	PortPKeySwitchTrap   PortCaps = 1 << 12
	PortExtendedSpeeds   PortCaps = 1 << 14
	PortCapMask2         PortCaps = 1 << 15 // PortAttr.CapFlags2 is valid
	PortCM               PortCaps = 1 << 16
	PortSNMPTunnel       PortCaps = 1 << 17
	PortReinit           PortCaps = 1 << 18
	PortDeviceManagement PortCaps = 1 << 19
	PortVendorClass      PortCaps = 1 << 20
	PortDRNotice         PortCaps = 1 << 21
	PortCapMaskNotice    PortCaps = 1 << 22
	PortBootManagement   PortCaps = 1 << 23
	PortLinkLatency      PortCaps = 1 << 24
	PortClientReregister PortCaps = 1 << 25
	PortIPBasedGIDs      PortCaps = 1 << 26 // GIDs are the addresses of the network device
)

var portCapNames = []bitName{
	{1 << 1, "SM"}, {1 << 2, "NOTICE_SUP"}, {1 << 3, "TRAP_SUP"}, {1 << 4, "OPT_IPD_SUP"}, {1 << 5, "AUTO_MIGR_SUP"},
	{1 << 6, "SL_MAP_SUP"}, {1 << 7, "MKEY_NVRAM"}, {1 << 8, "PKEY_NVRAM"}, {1 << 9, "LED_INFO_SUP"},
	{1 << 11, "SYS_IMAGE_GUID_SUP"}, {1 << 12, "PKEY_SW_EXT_PORT_TRAP_SUP"}, {1 << 14, "EXTENDED_SPEEDS_SUP"},
	{1 << 15, "CAP_MASK2_SUP"}, {1 << 16, "CM_SUP"}, {1 << 17, "SNMP_TUNNEL_SUP"}, {1 << 18, "REINIT_SUP"},
	{1 << 19, "DEVICE_MGMT_SUP"}, {1 << 20, "VENDOR_CLASS_SUP"}, {1 << 21, "DR_NOTICE_SUP"},
	{1 << 22, "CAP_MASK_NOTICE_SUP"}, {1 << 23, "BOOT_MGMT_SUP"}, {1 << 24, "LINK_LATENCY_SUP"},
	{1 << 25, "CLIENT_REG_SUP"}, {1 << 26, "IP_BASED_GIDS"},
}

// String joins the names of the bits with |.
//
// Extension.
func (c PortCaps) String() string { return bitNames(portCapNames, c) }

// PortCaps2 are more capability bits of a port.
type PortCaps2 uint16

// More port capability bits, with the values of enum ibv_port_cap_flags2.
const (
	PortSetNodeDescription   PortCaps2 = 1 << 0
	PortInfoExtended         PortCaps2 = 1 << 1
	PortVirtual              PortCaps2 = 1 << 2
	PortSwitchPortStateTable PortCaps2 = 1 << 3
	PortLinkWidth2X          PortCaps2 = 1 << 4
	PortLinkSpeedHDR         PortCaps2 = 1 << 5
	PortLinkSpeedNDR         PortCaps2 = 1 << 10
)

var portCap2Names = []bitName{
	{1 << 0, "SET_NODE_DESC_SUP"}, {1 << 1, "INFO_EXT_SUP"}, {1 << 2, "VIRT_SUP"},
	{1 << 3, "SWITCH_PORT_STATE_TABLE_SUP"}, {1 << 4, "LINK_WIDTH_2X_SUP"}, {1 << 5, "LINK_SPEED_HDR_SUP"},
	{1 << 10, "LINK_SPEED_NDR_SUP"},
}

// String joins the names of the bits with |.
//
// Extension.
func (c PortCaps2) String() string { return bitNames(portCap2Names, c) }

// PCIAtomicSizes are the operand sizes with which the device can do an atomic operation on the
// host's memory over PCI Express.
type PCIAtomicSizes uint16

// Sizes of PCI atomics, with the values of enum ibv_pci_atomic_op_size.
const (
	PCIAtomic4Bytes  PCIAtomicSizes = 1 << 0
	PCIAtomic8Bytes  PCIAtomicSizes = 1 << 1
	PCIAtomic16Bytes PCIAtomicSizes = 1 << 2
)

var pciAtomicNames = []bitName{{1 << 0, "4_BYTE"}, {1 << 1, "8_BYTE"}, {1 << 2, "16_BYTE"}}

// String joins the names of the sizes with |.
//
// Extension.
func (s PCIAtomicSizes) String() string { return bitNames(pciAtomicNames, s) }

// TransportType is the transport of a device.
type TransportType int32

// Transports, with the values of enum ibv_transport_type.
const (
	TransportUnknown     TransportType = -1
	TransportIB          TransportType = 0 // InfiniBand or RoCE
	TransportIWARP       TransportType = 1
	TransportUsnic       TransportType = 2
	TransportUsnicUDP    TransportType = 3
	TransportUnspecified TransportType = 4
)

var transportNames = map[TransportType]string{
	TransportUnknown: "unknown", TransportIB: "InfiniBand", TransportIWARP: "iWARP", TransportUsnic: "usNIC",
	TransportUsnicUDP: "usNIC UDP", TransportUnspecified: "unspecified",
}

// String returns the transport's name.
//
// Extension.
func (t TransportType) String() string { return enumName(transportNames, t, "TransportType") }

// ForkStatus describes what a fork of this process does to registered memory.
type ForkStatus uint32

// Fork statuses, with the values of enum ibv_fork_status.
const (
	ForkDisabled ForkStatus = 0 // a child may get the pages that the device writes to
	ForkEnabled  ForkStatus = 1 // ForkInit has been called: a child has no registered pages
	ForkUnneeded ForkStatus = 2 // the kernel copies registered pages for the child
)

var forkNames = map[ForkStatus]string{ForkDisabled: "DISABLED", ForkEnabled: "ENABLED", ForkUnneeded: "UNNEEDED"}

// String returns the verbs name without its prefix.
//
// Extension.
func (s ForkStatus) String() string { return enumName(forkNames, s, "ForkStatus") }
