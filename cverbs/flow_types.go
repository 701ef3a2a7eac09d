package cverbs

// FlowAttr describes a rule that steers packets to a queue pair.
type FlowAttr struct {
	Type     FlowType
	Port     uint8  // port of the device, numbered from 1
	Priority uint16 // if several rules match a packet the lowest number wins
	Flags    FlowFlags
}

// FlowType is the kind of a rule.
type FlowType uint32

// Kinds of rules, with the values of enum ibv_flow_attr_type.
const (
	FlowNormal     FlowType = 0 // packets that meet the specifications
	FlowAllDefault FlowType = 1 // packets that no other rule matches; has no specifications
	FlowMCDefault  FlowType = 2 // multicast packets that no other rule matches
	FlowSniffer    FlowType = 3 // all packets of the port
)

// FlowFlags modify a rule.
type FlowFlags uint32

// Flags of rules, with the values of enum ibv_flow_flags.
const (
	FlowDontTrap FlowFlags = 1 << 1 // the packets go to further rules too
	FlowEgress   FlowFlags = 1 << 2 // for packets that are sent
)

// FlowSpec is a condition or an action of a rule: FlowEth, FlowIPv4, FlowIPv4Ext, FlowIPv6,
// FlowTCP, FlowUDP, FlowESP, FlowVXLAN, FlowGRE, FlowMPLS, FlowTag, FlowDrop or FlowCount. A packet
// meets a condition if the packet's fields are equal to Val in the bits that are set in Mask. All
// numbers are in host byte order.
type FlowSpec interface{ flowSpec() }

// FlowSpecType is the number by which C identifies the type of a specification.
type FlowSpecType uint32

// Specifications, with the values of enum ibv_flow_spec_type.
const (
	FlowSpecEth         FlowSpecType = 0x20
	FlowSpecIPv4        FlowSpecType = 0x30
	FlowSpecIPv6        FlowSpecType = 0x31
	FlowSpecIPv4Ext     FlowSpecType = 0x32
	FlowSpecESP         FlowSpecType = 0x34
	FlowSpecTCP         FlowSpecType = 0x40
	FlowSpecUDP         FlowSpecType = 0x41
	FlowSpecVXLAN       FlowSpecType = 0x50
	FlowSpecGRE         FlowSpecType = 0x51
	FlowSpecMPLS        FlowSpecType = 0x60
	FlowSpecInner       FlowSpecType = 0x100 // added to the type of a condition on the packet inside a tunnel
	FlowSpecActionTag   FlowSpecType = 0x1000
	FlowSpecActionDrop  FlowSpecType = 0x1001
	FlowSpecActionCount FlowSpecType = 0x1003
)

type (
	// FlowEth is a condition on the Ethernet header. Inner selects the packet inside a tunnel, here
	// and in the types below.
	FlowEth struct {
		Val, Mask FlowEthFields
		Inner     bool
	}
	// FlowEthFields are fields of an Ethernet header.
	FlowEthFields struct {
		Dst, Src  [6]byte
		EtherType uint16
		VLAN      uint16 // 3 bits of priority, 1 for drop eligible, 12 of id
	}

	// FlowIPv4 is a condition on the addresses of an IPv4 header.
	FlowIPv4 struct {
		Val, Mask FlowIPv4Fields
		Inner     bool
	}
	// FlowIPv4Fields are the addresses of an IPv4 header.
	FlowIPv4Fields struct{ Src, Dst [4]byte }

	// FlowIPv4Ext is a condition on an IPv4 header.
	FlowIPv4Ext struct {
		Val, Mask FlowIPv4ExtFields
		Inner     bool
	}
	// FlowIPv4ExtFields are fields of an IPv4 header.
	FlowIPv4ExtFields struct {
		Src, Dst               [4]byte
		Proto, TOS, TTL, Flags uint8
	}

	// FlowIPv6 is a condition on an IPv6 header.
	FlowIPv6 struct {
		Val, Mask FlowIPv6Fields
		Inner     bool
	}
	// FlowIPv6Fields are fields of an IPv6 header.
	FlowIPv6Fields struct {
		Src, Dst                        [16]byte
		FlowLabel                       uint32 // 20 bits
		NextHdr, TrafficClass, HopLimit uint8
	}

	// FlowTCP is a condition on the ports of a TCP header.
	FlowTCP struct {
		Val, Mask FlowPorts
		Inner     bool
	}
	// FlowUDP is a condition on the ports of a UDP header.
	FlowUDP struct {
		Val, Mask FlowPorts
		Inner     bool
	}
	// FlowPorts are the ports of a TCP or UDP header.
	FlowPorts struct{ Dst, Src uint16 }

	// FlowESP is a condition on an IPsec header.
	FlowESP struct {
		Val, Mask FlowESPFields
		Inner     bool
	}
	// FlowESPFields are fields of an IPsec header.
	FlowESPFields struct{ SPI, Seq uint32 }

	// FlowVXLAN is a condition on the network identifier of a VXLAN header.
	FlowVXLAN struct{ Val, Mask uint32 }

	// FlowGRE is a condition on a GRE header.
	FlowGRE struct{ Val, Mask FlowGREFields }
	// FlowGREFields are fields of a GRE header.
	FlowGREFields struct {
		Flags, Protocol uint16 // Flags: the header's first 16 bits
		Key             uint32
	}

	// FlowMPLS is a condition on an MPLS label entry, which has 20 bits of label, 3 of traffic class,
	// 1 for the bottom of the stack, and 8 of time to live.
	FlowMPLS struct {
		Val, Mask uint32
		Inner     bool
	}

	// FlowTag sets WCEx.FlowTag in the completions of the rule's packets.
	FlowTag struct{ Tag uint32 }
	// FlowDrop drops the rule's packets.
	FlowDrop struct{}
	// FlowCount counts the rule's packets or bytes in Counters. Call Counters.Attach first, to
	// choose what to count.
	FlowCount struct{ Counters *Counters }
)

func (FlowEth) flowSpec()     {}
func (FlowIPv4) flowSpec()    {}
func (FlowIPv4Ext) flowSpec() {}
func (FlowIPv6) flowSpec()    {}
func (FlowTCP) flowSpec()     {}
func (FlowUDP) flowSpec()     {}
func (FlowESP) flowSpec()     {}
func (FlowVXLAN) flowSpec()   {}
func (FlowGRE) flowSpec()     {}
func (FlowMPLS) flowSpec()    {}
func (FlowTag) flowSpec()     {}
func (FlowDrop) flowSpec()    {}
func (FlowCount) flowSpec()   {}

// CounterKind selects what a counter counts.
type CounterKind uint32

// Counters, with the values of enum ibv_counter_description.
const (
	CountPackets CounterKind = 0
	CountBytes   CounterKind = 1
)

// ReadCountersFlags modify Counters.Read.
type ReadCountersFlags uint32

// Flags of Counters.Read, with the values of enum ibv_read_counters_flags.
const (
	ReadCountersPreferCached ReadCountersFlags = 1 << 0 // the driver may return cached values
)
