package memfabric

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// handshakeLimit is how long an end waits for the answer of the other end. On real devices the
// retries of the connection manager limit this wait.
const handshakeLimit = 64 * time.Second

// conn is one end of a connection.
type conn struct {
	softnic.Conn
	dev  *Device
	left bool // this end has sent its disconnect
	peer *conn
}

// turnDown sends a reject from the device rejecter to c. When the reject arrives, the attempt to
// connect ends with the event ev. Adapter.Mu is held.
func (c *conn) turnDown(rejecter *Device, ev fabric.ConnEvent) {
	rejecter.send(softnic.MsgReject, c.dev, func() { c.Fail(softnic.Connecting, ev) })
}

// join connects the queue pair of c to that of p. It returns false if the queue pair of c is in
// error or closed. Adapter.Mu is held.
func (c *conn) join(p *conn) bool {
	linkOf(c.QP).peer.Store(linkOf(p.QP))
	if !c.QP.Connect(c.In, c.Out) {
		return false
	}
	c.peer, c.Depart = p, c.leave
	return true
}

// A call of replied handles the reply of the other end p, which has accepted. It runs in the
// dispatcher of the active end.
func (c *conn) replied(p *conn, private []byte) {
	hw := c.dev.HW
	hw.Mu.Lock()
	defer hw.Mu.Unlock()
	waits := c.State == softnic.Connecting
	if waits {
		c.In, c.Out = min(c.In, p.Out), min(c.Out, p.In)
	}
	if !waits || !c.join(p) {
		c.dev.send(softnic.MsgReject, p.dev, func() {
			p.Fail(softnic.Accepting, fabric.ConnEvent{Kind: fabric.EventFailed, Err: softnic.ErrGivenUp})
		})
		if waits {
			c.Finish(fabric.EventFailed, softnic.Failed("connect", fabric.ErrQPState))
		}
		return
	}
	c.dev.send(softnic.MsgReady, p.dev, p.Ready)
	c.Establish(private)
}

// peerLeft handles the other end's disconnect. It runs in the dispatcher.
func (c *conn) peerLeft() {
	c.Ready() // a peer that disconnects was ready
	c.PeerLeft(fabric.EventDisconnected, nil)
}

// leave moves the queue pair to the error state, and notifies the other end once.
func (c *conn) leave() {
	c.dev.HW.Mu.Lock()
	defer c.dev.HW.Mu.Unlock()
	c.QP.Fail()
	if !c.left {
		c.left = true
		c.dev.send(softnic.MsgDisconnect, c.peer.dev, c.peer.peerLeft)
	}
}

var (
	errNobody   = errors.New("mem0: nobody listens on the port in this process, and mem0 reaches no other")
	errBusy     = fmt.Errorf("mem0: the listener refuses, or its queue is full: %w", syscall.EAGAIN)
	errFiltered = errors.New("mem0: the listener accepts no connection from this address")
	errNoHost   = errors.New("mem0: the address is not its own, and it reaches no other: open an RDMA device")
)

// request is a connection request at the passive end.
type request struct {
	softnic.Request
	from *conn
	dev  *Device
}

func (r *request) refuse(private []byte, byConsumer bool) {
	ev := fabric.ConnEvent{Kind: fabric.EventRejected, Private: slices.Clone(private), Err: errBusy}
	if byConsumer {
		ev.Kind, ev.Err = fabric.EventPeerRejected, nil
	}
	r.dev.HW.Mu.Lock()
	defer r.dev.HW.Mu.Unlock()
	r.from.turnDown(r.dev, ev)
}

func (r *request) Accept(q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	d := r.dev
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	c := &conn{dev: d}
	if err := r.Take(&c.Conn, q, p, on); err != nil {
		return nil, err
	}
	ready := c.Ready
	linkOf(c.QP).awaited.Store(&ready)
	if !c.join(r.from) {
		c.Drop()
		return nil, softnic.Failed("accept", fabric.ErrQPState)
	}
	r.Answered()
	private := slices.Clone(p.Private)
	d.send(softnic.MsgReply, r.from.dev, func() { r.from.replied(c, private) })
	c.Expire(handshakeLimit, fabric.EventFailed)
	return c, nil
}

type listener struct {
	softnic.Listener
	dev *Device
}

// Listen accepts requests for 127.0.0.1 and ::1. The fabric has port numbers of its own, and none
// of them is privileged.
func (d *Device) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	l := &listener{dev: d}
	l.Accept = accept
	bind := func() error {
		d.HW.Mu.Lock()
		defer d.HW.Mu.Unlock()
		if port == 0 {
			port = d.net.freePort()
		}
		if port == 0 || d.net.listeners[port] != nil {
			return fmt.Errorf("%s: port %d: %w", deviceName, port, fabric.ErrAddrInUse)
		}
		d.net.listeners[port] = l
		l.At = netip.AddrPortFrom(addr4, port)
		return nil
	}
	unbind := func() {
		d.HW.Mu.Lock()
		defer d.HW.Mu.Unlock()
		if d.net.listeners[port] == l { // after a removal, another listener may have the port
			delete(d.net.listeners, port)
		}
	}
	if err := d.Device.Listen(&l.Listener, on, bind, unbind); err != nil {
		return nil, err
	}
	return l, nil
}

// Connect starts a connection to one of the fabric's addresses.
func (d *Device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	c := &conn{dev: d}
	if err := d.Attempt(&c.Conn, q, p, on); err != nil {
		return nil, err
	}
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	to := c.Remote.Addr()
	c.Local = netip.AddrPortFrom(to, d.net.freePort())
	if to != addr4 && to != addr6 {
		c.Local = netip.AddrPortFrom(addr4, c.Local.Port())
		c.Finish(fabric.EventUnreachable, errNoHost)
		return c, nil
	}
	c.Expire(handshakeLimit, fabric.EventUnreachable)
	l := d.net.listeners[c.Remote.Port()]
	if l == nil {
		c.turnDown(d, fabric.ConnEvent{Kind: fabric.EventRejected, Err: errNobody})
		return c, nil
	}
	r := &request{from: c, dev: l.dev}
	r.Request = softnic.Request{Lis: &l.Listener, Local: c.Remote, Remote: c.Local, Data: slices.Clone(p.Private),
		In: p.ReadOut, Out: p.ReadIn, Refuse: r.refuse}
	d.send(softnic.MsgRequest, l.dev, func() {
		if !l.Accept.Accepts(r.Remote) {
			d.HW.Mu.Lock()
			defer d.HW.Mu.Unlock()
			c.turnDown(l.dev, fabric.ConnEvent{Kind: fabric.EventRejected, Err: errFiltered})
			return
		}
		r.Arrive(r)
	})
	return c, nil
}
