package udat

import (
	"crypto/x509"
	"net/netip"

	"github.com/godat/godat/udat/internal/fabric"
)

// EPParam describes an endpoint. The remote address and qualifier and the local qualifier are set
// in PASSIVE, ACTIVE, TENTATIVE, COMPLETION_PENDING, CONNECTED and DISCONNECT_PENDING, and zero in
// the other states.
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
	Attr           EPAttr // the values in force; here 0 means 0, not the default

	// PeerCertificates are those that the peer of the connection has shown with TLS (see [WithTLS]),
	// its own first. Extension.
	PeerCertificates []*x509.Certificate
}

// EPField is a set of fields of EPParam and of EPAttr.
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

	EPFieldAttr EPField = 0x7FFFF000 // all fields of Attr
	EPFieldAll  EPField = 0x7FFFF7FF
)

// Query returns a description of the endpoint.
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
	var shown []*x509.Certificate
	if ep.getState() == EPConnected {
		shown = certificatesOf(ep.conn.Load().conn)
	}
	return EPParam{
		IA: ep.obj.ia, State: ep.getState(),
		LocalAddr: local.Addr(), LocalPortQual: uint64(local.Port()),
		RemoteAddr: remote.Addr(), RemotePortQual: uint64(remote.Port()),
		PZ: ep.pz, RecvEVD: ep.recvEVD, RequestEVD: ep.requestEVD, ConnectEVD: ep.connectEVD, SRQ: ep.srq, Attr: ep.attr,
		PeerCertificates: shown,
	}, nil
}

// addresses returns the addresses of the two ends of the connection, of the attempt to connect, or
// of the connection request that the endpoint is to answer; ep.mu is held. If there is none of
// these, the result local is the adapter's address, and the result remote is zero.
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

// GetStatus returns the state of the endpoint. recvIdle reports that no receives are in flight.
// requestIdle reports that no requests are in flight. Suppressed requests are in flight until they
// have completed.
//
// With a shared receive queue, recvIdle is about the receives that the endpoint has taken from the
// queue. If the device does not count these receives (SRQInfoSupported lacks SRQInfoAvailable),
// recvIdle is true only while the endpoint cannot hold receives. That is the case before it
// connects or accepts. After the end of the connection it is the case again when the device has
// reported that the endpoint takes no more receives, or when 20 ms have passed.
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

// RecvQuery returns two numbers, both of the same moment. The result allocated is the number of
// receives that the endpoint holds and has not completed. The result span is the number of messages
// that these receives cover. With a shared receive queue the endpoint holds a receive from the
// moment when it takes the receive from the queue. If the device does not count these receives
// (SRQInfoSupported lacks SRQInfoAvailable), both results are ValueUnknown.
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
	return n, n, nil // receives complete in order, so the span equals the number of receives
}

// RemoteAddr returns the address and port of the peer of the connection, or of the attempt to
// connect. If there is neither, it returns the zero value.
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

// Path describes the path of a connection, with the limits of retransmission.
type Path struct {
	MTU        int   // bytes
	TOS        uint8 // IP type of service, or traffic class
	SL         uint8 // service level
	GIDIndex   uint8 // entry of the port's GID table
	AckTimeout uint8 // 4.096 us << AckTimeout; 0: no timeout
	Retry      uint8 // retries of a request that is not acknowledged
	RNRRetry   uint8 // retries of a Send for which no receive is posted; 7: no limit
}

// Path returns the path that the device uses for the connection. Errors: InvalidState if the
// endpoint is not connected; ModelNotSupported on mem0 and tcp, which have no packets of their own.
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

// certificatesOf returns the certificates that the peer of a request or connection has shown.
func certificatesOf(of any) []*x509.Certificate {
	if a, ok := of.(fabric.Authenticated); ok {
		return a.PeerCertificates()
	}
	return nil
}
