package udat

import (
	"crypto/x509"
	"net/netip"

	"github.com/godat/godat/udat/internal/fabric"
)

// arrival is a connection request that has arrived at a service point.
type arrival struct {
	request fabric.Request
	qual    ConnQual
	point   Handle // the service point; nil for a reserved one
	evd     *EVD   // the dispatcher, on which a place is reserved
	ep      *EP    // the endpoint that the service point provides for the request; nil: none
}

// newCR makes a CR of an arrival and queues the event of the CR on the place that is reserved on
// the dispatcher. If the adapter is closed or the dispatcher has been freed, newCR gives back the
// endpoint of the arrival, as Reject does, and returns false.
func (ia *IA) newCR(a arrival) bool {
	c := &CR{request: a.request, localAddr: a.request.LocalAddr().Addr(), ep: a.ep}
	if ia.adopt("cr", &c.obj, c, HandleCR, nil) == nil {
		if a.evd.postReserved(&Event{Number: EventConnectionRequest, CR: c, Object: a.point,
			conn: &connectionData{qual: a.qual}}) {
			return true
		}
		c.obj.release("cr", HandleCR, SubNone, "objects")
	} else {
		a.evd.unreserve()
	}
	c.returnEP()
	return false
}

// CRParam describes a connection request.
type CRParam struct {
	RemoteAddr      netip.Addr
	RemotePortQual  uint64
	PrivateDataSize int
	PrivateData     []byte // valid until the request is answered
	LocalEP         *EP    // the endpoint that the service point provides for the request; nil: none

	// PrivateDataPadded means that PrivateData may be padded with zeroes to the 56 bytes of the
	// connection manager's message, because the peer's program does not use this library or either
	// end has a Linux kernel before 5.9. Extension.
	PrivateDataPadded bool

	// PeerCertificates are those that the peer has shown with TLS (see [WithTLS]), its own first.
	// Extension.
	PeerCertificates []*x509.Certificate
}

// Query returns a description of the request.
//
// Implements: dat_cr_query.
func (c *CR) Query() (CRParam, error) {
	const op = "cr_query"
	if err := c.object().check(op, HandleCR); err != nil {
		return CRParam{}, err
	}
	remote := c.request.RemoteAddr()
	private, padded := c.request.Private()
	return CRParam{
		RemoteAddr: remote.Addr(), RemotePortQual: uint64(remote.Port()),
		PrivateDataSize: len(private), PrivateData: private, PrivateDataPadded: padded, LocalEP: c.ep,
		PeerCertificates: certificatesOf(c.request),
	}, nil
}

// Accept accepts the request with an endpoint, which must be UNCONNECTED and have a zone. If the
// service point provides the endpoint (LocalEP in [CRParam]), ep must be nil. privateData goes to
// the peer with its ESTABLISHED event: at most MaxPrivateDataSize bytes, of which 56 work on every
// fabric. An error changes nothing.
//
// Success destroys the request and moves the endpoint to COMPLETION_PENDING. One event then follows
// on the endpoint's connect dispatcher: ESTABLISHED, or ACCEPT_COMPLETION_ERROR if the peer has
// given up or does not confirm the accept within 30 s. If 128 later accepts of the adapter wait for
// their confirmation, the limit is 2 s.
//
// Implements: dat_cr_accept.
func (c *CR) Accept(ep *EP, privateData []byte) error {
	const op = "cr_accept"
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	ia := c.obj.ia
	switch {
	case c.ep != nil && ep != nil:
		return fail(op, InvalidHandle, SubHandleEP, "the request brings its endpoint: ep must be nil")
	case c.ep != nil:
		ep = c.ep
	}
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := sameIA(op, ia, &ep.obj); err != nil {
		return err
	}
	if err := checkPrivate(op, SubArg3, privateData, ia.device.Attr().MaxConnData); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	return ep.accept(op, c.acceptance(), c.request, privateData, func() { c.forget(op) })
}

// acceptance returns the cause by which an accept of the request changes the endpoint's state. The
// cause depends on whether the service point provides the endpoint.
func (c *CR) acceptance() epCause {
	if c.ep != nil {
		return callAcceptOwn
	}
	return callAccept
}

// forget releases the handle of a request that has been answered.
func (c *CR) forget(op string) error {
	return c.obj.release(op, HandleCR, SubNone, "objects")
}

// Reject rejects the request and destroys it. The peer sees PEER_REJECTED with privateData; in DAT
// 1.2 a reject has no data. If privateData has more than MaxRejectDataSize bytes, Reject changes
// nothing and returns InvalidParameter. An endpoint of a reserved service point becomes UNCONNECTED
// again; an endpoint that the provider has made is destroyed.
//
// Implements: dat_cr_reject.
func (c *CR) Reject(privateData []byte) error {
	const op = "cr_reject"
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	if err := checkPrivate(op, SubArg2, privateData, c.obj.ia.device.Attr().MaxRejectData); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.forget(op); err != nil {
		return err
	}
	c.request.Reject(privateData, true)
	c.returnEP()
	return nil
}

// Handoff passes the request to the service point of this adapter that listens on qual. That
// service point queues the request as a new CR, and this CR is destroyed. If this CR has an
// endpoint (LocalEP in [CRParam]), the endpoint is given back, as by Reject. Errors change nothing:
// InvalidParameter if no service point listens on qual, InsufficientResources if the dispatcher of
// that service point is full.
//
// Implements: dat_cr_handoff.
func (c *CR) Handoff(qual ConnQual) error {
	const op = "cr_handoff"
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	port, err := qual.port(op, SubArg2)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	to := c.obj.ia.pointAt(port)
	if to == nil {
		return fail(op, InvalidParameter, SubArg2, "no service point of the adapter listens on qualifier %d", qual)
	}
	if !to.takeRequest(c.request) {
		return fail(op, InsufficientResources, SubNone, "the service point on qualifier %d has no place for the request",
			qual)
	}
	c.forget(op)
	c.returnEP()
	return nil
}

// returnEP gives back the endpoint of the request, if it has one: the endpoint of a reserved
// service point becomes UNCONNECTED again, and an endpoint that the provider has made is destroyed.
func (c *CR) returnEP() {
	if c.ep == nil {
		return
	}
	c.ep.mu.Lock()
	c.ep.request = nil
	tentative := c.ep.getState() == EPTentativeConnection
	c.ep.apply("cr", causeWithdrawn, nil)
	c.ep.mu.Unlock()
	if tentative {
		c.ep.discard()
	}
}

func (c *CR) destroy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request.Reject(nil, false)
	c.returnEP()
}

// servicePoint is a PSP or an RSP.
type servicePoint interface {
	// takeRequest makes a CR of the request, or returns false and leaves the request unchanged.
	takeRequest(fabric.Request) bool
	port() uint16
}

// pointAt returns the adapter's service point that listens on the port, or nil if there is none.
func (ia *IA) pointAt(port uint16) servicePoint {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	for _, kind := range []HandleType{HandlePSP, HandleRSP} {
		for _, h := range ia.objects[kind] {
			if p := h.(servicePoint); p.port() == port {
				return p
			}
		}
	}
	return nil
}

// discard destroys an endpoint that the provider has made for a request.
func (ep *EP) discard() {
	if ep.obj.release("ep", HandleEP, SubNone, "objects") == nil {
		ep.destroy()
	}
}
