package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// connState is the state of a connection.
type connState uint8

const (
	stAddr      connState = iota // active: resolving the address
	stRoute                      // active: resolving the route
	stRequested                  // active: the request is sent
	stArrived                    // passive: a request that nobody has answered
	stLost                       // passive: a request that nobody has answered, and its peer has given up
	stAccepted                   // passive: the reply is sent
	stUp                         // established
	stPeerLeft                   // the peer has disconnected and waits for our answer
	stLeaving                    // we have disconnected and wait for the peer's answer
	stOver                       // the last event has been reported
	numStates
)

// Conn is one connection or connection attempt, until its id is destroyed.
type Conn struct {
	m      *Manager
	id     *cverbs.CMID
	qp     QP // nil until the request is accepted
	active bool
	on     func(fabric.ConnEvent)

	mu            sync.Mutex // held during the calls that move the connection, never during a handler
	state         connState
	closed        bool // the owner has closed the connection and gets no more events
	destroyed     bool // the id is destroyed, or will be once calling is false
	calling       bool // a call on the id that may take long is under way
	ports         int  // active: number of local ports that were in use
	lost          error
	private       []byte // active: the private data of the request
	told          bool   // passive: the peer has sent the length of its private data, and understands the length of ours
	in, out       uint8  // read depths, as offered and then as agreed
	local, remote netip.AddrPort
}

// callLater runs call, a call on the id that may take long, in a new goroutine. After that, the
// goroutine acquires the lock. If the connection wants its id destroyed by then, the goroutine
// destroys the id. Otherwise it passes the result of call to onReturn. The caller holds the lock.
func (c *Conn) callLater(call func() error, onReturn func(err error)) {
	c.calling = true
	c.m.calls.Go(func() {
		err := call()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calling = false
		if c.destroyed {
			c.m.destroy(c.id)
		} else {
			onReturn(err)
		}
	})
}

// param returns the parameters that this end proposes.
func (c *Conn) param(private []byte) cverbs.ConnParam {
	return cverbs.ConnParam{
		PrivateData:        private,
		ResponderResources: c.in,
		InitiatorDepth:     c.out,
		FlowControl:        true,
		RetryCount:         c.m.port.Options.Retry,
		RNRRetryCount:      c.m.port.Options.RNRRetry,
		QPNum:              c.qp.Num(),
	}
}

// end ends an attempt. It destroys the id and returns the event to report. If the queue pair is
// still in INIT, another attempt may use it from then on.
func (c *Conn) end(kind fabric.ConnEventKind, cause error) []fabric.ConnEvent {
	return c.endWith(fabric.ConnEvent{Kind: kind, Err: cause})
}

func (c *Conn) endWith(e fabric.ConnEvent) []fabric.ConnEvent {
	c.state = stOver
	c.qp.Unclaim()
	c.destroy()
	return []fabric.ConnEvent{e}
}

// destroy destroys the id. If a call on the id is under way, the id is destroyed after that call.
// The caller holds the lock.
func (c *Conn) destroy() {
	if !c.destroyed {
		c.destroyed = true
		if !c.calling {
			c.m.destroy(c.id)
		}
	}
}

// drop destroys the id of a connection that has no owner.
func (c *Conn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = stOver
	c.destroy()
}

func (c *Conn) tell(e fabric.ConnEvent) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if !closed {
		c.on(e)
	}
}

func (c *Conn) tellLater(e fabric.ConnEvent) { c.m.Post(func() { c.tell(e) }) }

// dataCame is called when data arrives before the last message of the handshake. It tells the
// kernel that the connection is established.
func (c *Conn) dataCame() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == stAccepted && !c.destroyed {
		c.id.Notify(cverbs.AsyncCommEst) // a failure means that the handshake has just completed by itself
	}
}

func (c *Conn) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

func (c *Conn) RemoteAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remote
}

func (c *Conn) ReadDepths() (in, out uint8) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in, c.out
}

// Awaits returns a text that says what an attempt waits for.
func (c *Conn) Awaits() (what string, reached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case stAddr:
		return "the hardware address of " + c.remote.Addr().String() + " (ARP or neighbour discovery)", false
	case stRoute:
		return "the route to " + c.remote.Addr().String(), false
	case stRequested:
		return "the answer to the connection request", false
	case stAccepted:
		return "the peer's confirmation of the accept", false
	}
	return "", false
}

// Disconnect moves the queue pair to the error state. It notifies the peer, or answers the peer's
// disconnect. If this end disconnects first, the handler receives EventDisconnected when the peer
// has answered. A pending attempt ends with EventFailed.
func (c *Conn) Disconnect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fabric.ErrClosed
	}
	switch c.state {
	case stAddr, stRoute, stRequested, stAccepted:
		err := c.qp.SetError()
		for _, e := range c.end(fabric.EventFailed, errors.New("verbs: disconnected before it was established")) {
			c.tellLater(e)
		}
		return ignoreClosed(err)
	}
	return c.leave()
}

// leave disconnects an established connection. The caller holds the lock.
func (c *Conn) leave() error {
	var next connState
	switch c.state {
	case stUp:
		next = stLeaving
	case stPeerLeft:
		next = stOver
	default:
		return nil
	}
	// The queue pair moves to the error state first, so that all work that is posted from now on is
	// flushed. A closed queue pair needs no flush.
	err := ignoreClosed(c.qp.SetError())
	if c.m.noRoute(c.id) {
		c.callLater(func() error { c.m.awaitRoute(c.id); return nil }, func(error) { c.id.Disconnect() })
		next = stLeaving
	} else if e := c.id.Disconnect(); e != nil {
		next = stOver // the other end was faster, or the device has gone: no answer will come
	}
	c.state = next
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, fabric.ErrClosed) {
		return nil
	}
	return err
}

// Close releases the connection. The id of an established connection lingers until the peer has
// answered, but no longer than LingerTime.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fabric.ErrClosed
	}
	c.closed = true
	err := c.leave()
	switch c.state {
	case stLeaving:
		c.m.retire(c)
	case stAccepted:
		err = ignoreClosed(c.qp.SetError())
		c.destroy()
	default:
		c.qp.Unclaim()
		c.destroy()
	}
	c.m.remove(c)
	return err
}

// Break calls isLost with the addresses of each established connection. It breaks the connections
// for which isLost returns true: their queue pairs move to the error state, and their owners get
// EventFailed and must disconnect.
func (m *Manager) Break(isLost func(local netip.Addr, remote netip.AddrPort) bool) {
	for _, h := range m.owned() {
		h.(*Conn).breakIf(isLost)
	}
}

func (c *Conn) breakIf(lost func(local netip.Addr, remote netip.AddrPort) bool) {
	c.mu.Lock()
	hit := c.state == stUp && lost(c.id.LocalAddr().Addr(), c.id.RemoteAddr())
	if hit {
		c.qp.SetError() // an error is ignored: the event below reports the break
	}
	c.mu.Unlock()
	if hit {
		err := fmt.Errorf("verbs: %s has lost its link, address or route", c.m.port.Attr.Info.Name)
		c.tell(fabric.ConnEvent{Kind: fabric.EventFailed, Err: err})
	}
}
