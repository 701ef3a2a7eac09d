package cverbs

import (
	"fmt"
	"net/netip"
	"syscall"
)

// PortSpace is the service space of a connection manager id.
type PortSpace uint32

// Port spaces, with the values of enum rdma_port_space.
const (
	PortSpaceIPoIB PortSpace = 0x0002 // datagrams, with the Q_Key of the IPoIB interface
	PortSpaceTCP   PortSpace = 0x0106 // reliable connections
	PortSpaceUDP   PortSpace = 0x0111 // unreliable datagrams
	PortSpaceIB    PortSpace = 0x013F
)

var portSpaceNames = map[PortSpace]string{PortSpaceIPoIB: "IPoIB", PortSpaceTCP: "TCP", PortSpaceUDP: "UDP",
	PortSpaceIB: "IB"}

// String returns the port space's name.
//
// Extension.
func (p PortSpace) String() string { return enumName(portSpaceNames, p, "PortSpace") }

// JoinFlag selects whether an id joins a multicast group to receive and send, or to send only.
type JoinFlag uint32

// Kinds of members, with the values of enum rdma_cm_mc_join_flags.
const (
	JoinFullMember JoinFlag = 0 // to receive what is sent to the group, and to send
	JoinSendOnly   JoinFlag = 1 // to send only
)

var joinFlagNames = map[JoinFlag]string{JoinFullMember: "FULLMEMBER", JoinSendOnly: "SENDONLY_FULLMEMBER"}

// String returns the rdma_cm name without its prefix.
//
// Extension.
func (f JoinFlag) String() string { return enumName(joinFlagNames, f, "JoinFlag") }

// AddrInfo describes where an id listens, or where it connects to and from.
type AddrInfo struct {
	Passive   bool // true: listen on Src; false: connect to Dst
	Type      QPType
	PortSpace PortSpace
	Src       netip.AddrPort // if not Passive, zero lets the routing table choose
	Dst       netip.AddrPort // used if not Passive

	// Used only in the hints of GetAddrInfo.
	NumericHost bool // the node is an address; do not look up a name
	Family      int  // 4: IPv4 alone, 6: IPv6 alone, 0: either
}

// CMEventType is the kind of a connection manager event.
type CMEventType uint32

// Connection manager events, with the values of enum rdma_cm_event_type.
const (
	CMEventAddrResolved    CMEventType = 0
	CMEventAddrError       CMEventType = 1
	CMEventRouteResolved   CMEventType = 2
	CMEventRouteError      CMEventType = 3
	CMEventConnectRequest  CMEventType = 4
	CMEventConnectResponse CMEventType = 5 // the peer has accepted, and the id has no QP; see CMID.Connect
	CMEventConnectError    CMEventType = 6
	CMEventUnreachable     CMEventType = 7
	CMEventRejected        CMEventType = 8
	CMEventEstablished     CMEventType = 9
	CMEventDisconnected    CMEventType = 10
	CMEventDeviceRemoval   CMEventType = 11
	CMEventMulticastJoin   CMEventType = 12
	CMEventMulticastError  CMEventType = 13
	CMEventAddrChange      CMEventType = 14
	CMEventTimewaitExit    CMEventType = 15
)

var cmEventNames = map[CMEventType]string{
	CMEventAddrResolved: "ADDR_RESOLVED", CMEventAddrError: "ADDR_ERROR", CMEventRouteResolved: "ROUTE_RESOLVED",
	CMEventRouteError: "ROUTE_ERROR", CMEventConnectRequest: "CONNECT_REQUEST", CMEventConnectResponse: "CONNECT_RESPONSE",
	CMEventConnectError: "CONNECT_ERROR", CMEventUnreachable: "UNREACHABLE", CMEventRejected: "REJECTED",
	CMEventEstablished: "ESTABLISHED", CMEventDisconnected: "DISCONNECTED", CMEventDeviceRemoval: "DEVICE_REMOVAL",
	CMEventMulticastJoin: "MULTICAST_JOIN", CMEventMulticastError: "MULTICAST_ERROR", CMEventAddrChange: "ADDR_CHANGE",
	CMEventTimewaitExit: "TIMEWAIT_EXIT",
}

