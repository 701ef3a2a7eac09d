package udat

import "net/netip"

// EPParam describes an endpoint. Fields that the state leaves undefined are zero. The remote
// address and qualifier are defined in PASSIVE, ACTIVE, TENTATIVE, COMPLETION_PENDING, CONNECTED
// and DISCONNECT_PENDING, the local qualifier in these except TENTATIVE.
type EPParam struct {
	IA             *IA
	State          EPState
	LocalAddr      netip.Addr
	LocalPortQual  uint64
	RemoteAddr     netip.Addr
	RemotePortQual uint64
	PZ             *PZ
	RecvEVD        *EVD
	RequestEVD     *EVD
	ConnectEVD     *EVD
	SRQ            *SRQ
	Attr           EPAttr // the values in force: 0 means 0, not the default
}

// EPField selects fields of EPParam and of its attributes.
type EPField uint32

// Fields of EPParam.
const (
	EPFieldIA                     EPField = 0x00000001
	EPFieldState                  EPField = 0x00000002
	EPFieldLocalAddr              EPField = 0x00000004
	EPFieldLocalPortQual          EPField = 0x00000008
	EPFieldRemoteAddr             EPField = 0x00000010
	EPFieldRemotePortQual         EPField = 0x00000020
	EPFieldPZ                     EPField = 0x00000040
	EPFieldRecvEVD                EPField = 0x00000080
	EPFieldRequestEVD             EPField = 0x00000100
	EPFieldConnectEVD             EPField = 0x00000200
	EPFieldSRQ                    EPField = 0x00000400
	EPFieldServiceType            EPField = 0x00001000
	EPFieldMaxMessageSize         EPField = 0x00002000
	EPFieldMaxRDMASize            EPField = 0x00004000
	EPFieldQoS                    EPField = 0x00008000
	EPFieldRecvCompletionFlags    EPField = 0x00010000
	EPFieldRequestCompletionFlags EPField = 0x00020000
	EPFieldMaxRecvDTOs            EPField = 0x00040000
	EPFieldMaxRequestDTOs         EPField = 0x00080000
	EPFieldMaxRecvIOV             EPField = 0x00100000
	EPFieldMaxRequestIOV          EPField = 0x00200000
	EPFieldMaxRDMAReadIn          EPField = 0x00400000
	EPFieldMaxRDMAReadOut         EPField = 0x00800000
	EPFieldSRQSoftHW              EPField = 0x01000000
	EPFieldMaxRDMAReadIOV         EPField = 0x02000000
	EPFieldMaxRDMAWriteIOV        EPField = 0x04000000
	EPFieldNumTransportSpecific   EPField = 0x08000000
	EPFieldTransportSpecific      EPField = 0x10000000
	EPFieldNumProviderSpecific    EPField = 0x20000000
	EPFieldProviderSpecific       EPField = 0x40000000

	EPFieldAttr EPField = 0x7FFFF000 // all of Attr
	EPFieldAll  EPField = 0x7FFFF7FF
)

// Query describes the endpoint.
//
// Implements: dat_ep_query.
func (ep *EP) Query() (EPParam, error) {
	const op = "ep_query"
	if err := ep.object().check(op, HandleEP); err != nil {
		return EPParam{}, err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	local, remote := ep.addresses()
	return EPParam{
		IA: ep.obj.ia, State: ep.getState(),
		LocalAddr: local.Addr(), LocalPortQual: uint64(local.Port()),
		RemoteAddr: remote.Addr(), RemotePortQual: uint64(remote.Port()),
		PZ: ep.pz, RecvEVD: ep.recvEVD, RequestEVD: ep.requestEVD, ConnectEVD: ep.connectEVD, SRQ: ep.srq, Attr: ep.attr,
	}, nil
}

// addresses are the two ends of the connection, of the attempt at one, or of the request that the
// endpoint waits to answer; ep.mu is held.
func (ep *EP) addresses() (local, remote netip.AddrPort) {
	switch ep.getState() {
	case EPPassiveConnectionPending, EPTentativeConnection:
		if r := ep.request; r != nil {
			return r.LocalAddr(), r.RemoteAddr()
		}
	case EPActiveConnectionPending, EPCompletionPending, EPConnected, EPDisconnectPending:
		c := ep.conn.Load().conn
		return c.LocalAddr(), c.RemoteAddr()
	}
	return netip.AddrPortFrom(ep.obj.ia.device.Attr().Info.Addr, 0), netip.AddrPort{}
}

// GetStatus returns a snapshot: the state, and whether no receives and no requests are in flight.
// Suppressed requests are in flight until they have completed. With a shared receive queue,
// recvIdle is about the receives that the endpoint has taken from it. If the device does not count
// them (SRQInfoSupported lacks SRQInfoAvailable), recvIdle is true only when the endpoint can hold
// none: before it connects or accepts, and after its connection once the device has reported that
// it takes no more, or has had 20 ms to complete them.
//
// Implements: dat_ep_get_status.
func (ep *EP) GetStatus() (state EPState, recvIdle, requestIdle bool, err error) {
	if err := ep.object().check("ep_get_status", HandleEP); err != nil {
		return 0, false, false, err
	}
	ep.drainBoth()
	requestIdle = ep.requests.idle()
	recvIdle = ep.recvsIdle()
	return ep.getState(), recvIdle, requestIdle, nil
}

// RecvQuery returns the number of receives that are allocated to the endpoint and not completed,
// and the span of messages that they stand for, both of one moment. With a shared receive queue a
// receive is allocated when the endpoint takes it; if the device does not count these
// (SRQInfoSupported lacks SRQInfoAvailable), both are ValueUnknown.
//
// Implements: dat_ep_recv_query.
func (ep *EP) RecvQuery() (allocated, span int, err error) {
	const op = "ep_recv_query"
	if err := ep.object().check(op, HandleEP); err != nil {
		return 0, 0, err
	}
	ep.recvs.mu.Lock()
	defer ep.recvs.mu.Unlock()
	n := ep.allocated()
	return n, n, nil // receives complete in order: the span is as wide as their number
}

// RemoteAddr is the peer's address and port during a connection or an attempt at one.
//
// Extension. It is part of dat_ep_query.
func (ep *EP) RemoteAddr() netip.AddrPort {
	if !ep.object().alive() {
		return netip.AddrPort{}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c := ep.conn.Load()
	if c == nil || c.conn == nil {
		return netip.AddrPort{}
	}
	return c.conn.RemoteAddr()
}

// Path is the path of an endpoint's connection, and how often its requests are sent again.
type Path struct {
	MTU        int   // bytes
	TOS        uint8 // IP type of service, or traffic class
	SL         uint8 // service level
	GIDIndex   uint8 // entry of the port's GID table
	AckTimeout uint8 // 4.096 us << AckTimeout; 0 is no limit
	Retry      uint8 // without an acknowledgement
	RNRRetry   uint8 // without a posted receive; 7 is without end
}

// Path returns the path of a connected endpoint as the device has it. Errors: InvalidState if the
// endpoint is not connected, NotImplemented on mem0 and tcp, which have no packets of their own.
//
// Extension.
func (ep *EP) Path() (Path, error) {
	const op = "ep_path"
	if err := ep.object().check(op, HandleEP); err != nil {
		return Path{}, err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if s := ep.getState(); s != EPConnected && s != EPDisconnectPending {
		return Path{}, ep.wrongState(op, s)
	}
	p, err := ep.requests.qp.Path()
	if err != nil {
		return Path{}, failAs(op, err, SubResourceDevice)
	}
	return Path(p), nil
}
