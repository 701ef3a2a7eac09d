package memfabric

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// handshakeLimit bounds how long an end waits for the other to answer, as a CM's retries do.
const handshakeLimit = 64 * time.Second

// conn is one end of a connection.
type conn struct {
	softnic.Conn
	dev  *Device
	left bool // this end has told the other of its disconnect
	peer *conn
}

// turnDown sends a reject to c; Adapter.Mu is held.
func (c *conn) turnDown(by *Device, ev fabric.ConnEvent) {
	by.send(MsgReject, c.dev, func() { c.Fail(softnic.Connecting, ev) })
}

// join connects the queue pair to that of p; Adapter.Mu is held.
func (c *conn) join(p *conn) bool {
	linkOf(c.QP).peer.Store(linkOf(p.QP))
	if !c.QP.Connect(c.In, c.Out) {
		return false
	}
	c.peer, c.Depart = p, c.leave
	return true
}

// replied takes the reply of p, which has accepted, in the dispatcher of the active end.
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

// peerLeft takes the other end's disconnect, in the dispatcher.
func (c *conn) peerLeft() {
	c.Ready() // a peer that disconnects was ready
	c.PeerLeft(fabric.EventDisconnected, nil)
}

// leave disconnects.
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
	errNobody = errors.New("mem0: nobody listens on the port in this process, and mem0 reaches no other")
	errBusy   = fmt.Errorf("mem0: the listener refuses, or its queue is full: %w", syscall.EAGAIN)
	errNoHost = errors.New("mem0: the address is not its own, and it reaches no other: open an RDMA device")
)
