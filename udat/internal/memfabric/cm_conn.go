package memfabric

import (
	"errors"
	"fmt"
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
	rejecter.send(MsgReject, c.dev, func() { c.Fail(softnic.Connecting, ev) })
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
		c.dev.send(MsgReject, p.dev, func() {
			p.Fail(softnic.Accepting, fabric.ConnEvent{Kind: fabric.EventFailed, Err: softnic.ErrGivenUp})
		})
		if waits {
			c.Finish(fabric.EventFailed, softnic.Failed("connect", fabric.ErrQPState))
		}
		return
	}
	c.dev.send(MsgReady, p.dev, p.Ready)
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
		c.dev.send(MsgDisconnect, c.peer.dev, c.peer.peerLeft)
	}
}

var (
	errNobody   = errors.New("mem0: nobody listens on the port in this process, and mem0 reaches no other")
	errBusy     = fmt.Errorf("mem0: the listener refuses, or its queue is full: %w", syscall.EAGAIN)
	errFiltered = errors.New("mem0: the listener accepts no connection from this address")
	errNoHost   = errors.New("mem0: the address is not its own, and it reaches no other: open an RDMA device")
)