// String returns the rdma_cm name without its prefix.
//
// Implements: rdma_event_str.
func (t CMEventType) String() string { return enumName(cmEventNames, t, "CMEventType") }

// Reasons in CMEvent.Status of a REJECTED event, from the InfiniBand connection manager.
const (
	RejectNoListener      = 8  // invalid service id: no listener
	RejectConsumerDefined = 28 // the peer's program rejected the request, or closed its id without an answer
	RejectVendorOption    = 35 // the peer's program does not accept the ECE options of the request
)

// ConnParam holds the parameters of Connect and Accept. In an event, it holds the peer's
// parameters.
//
// In an event, ResponderResources is the peer's InitiatorDepth, and InitiatorDepth is the peer's
// ResponderResources. So both describe the local side, and may be passed to Accept.
type ConnParam struct {
	PrivateData        []byte // at most 56 bytes in a request (PortSpaceTCP), 196 in a reply, 148 in a reject
	ResponderResources uint8  // concurrent RDMA reads and atomics as responder
	InitiatorDepth     uint8  // concurrent RDMA reads and atomics as initiator
	FlowControl        bool
	RetryCount         uint8 // 0 to 7; ignored by Accept
	RNRRetryCount      uint8 // 0 to 7; 7 is unlimited
	SRQ                bool  // the QP uses a shared receive queue; ignored if CMID.CreateQP created the QP
	QPNum              uint32
}

// ECE is enhanced connection establishment data: options, and the vendor that has defined them. A
// connection manager message carries the low 24 bits of VendorID and all of Options. A VendorID of
// 0 means no ECE. Kernels before 5.9 send neither field.
type ECE struct {
	VendorID uint32
	Options  uint32
}

// CMEvent is a copy of one connection manager event, which is already acknowledged. On InfiniBand
// and RoCE, PrivateData is padded with zeroes to the length of the message's field for private
// data.
type CMEvent struct {
	Type     CMEventType
	Status   int   // 0, a negative errno, or for REJECTED a reason of the transport
	ID       *CMID // the event's id; for CONNECT_REQUEST a new id, which the receiver must Close
	ListenID *CMID // CONNECT_REQUEST: the id that listens
	ConnParam
	QKey  uint32     // UDP port space: the Q_Key of the peer or of the multicast group
	AH    AHAttr     // UDP port space: the path to the peer or to the multicast group
	Group netip.Addr // MULTICAST_JOIN and MULTICAST_ERROR: the group of JoinMulticast
}

// Err returns an error with the event's name and status, or nil if Status is 0.
//
// Extension.
func (e CMEvent) Err() error {
	switch {
	case e.Status == 0:
		return nil
	case e.Type == CMEventRejected && e.Status < 0: // on iWARP Status is the errno of the TCP connection
		return &Error{Verb: "rdma_cm REJECTED", Errno: syscall.ECONNREFUSED, Advice: syscall.Errno(-e.Status).Error()}
	case e.Status < 0:
		return &Error{Verb: "rdma_cm " + e.Type.String(), Errno: syscall.Errno(-e.Status)}
	case e.Type == CMEventRejected && e.Status == RejectNoListener:
		return &Error{Verb: "rdma_cm REJECTED", Errno: syscall.ECONNREFUSED,
			Advice: "nobody listens there (reason 8): is the server running, and is this its RDMA port? TCP has others"}
	case e.Type == CMEventRejected && e.Status == RejectVendorOption:
		return &Error{Verb: "rdma_cm REJECTED", Errno: syscall.ECONNREFUSED,
			Advice: "the peer does not take the ECE options (reason 35)"}
	case e.Type == CMEventRejected:
		return &Error{Verb: "rdma_cm REJECTED", Errno: syscall.ECONNREFUSED, Advice: fmt.Sprintf("reason %d", e.Status)}
	}
	return fmt.Errorf("cverbs: rdma_cm %s: status %d", e.Type, e.Status)
}
