package softnic

import (
	"errors"
	"net/netip"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// ConnState is the state of a connection, or of an attempt to connect.
type ConnState uint8

// The states.
const (
	Connecting  ConnState = iota // the active end, until the reply
	Accepting                    // the passive end, after Accept
	Established                  // also after this end has disconnected
	Over                         // the last event of the connection has been queued
	Forgotten                    // the connection is closed
)

// Conn is the part of one end of a connection that all transports share. The connection type of
// each transport embeds it. Adapter.Mu guards the fields. The dispatcher calls the handler.
type Conn struct {
	QP            *QP
	State         ConnState
	Local, Remote netip.AddrPort
	In, Out       uint8  // read depths
	Cancel        func() // ends the transport's work on an attempt to connect; may be nil
	Depart        func() // disconnects; nil as long as the queue pair has no peer

	dev    *Device
	on     func(fabric.ConnEvent)
	claims bool // QP is claimed for this connection
	timer  *time.Timer
}

// Attempt makes c an attempt to connect the queue pair q, with the parameters p.
func (d *Device) Attempt(c *Conn, q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) error {
	const op = "connect"
	a := &d.HW.Attr
	to := netip.AddrPortFrom(p.Remote.Addr().Unmap(), p.Remote.Port())
	switch {
	case !to.Addr().IsValid() || to.Addr().IsUnspecified() || to.Port() == 0:
		return Failed(op+" to "+p.Remote.String(), fabric.ErrAddrInvalid)
	case int(p.ReadIn) > a.MaxReadIn || int(p.ReadOut) > a.MaxReadOut:
		return Invalid(op, "read depths %d and %d are above the limits %d and %d",
			p.ReadIn, p.ReadOut, a.MaxReadIn, a.MaxReadOut)
	}
	c.Remote, c.In, c.Out = to, p.ReadIn, p.ReadOut
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	return c.claim(op, d, q, p.Private, a.MaxConnData, on)
}

// A call of claim counts the connection and claims its queue pair; Adapter.Mu is held.
func (c *Conn) claim(op string, d *Device, fq fabric.QP, private []byte, most int, on func(fabric.ConnEvent)) error {
	if err := d.Usable(op); err != nil {
		return err
	}
	switch {
	case on == nil:
		return Invalid(op, "no handler")
	case len(private) > most:
		return Invalid(op, "private data of %d bytes is above the limit %d", len(private), most)
	}
	q, err := d.claim(op, fq)
	if err != nil {
		return err
	}
	c.QP, c.dev, c.on, c.claims = q, d, on, true
	d.conns[c] = struct{}{}
	return nil
}

// Drop forgets the connection. If its queue pair was never connected, another attempt may use it.
// Adapter.Mu is held.
func (c *Conn) Drop() {
	c.End(Forgotten)
	delete(c.dev.conns, c)
	c.dev.drop(Conns)
}

// End moves the connection to the state s, Over or Forgotten. If the queue pair was never
// connected, another attempt may use it. Adapter.Mu is held.
func (c *Conn) End(s ConnState) {
	c.State = s
	c.Settle()
	if c.Cancel != nil {
		c.Cancel()
	}
	if c.claims && c.QP.unclaim() {
		c.claims = false
	}
}

// Settle stops the timer of Expire; Adapter.Mu is held.
func (c *Conn) Settle() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Tell queues an event for the handler. The caller must have changed the state before. The event is
// dropped if the connection is closed before the handler is called. Adapter.Mu is held.
func (c *Conn) Tell(ev fabric.ConnEvent) {
	c.dev.Events.Add(0, func() {
		c.dev.HW.Mu.Lock()
		gone := c.State == Forgotten
		c.dev.HW.Mu.Unlock()
		if !gone {
			c.on(ev)
		}
	})
}

// Finish ends the connection with its last event; Adapter.Mu is held.
func (c *Conn) Finish(kind fabric.ConnEventKind, err error) {
	c.End(Over)
	c.Tell(fabric.ConnEvent{Kind: kind, Err: err})
}

// Fail ends the connection with the event ev if the connection is in state s. Otherwise it does
// nothing and returns false.
func (c *Conn) Fail(s ConnState, ev fabric.ConnEvent) bool {
	c.dev.HW.Mu.Lock()
	defer c.dev.HW.Mu.Unlock()
	if c.State != s {
		return false
	}
	c.End(Over)
	c.Tell(ev)
	return true
}

// Expire starts a timer. If the state has not changed after the time limit, the connection ends
// with an event of the given kind. Its queue pair then fails too, if the queue pair had a peer when
// the timer was started. Adapter.Mu is held during the call.
func (c *Conn) Expire(limit time.Duration, kind fabric.ConnEventKind) {
	waiting, joined := c.State, c.Depart != nil
	c.timer = time.AfterFunc(limit, func() {
		if c.Fail(waiting, fabric.ConnEvent{Kind: kind, Err: ErrSilence}) && joined {
			c.QP.Fail()
		}
	})
}

// Ready establishes a connection that this end has accepted. The transport calls it when the first
// message of the other end has arrived.
func (c *Conn) Ready() {
	c.dev.HW.Mu.Lock()
	defer c.dev.HW.Mu.Unlock()
	if c.State == Accepting {
		c.Establish(nil)
	}
}

// Establish moves the connection to Established and queues EventEstablished; Adapter.Mu is held.
func (c *Conn) Establish(private []byte) {
	c.State = Established
	c.Settle()
	c.Tell(fabric.ConnEvent{Kind: fabric.EventEstablished, Private: private})
}

// PeerLeft ends the connection because the other end has disconnected or is lost. If the connection
// was established, its event is of the given kind. If this end had only accepted it, the event is
// EventFailed. The parameter err is nil after an orderly disconnect.
func (c *Conn) PeerLeft(kind fabric.ConnEventKind, err error) {
	c.dev.HW.Mu.Lock()
	defer c.dev.HW.Mu.Unlock()
	switch c.State {
	case Accepting:
		if err == nil {
			err = ErrGivenUp
		}
		c.Finish(fabric.EventFailed, err)
	case Established:
		c.Finish(kind, err)
	}
}

func (c *Conn) LocalAddr() netip.AddrPort {
	c.dev.HW.Mu.Lock()
	defer c.dev.HW.Mu.Unlock()
	return c.Local
}

func (c *Conn) RemoteAddr() netip.AddrPort { return c.Remote }

func (c *Conn) Awaits() (what string, reached bool) {
	return "the answer to the connection request", false
}

func (c *Conn) ReadDepths() (in, out uint8) {
	c.dev.HW.Mu.Lock()
	defer c.dev.HW.Mu.Unlock()
	return c.In, c.Out
}

// Disconnect disconnects, or answers the other end's disconnect. The end that disconnects first
// receives EventDisconnected when the other end disconnects too.
func (c *Conn) Disconnect() error {
	c.dev.HW.Mu.Lock()
	if c.State == Forgotten {
		c.dev.HW.Mu.Unlock()
		return Failed("disconnect", fabric.ErrClosed)
	}
	if c.State == Connecting || c.State == Accepting {
		c.Finish(fabric.EventFailed, ErrLeft)
	}
	depart := c.Depart
	c.dev.HW.Mu.Unlock()
	if depart != nil {
		depart()
	} else {
		c.QP.Fail()
	}
	return nil
}

// Close releases the connection. If the queue pair has no peer yet, its state does not change.
func (c *Conn) Close() error {
	c.dev.HW.Mu.Lock()
	if c.State == Forgotten {
		c.dev.HW.Mu.Unlock()
		return Failed("close connection", fabric.ErrClosed)
	}
	depart := c.Depart
	c.Drop()
	c.dev.HW.Mu.Unlock()
	if depart != nil {
		depart()
	}
	return nil
}

// Causes of the end of an attempt.
var (
	ErrSilence = errors.New("the other end does not answer")
	ErrLeft    = errors.New("disconnected before it was established")
	ErrGivenUp = errors.New("the other end has given up")
)
