package udat

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// portModulus and portBase map qualifiers above 65535 to ports, in the same way as OpenFabrics
// DAPL.
const (
	portModulus = 32001
	portBase    = 33534
)

func (q ConnQual) port(op string, arg Subtype) (uint16, error) {
	switch {
	case q == 0:
		return 0, fail(op, InvalidParameter, arg, "connection qualifier is 0, must be at least 1")
	case q <= 65535:
		return uint16(q), nil
	}
	return uint16(q%portModulus) + portBase, nil
}

// Connect starts to connect to the service point that listens on qual at addr. The endpoint must be
// UNCONNECTED and have a zone; else Connect returns InvalidState. If Connect returns nil, one event
// on the connect dispatcher reports the outcome: ESTABLISHED with the acceptor's private data,
// PEER_REJECTED, NON_PEER_REJECTED, UNREACHABLE, or TIMED_OUT when timeout has passed. After each
// of these events except ESTABLISHED the endpoint is DISCONNECTED.
//
// privateData goes to the peer with the request: at most MaxPrivateDataSize bytes, of which 56 work
// on every fabric. timeout must be positive and may be [Infinite]. The connection manager also has
// a time limit, for example 103 s and 16 requests on RoCE with Linux 6.1. If the peer does not
// answer within this limit, the outcome is UNREACHABLE, even if the timeout has not passed.
// [Event.Err] returns the reason of a failure. With [WithLogger] an attempt that takes longer than
// 2 s is logged, together with what the attempt waits for.
//
// If Connect returns an error, the endpoint remains UNCONNECTED. Errors: InvalidAddress for an
// address that no host can have; ModelNotSupported for a quality of service or a flag that is not
// supported.
//
// Implements: dat_ep_connect.
func (ep *EP) Connect(addr netip.Addr, qual ConnQual, timeout time.Duration, privateData []byte, qos QoS,
	flags ConnectFlags) error {
	const op = "ep_connect"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	switch {
	case timeout <= 0:
		return fail(op, InvalidParameter, SubArg4, "timeout is %v, must be positive", timeout)
	case qos != QoSBestEffort:
		return fail(op, ModelNotSupported, SubNone, "qos is %d, only QoSBestEffort is supported", qos)
	case flags&^ConnectMultipath != 0:
		return fail(op, InvalidParameter, SubArg8, "flags 0x%x: only ConnectMultipath is known", uint32(flags))
	case flags != 0:
		return fail(op, ModelNotSupported, SubNone, "multipath connections are not supported")
	}
	port, err := qual.port(op, SubArg3)
	if err != nil {
		return err
	}
	if err := checkAddress(op, addr); err != nil {
		return err
	}
	return ep.connect(op, SubArg5, netip.AddrPortFrom(addr, port), timeout, privateData)
}

// checkAddress returns an error for an address that no peer can have.
func checkAddress(op string, addr netip.Addr) error {
	switch {
	case !addr.IsValid() || addr.IsUnspecified():
		return fail(op, InvalidAddress, SubAddressMalformed, "%v is no address of a host", addr)
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fail(op, InvalidAddress, SubAddressUnsupported, "%v is a multicast or broadcast address", addr)
	}
	return nil
}

// DupConnect connects the endpoint to the address and qualifier to which dup is connected. If dup
// belongs to another adapter, DupConnect returns InvalidHandle; if dup is not CONNECTED, it returns
// InvalidState. If dup was connected by Accept, the peer has no service point at that address, and
// the outcome is NON_PEER_REJECTED. States, events, timeout, private data and quality of service
// are those of Connect.
//
// Implements: dat_ep_dup_connect.
func (ep *EP) DupConnect(dup *EP, timeout time.Duration, privateData []byte, qos QoS) error {
	const op = "ep_dup_connect"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := dup.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := sameIA(op, ep.obj.ia, &dup.obj); err != nil {
		return err
	}
	switch {
	case timeout <= 0:
		return fail(op, InvalidParameter, SubArg3, "timeout is %v, must be positive", timeout)
	case qos != QoSBestEffort:
		return fail(op, ModelNotSupported, SubNone, "qos is %d, only QoSBestEffort is supported", qos)
	}
	dup.mu.Lock()
	s := dup.getState()
	_, remote := dup.addresses()
	dup.mu.Unlock()
	if s != EPConnected {
		return dup.wrongState(op, s)
	}
	return ep.connect(op, SubArg4, remote, timeout, privateData)
}

func (ep *EP) connect(op string, arg Subtype, remote netip.AddrPort, timeout time.Duration, private []byte) error {
	ia := ep.obj.ia
	if err := checkPrivate(op, arg, private, ia.device.Attr().MaxConnData); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c, err := ep.begin(op, callConnect, func(in, out uint8, on func(fabric.ConnEvent)) (fabric.Conn, error) {
		p := fabric.ConnectParams{Remote: remote, Private: private, ReadIn: in, ReadOut: out}
		return ia.device.Connect(ep.requests.qp, p, on)
	})
	if err != nil {
		return err
	}
	if ia.log != nil {
		c.notice = time.AfterFunc(noticeAfter, func() { ep.announce(c) })
	}
	if timeout != Infinite {
		ep.expire(c, timeout, nil)
	}
	return nil
}

