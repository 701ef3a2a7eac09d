package softnic

import (
	"errors"
	"net/netip"
	"slices"
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
	d.Conns[c] = struct{}{}
	return nil
}

// Drop forgets the connection. If its queue pair was never connected, another attempt may use it.
// Adapter.Mu is held.
func (c *Conn) Drop() {
	c.End(Forgotten)
	delete(c.dev.Conns, c)
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
	if c.claims && c.QP.is(qpInit) {
		c.claims, c.QP.claimed = false, false
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
	c.dev.Events.Add(func() {
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

// Request is the part of a connection request, at the passive end, that all transports share. The
// request type of each transport embeds it. The fields never change, except answered, which
// Adapter.Mu guards.
type Request struct {
	Lis           *Listener
	Local, Remote netip.AddrPort
	Data          []byte // private
	In, Out       uint8
	Refuse        func(private []byte, byConsumer bool) // sends a reject; Adapter.Mu is not held

	answered bool
}

// Arrive calls the listener's handler with self, the transport's request that embeds r. If the
// listener or the device is closed, Arrive rejects the request instead. The dispatcher calls
// Arrive.
func (r *Request) Arrive(self fabric.Request) {
	l := r.Lis
	d := l.dev
	d.HW.Mu.Lock()
	if l.closed || d.Usable("") != nil {
		d.HW.Mu.Unlock()
		r.Refuse(nil, false)
		return
	}
	d.Requests[r] = struct{}{}
	d.HW.Mu.Unlock()
	l.on(self)
}

func (r *Request) LocalAddr() netip.AddrPort   { return r.Local }
func (r *Request) RemoteAddr() netip.AddrPort  { return r.Remote }
func (r *Request) Private() ([]byte, bool)     { return slices.Clone(r.Data), false }
func (r *Request) ReadDepths() (in, out uint8) { return r.In, r.Out }

// A call of pending returns an error if the request cannot be answered; Adapter.Mu is held.
func (r *Request) pending(op string) error {
	if r.answered {
		return Failed(op+": the request has been answered", fabric.ErrClosed)
	}
	return r.Lis.dev.Usable(op)
}

// Answered is called when the request has its answer, and records this. Adapter.Mu is held.
func (r *Request) Answered() {
	r.answered = true
	delete(r.Lis.dev.Requests, r)
}

// Remains undoes Answered. The transport calls it if it could not send the answer. Adapter.Mu is
// held.
func (r *Request) Remains() {
	r.answered = false
	r.Lis.dev.Requests[r] = struct{}{}
}

// Reject rejects the request.
func (r *Request) Reject(private []byte, byConsumer bool) error {
	const op = "reject"
	hw := r.Lis.dev.HW
	if len(private) > hw.Attr.MaxRejectData {
		return Invalid(op, "private data of %d bytes is above the limit %d", len(private), hw.Attr.MaxRejectData)
	}
	hw.Mu.Lock()
	if err := r.pending(op); err != nil {
		hw.Mu.Unlock()
		return err
	}
	r.Answered()
	hw.Mu.Unlock()
	r.Refuse(private, byConsumer)
	return nil
}

// Take makes c the passive end of the requested connection, with the queue pair q. After that, the
// transport must send the reply and call Answered. Adapter.Mu is held.
func (r *Request) Take(c *Conn, q fabric.QP, p fabric.AcceptParams, on func(fabric.ConnEvent)) error {
	const op = "accept"
	if err := r.pending(op); err != nil {
		return err
	}
	d := r.Lis.dev
	if err := c.claim(op, d, q, p.Private, d.HW.Attr.MaxAcceptData, on); err != nil {
		return err
	}
	c.State, c.Local, c.Remote = Accepting, r.Local, r.Remote
	c.In, c.Out = min(p.ReadIn, r.In), min(p.ReadOut, r.Out)
	return nil
}

// Listener is the part of a listener that all transports share. The listener type of each transport
// embeds it.
type Listener struct {
	At     netip.AddrPort
	Accept fabric.Filter
	Ended  func() // called when the listener ends

	dev    *Device
	on     func(fabric.Request)
	closed bool // guarded by Adapter.Mu
}

// Listen makes l a listener of the device. It calls bind, which must begin to listen and set l.At.
// When the listener ends, onEnd is called. Adapter.Mu is not held during the calls of bind and
// onEnd.
func (d *Device) Listen(l *Listener, on func(fabric.Request), bind func() error, onEnd func()) error {
	const op = "listen"
	if on == nil {
		return Invalid(op, "no handler")
	}
	if err := d.admit(op, Listeners); err != nil {
		return err
	}
	l.dev, l.on, l.Ended = d, on, onEnd // before bind, after which a request may come at once
	if err := bind(); err != nil {
		d.release(Listeners)
		return Failed(op, err)
	}
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	d.Listeners[l] = struct{}{}
	return nil
}

func (l *Listener) Addr() netip.AddrPort { return l.At }

func (l *Listener) Close() error {
	d := l.dev
	d.HW.Mu.Lock()
	if l.closed {
		d.HW.Mu.Unlock()
		return Failed("close listener", fabric.ErrClosed)
	}
	l.closed = true
	delete(d.Listeners, l)
	d.drop(Listeners)
	d.HW.Mu.Unlock()
	l.Ended()
	return nil
}
