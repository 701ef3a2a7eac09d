package udat

import (
	"net/netip"
	"sync"

	"github.com/godat/godat/udat/internal/fabric"
)

// CR is a connection request that awaits an answer: accept, reject or handoff, each of which destroys it.
type CR struct {
	obj       object
	request   fabric.Request
	localAddr netip.Addr
	qual      ConnQual
	ep        *EP // of a reserved service point

	mu sync.Mutex // one answer at a time
}

func (c *CR) object() *object {
	if c == nil {
		return nil
	}
	return &c.obj
}

// newCR queues a request on a dispatcher, or refuses it if there is no place.
func (ia *IA) newCR(r fabric.Request, ev *Event, evd *EVD, ep *EP) bool {
	c := &CR{request: r, localAddr: r.LocalAddr().Addr(), qual: ev.ConnQual, ep: ep}
	if ia.adopt("cr", &c.obj, c, HandleCR, nil) != nil {
		r.Reject(nil, false)
		return false
	}
	ev.CR = c
	if evd.postIfRoom(ev) {
		return true
	}
	if c.obj.release("cr", HandleCR, SubNone, "") == nil {
		r.Reject(nil, false)
	}
	return false
}

// postIfRoom queues an event unless the queue is full, which is no overflow.
func (e *EVD) postIfRoom(ev *Event) bool {
	e.mu.Lock()
	defer e.unlock()
	if e.dead || e.ring.n >= e.qlen {
		return false
	}
	e.push(ev, true)
	e.rouse()
	return true
}

// CRParam describes a connection request.
type CRParam struct {
	RemoteAddr     netip.Addr
	RemotePortQual uint64
	PrivateData    []byte // valid until the request is answered
	LocalEP        *EP    // nil unless the request brings its endpoint
}

// CRField selects fields of CRParam.
type CRField uint32

// Fields of CRParam.
const (
	CRFieldRemoteAddr      CRField = 0x01
	CRFieldRemotePortQual  CRField = 0x02
	CRFieldPrivateDataSize CRField = 0x04
	CRFieldPrivateData     CRField = 0x08
	CRFieldLocalEP         CRField = 0x10
	CRFieldAll             CRField = 0x1F
)

// Query describes the request; all fields are set whatever mask asks for.
//
// Implements: dat_cr_query.
func (c *CR) Query(mask CRField) (CRParam, error) {
	const op = "cr_query"
	if err := c.object().check(op, HandleCR); err != nil {
		return CRParam{}, err
	}
	if mask&^CRFieldAll != 0 {
		return CRParam{}, fail(op, InvalidParameter, SubArg2, "mask 0x%x: only 0x%x is known", uint32(mask), uint32(CRFieldAll))
	}
	remote := c.request.RemoteAddr()
	return CRParam{RemoteAddr: remote.Addr(), RemotePortQual: uint64(remote.Port()), PrivateData: c.request.Private(), LocalEP: c.ep}, nil
}

// Accept answers the request with an endpoint, which must be UNCONNECTED and in a zone; ep is nil where the request
// brings its own. privateData goes to the peer with its ESTABLISHED. Success destroys the request, puts the endpoint
// in COMPLETION_PENDING, and one event follows on its connect dispatcher: ESTABLISHED, or
// ACCEPT_COMPLETION_ERROR if the peer has given up. An error changes nothing.
//
// Implements: dat_cr_accept.
func (c *CR) Accept(ep *EP, privateData []byte) error {
	const op = "cr_accept"
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	ia := c.obj.ia
	from := EPUnconnected
	switch {
	case c.ep != nil && ep != nil:
		return fail(op, InvalidHandle, SubHandleEP, "the request brings its endpoint: ep must be nil")
	case c.ep != nil:
		ep, from = c.ep, EPPassiveConnectionPending
	}
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if err := sameIA(op, ia, &ep.obj); err != nil {
		return err
	}
	if err := ia.checkPrivate(op, privateData); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if s := ep.getState(); s != from {
		return ep.wrongState(op, s)
	}
	if ep.requests.qp == nil {
		return ep.notReady(op)
	}
	return c.accept(op, ep, privateData)
}

// accept hands the endpoint's queue pair to the request; the locks of both are held.
func (c *CR) accept(op string, ep *EP, private []byte) error {
	l := &link{}
	ep.recvs.work.hold()
	conn, err := c.request.Accept(ep.requests.qp, fabric.AcceptParams{
		Private: private, ReadIn: uint8(ep.attr.MaxRDMAReadIn), ReadOut: uint8(ep.attr.MaxRDMAReadOut),
	}, ep.handler(l))
	if err != nil {
		ep.recvs.work.release()
		return failAs(op, err, SubResourceMemory)
	}
	ep.begin(l, conn, EPCompletionPending)
	c.forget(op)
	return nil
}

// forget ends the life of an answered request.
func (c *CR) forget(op string) error {
	return c.obj.release(op, HandleCR, SubNone, "")
}

// Reject answers no: the peer sees PEER_REJECTED. It destroys the request; an endpoint that it brought goes back to
// the Consumer, UNCONNECTED.
//
// Implements: dat_cr_reject.
func (c *CR) Reject() error {
	const op = "cr_reject"
	if err := c.object().check(op, HandleCR); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.forget(op); err != nil {
		return err
	}
	c.request.Reject(nil, true)
	c.freeEP()
	return nil
}

// freeEP gives the endpoint of a reserved service point back.
func (c *CR) freeEP() {
	if c.ep == nil {
		return
	}
	c.ep.mu.Lock()
	if c.ep.getState() == EPPassiveConnectionPending {
		c.ep.setState(EPUnconnected)
	}
	c.ep.mu.Unlock()
}

func (c *CR) destroy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request.Reject(nil, false)
}