// begin starts a new connection of the endpoint. It calls the callback start with the endpoint's
// read depths. The callback starts the connection in the fabric. ep.mu is held. An error changes
// nothing.
func (ep *EP) begin(op string, call epCause,
	start func(in, out uint8, on func(fabric.ConnEvent)) (fabric.Conn, error)) (*connection, error) {
	if _, err := ep.transition(op, call); err != nil {
		return nil, err
	}
	if ep.requests.qp == nil {
		return nil, ep.notReady(op)
	}
	c := &connection{began: time.Now(), active: true}
	ep.recvs.source.deferEvents()
	var err error
	c.conn, err = start(uint8(ep.attr.MaxRDMAReadIn), uint8(ep.attr.MaxRDMAReadOut), ep.handler(c))
	if err != nil {
		ep.recvs.source.releaseDeferred()
		return nil, failAs(op, err, SubResourceMemory)
	}
	ep.conn.Store(c)
	ep.apply(op, call, nil)
	ep.requests.source.addConnected(1)
	ep.recvs.source.addConnected(1)
	ep.obj.ia.activate()
	ep.obj.ia.watchPeers()
	return c, nil
}

// acceptWait limits the wait for the initiator's confirmation of an accept. An initiator that has
// not received the accept repeats its request within seconds.
const acceptWait = 30 * time.Second

var errUnconfirmed = fmt.Errorf("the initiator has not confirmed the accept within %v", acceptWait)

// expire makes the attempt to connect time out after d; ep.mu is held.
func (ep *EP) expire(c *connection, d time.Duration, why error) {
	ep.timer = time.AfterFunc(d, func() { ep.happened(c, causeTimedOut, fabric.ConnEvent{Err: why}) })
}

// checkPrivate returns an error if the private data is longer than limit.
func checkPrivate(op string, arg Subtype, private []byte, limit int) error {
	if len(private) > limit {
		return fail(op, InvalidParameter, arg, "private data has %d bytes, the limit is %d", len(private), limit)
	}
	return nil
}

// accept accepts a request with the endpoint's queue pair. The parameter call is callAcceptOwn if
// the service point provides the endpoint, else callAccept. If accept succeeds it calls onAccepted.
// An error changes nothing.
func (ep *EP) accept(op string, call epCause, request fabric.Request, private []byte, onAccepted func()) error {
	ep.obj.ia.thinAccepts(time.Now())
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c, err := ep.begin(op, call, func(in, out uint8, on func(fabric.ConnEvent)) (fabric.Conn, error) {
		return request.Accept(ep.requests.qp, fabric.AcceptParams{Private: private, ReadIn: in, ReadOut: out}, on)
	})
	if err != nil {
		return err
	}
	ep.request = nil
	ep.expire(c, ep.obj.ia.acceptWait, errUnconfirmed)
	ep.obj.ia.mu.Lock()
	ep.obj.ia.unconfirmed[c] = ep
	ep.obj.ia.mu.Unlock()
	onAccepted()
	return nil
}

// An adapter keeps up to maxUnconfirmed accepts that wait for their confirmation. When there are
// more, it gives up the oldest ones, but only those that have waited for unconfirmedAge. Otherwise
// a flood of requests whose initiators never confirm would occupy the endpoints. A proper initiator
// confirms within one round trip. The adapter never gives up an accept whose initiator has already
// sent a message.
const (
	maxUnconfirmed = 128
	unconfirmedAge = 2 * time.Second
)

var errCrowded = fmt.Errorf("the initiator has not confirmed the accept within %v, and %d others await confirmation",
	unconfirmedAge, maxUnconfirmed)

// thinAccepts gives up old unconfirmed accepts to make room for one more. No lock of an endpoint is
// held.
func (ia *IA) thinAccepts(now time.Time) {
	type unconfirmed struct {
		conn *connection
		ep   *EP
	}
	var old []unconfirmed
	ia.mu.Lock()
	surplus := len(ia.unconfirmed) + 1 - maxUnconfirmed
	if surplus > 0 {
		for c, ep := range ia.unconfirmed {
			if now.Sub(c.began) >= unconfirmedAge {
				old = append(old, unconfirmed{c, ep})
			}
		}
	}
	ia.mu.Unlock()
	slices.SortFunc(old, func(a, b unconfirmed) int { return a.conn.began.Compare(b.conn.began) })
	for _, u := range old[:min(len(old), max(surplus, 0))] {
		if !u.ep.hasReceived() {
			u.ep.happened(u.conn, causeTimedOut, fabric.ConnEvent{Err: errCrowded})
		}
	}
}

// hasReceived reports whether the initiator has sent a message, although its confirmation has not
// arrived. On a busy host the confirmation may be seconds late.
func (ep *EP) hasReceived() bool {
	_, recvs := ep.sources()
	recvs.evd.poll()
	return recvs.deferredCount() > 0
}

// Disconnect ends the connection, or gives up the attempt to connect. CloseAbrupt flushes the work
// in flight. CloseGraceful moves the endpoint to DISCONNECT_PENDING, in which no new requests can
// be posted, and ends the connection when all requests have completed. A graceful Disconnect has no
// time limit while the peer receives messages; a second, abrupt Disconnect ends the connection at
// once. Disconnect itself does not wait: the DISCONNECTED event is queued on the connect dispatcher
// after the completions of the work.
//
// In DISCONNECTED the call does nothing. In UNCONNECTED, RESERVED, PASSIVE and TENTATIVE it returns
// InvalidState.
//
// Implements: dat_ep_disconnect.
func (ep *EP) Disconnect(flags CloseFlags) error {
	const op = "ep_disconnect"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	call := callAbrupt
	switch flags {
	case CloseAbrupt:
	case CloseGraceful:
		call = callGraceful
	default:
		return fail(op, InvalidParameter, SubArg2, "flags %d: must be CloseAbrupt or CloseGraceful", flags)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.advance(op, call, fabric.ConnEvent{})
}
