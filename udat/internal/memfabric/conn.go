package memfabric

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// handshakeLimit bounds how long an end waits for the other to answer, as a CM's retries do.
const handshakeLimit = 64 * time.Second

type connState uint8

const (
	connecting  connState = iota // request sent
	accepting                    // reply sent
	established                  // also after one end has left
	over                         // its last event has been told
	forgotten                    // Close
)

var (
	errNobody  = errors.New("mem0: nobody listens on the port in this process, and mem0 reaches no other")
	errNoHost  = errors.New("mem0: the address is not its own, and it reaches no other: open an RDMA device")
	errSilence = errors.New("mem0: the other end does not answer")
	errLeft    = errors.New("mem0: disconnected before it was established")
	errGivenUp = errors.New("mem0: the other end has given up")
)

// conn is one end of a connection. Its state is guarded by Fabric.mu; handlers are called by the
// dispatcher.
type conn struct {
	dev           *Device
	qp            *qp
	on            func(fabric.ConnEvent)
	local, remote netip.AddrPort
	state         connState
	left          bool // this end has disconnected
	claims        bool // it holds the claim on qp
	in, out       uint8
	peer          *conn
	timer         *time.Timer
}

// send passes a message of connection management to another device, or loses it where a fault says
// so.
func (d *Device) send(m Message, to *Device, arrive func()) {
	if n := &d.faults.lose[m]; *n > 0 {
		*n--
		return
	}
	if d.faults.silent() {
		return
	}
	at := &to.events
	if to.closed {
		at = &d.events // what arrives where nobody is any more is turned away, by the state of the connection there
	}
	at.addMessage(d.faults.Delayed(), func() {
		if !to.faults.silent() {
			arrive()
		}
	})
}

// newConn makes one end, which claims the queue pair; f.mu is held.
func (d *Device) newConn(op string, fq fabric.QP, private []byte, most int, on func(fabric.ConnEvent)) (*conn, error) {
	if err := d.usable(op); err != nil {
		return nil, err
	}
	q, _ := fq.(*qp)
	switch {
	case q == nil || q.dev != d:
		return nil, invalid(op, "no queue pair of this device")
	case on == nil:
		return nil, invalid(op, "no handler")
	case len(private) > most:
		return nil, invalid(op, "private data of %d bytes is above the limit %d", len(private), most)
	case q.closed:
		return nil, failed(op+": queue pair", fabric.ErrClosed)
	case q.claimed || !q.is(qpInit):
		return nil, failed(op, fabric.ErrQPState)
	}
	if err := d.take(op, Conns); err != nil {
		return nil, err
	}
	q.claimed = true
	c := &conn{dev: d, qp: q, on: on, claims: true}
	d.conns[c] = struct{}{}
	return c, nil
}

// drop forgets the connection and, where it has never been used, leaves the queue pair to another
// attempt.
func (c *conn) drop() {
	c.end(forgotten)
	delete(c.dev.conns, c)
	c.dev.count[Conns]--
}

// end moves to a last state; f.mu is held.
func (c *conn) end(s connState) {
	c.state = s
	c.settle()
	if c.claims && c.qp.is(qpInit) {
		c.claims, c.qp.claimed = false, false
	}
}

// settle stops the wait for the other end.
func (c *conn) settle() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// tell queues the event of a change of state that has just been made; f.mu is held.
func (c *conn) tell(ev fabric.ConnEvent) {
	c.dev.events.add(0, func() { c.deliver(ev) })
}

// deliver calls the handler, in the dispatcher, unless the connection has been closed.
func (c *conn) deliver(ev fabric.ConnEvent) {
	c.dev.f.mu.Lock()
	gone := c.state == forgotten
	c.dev.f.mu.Unlock()
	if !gone {
		c.on(ev)
	}
}

// expire bounds the wait for the other end; f.mu is held.
func (c *conn) expire(kind fabric.ConnEventKind) {
	waiting := c.state
	c.timer = time.AfterFunc(handshakeLimit, func() {
		c.dev.f.mu.Lock()
		defer c.dev.f.mu.Unlock()
		if c.state == waiting {
			c.end(over)
			c.tell(fabric.ConnEvent{Kind: kind, Err: errSilence})
		}
	})
}

// Connect starts a connection to one of the fabric's addresses.
func (d *Device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	const op = "connect"
	a := &d.f.attr
	to := p.Remote.Addr().Unmap()
	switch {
	case !to.IsValid() || p.Remote.Port() == 0:
		return nil, failed(op+" to "+p.Remote.String(), fabric.ErrAddrInvalid)
	case int(p.ReadIn) > a.MaxReadIn || int(p.ReadOut) > a.MaxReadOut:
		return nil, invalid(op, "read depths %d and %d are above the limits %d and %d",
			p.ReadIn, p.ReadOut, a.MaxReadIn, a.MaxReadOut)
	}
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := d.newConn(op, q, p.Private, a.MaxConnData, on)
	if err != nil {
		return nil, err
	}
	c.in, c.out = p.ReadIn, p.ReadOut
	c.local = netip.AddrPortFrom(to, f.freePort())
	c.remote = netip.AddrPortFrom(to, p.Remote.Port())
	if to != addr4 && to != addr6 {
		c.local = netip.AddrPortFrom(addr4, c.local.Port())
		c.end(over)
		c.tell(fabric.ConnEvent{Kind: fabric.EventUnreachable, Err: errNoHost})
		return c, nil
	}
	c.expire(fabric.EventUnreachable)
	l := f.listeners[p.Remote.Port()]
	if l == nil {
		c.turnDown(d, fabric.ConnEvent{Kind: fabric.EventRejected, Err: errNobody})
		return c, nil
	}
	r := &request{lis: l, from: c, private: slices.Clone(p.Private), in: p.ReadOut, out: p.ReadIn}
	d.send(MsgRequest, l.dev, r.arrive)
	return c, nil
}

// turnDown sends a reject to c; f.mu is held.
func (c *conn) turnDown(by *Device, ev fabric.ConnEvent) {
	by.send(MsgReject, c.dev, func() { c.fail(connecting, ev) })
}

// fail ends an attempt that is still in state s, in the dispatcher.
func (c *conn) fail(s connState, ev fabric.ConnEvent) {
	c.dev.f.mu.Lock()
	hit := c.state == s
	if hit {
		c.end(over)
	}
	c.dev.f.mu.Unlock()
	if hit {
		c.deliver(ev)
	}
}

// Ping is answered unless a fault has taken one of the devices, or the path.
func (c *conn) Ping(on func(fabric.PingAnswer)) {
	c.dev.f.mu.Lock()
	p, answer := c.peer, fabric.PingAlive
	answered := p != nil && !c.dev.faults.silent() && !p.dev.faults.silent() && !c.qp.cut.Load() && !p.qp.cut.Load()
	if answered && (p.left || p.state >= over) {
		answer = fabric.PingGone
	}
	c.dev.f.mu.Unlock()
	if answered {
		on(answer)
	}
}

// replied takes the reply of p, which has accepted, in the dispatcher of the active end.
func (c *conn) replied(p *conn, private []byte) {
	f := c.dev.f
	f.mu.Lock()
	in, out := min(c.in, p.out), min(c.out, p.in)
	if c.state != connecting || !c.qp.connect(p.qp, in, out) {
		c.dev.send(MsgReject, p.dev, func() {
			p.fail(accepting, fabric.ConnEvent{Kind: fabric.EventFailed, Err: errGivenUp})
		})
		f.mu.Unlock()
		c.fail(connecting, fabric.ConnEvent{Kind: fabric.EventFailed, Err: failed("connect", fabric.ErrQPState)})
		return
	}
	c.state, c.peer, c.in, c.out = established, p, in, out
	c.settle()
	c.dev.send(MsgReady, p.dev, p.ready)
	f.mu.Unlock()
	c.deliver(fabric.ConnEvent{Kind: fabric.EventEstablished, Private: private})
}

// ready takes the last message of the handshake, in the dispatcher of the passive end.
func (c *conn) ready() {
	c.dev.f.mu.Lock()
	hit := c.state == accepting
	if hit {
		c.state = established
		c.settle()
	}
	c.dev.f.mu.Unlock()
	if hit {
		c.deliver(fabric.ConnEvent{Kind: fabric.EventEstablished})
	}
}

// peerLeft takes the other end's disconnect, in the dispatcher.
func (c *conn) peerLeft() {
	c.ready() // who leaves had been ready
	c.fail(established, fabric.ConnEvent{Kind: fabric.EventDisconnected})
}

// removed tells of the removal of the device; f.mu is held.
func (c *conn) removed() {
	if c.state < over {
		c.end(over)
		c.tell(fabric.ConnEvent{Kind: fabric.EventRemoved, Err: fabric.ErrDeviceRemoved})
	}
}

func (c *conn) LocalAddr() netip.AddrPort  { return c.local }
func (c *conn) RemoteAddr() netip.AddrPort { return c.remote }

func (c *conn) Awaits() string { return "the answer to the connection request" }

func (c *conn) ReadDepths() (in, out uint8) {
	c.dev.f.mu.Lock()
	defer c.dev.f.mu.Unlock()
	return c.in, c.out
}

// Disconnect also answers the other end's disconnect: an end that has left hears EventDisconnected
// when the other follows.
func (c *conn) Disconnect() error {
	c.dev.f.mu.Lock()
	defer c.dev.f.mu.Unlock()
	if c.state == forgotten {
		return failed("disconnect", fabric.ErrClosed)
	}
	c.leave()
	return nil
}

// leave disconnects; f.mu is held.
func (c *conn) leave() {
	c.qp.fail()
	if c.left {
		return
	}
	c.left = true
	if c.state == connecting || c.state == accepting {
		c.end(over)
		c.tell(fabric.ConnEvent{Kind: fabric.EventFailed, Err: errLeft})
	}
	if c.peer != nil {
		c.dev.send(MsgDisconnect, c.peer.dev, c.peer.peerLeft)
	}
}

func (c *conn) Close() error {
	c.dev.f.mu.Lock()
	defer c.dev.f.mu.Unlock()
	if c.state == forgotten {
		return failed("close connection", fabric.ErrClosed)
	}
	if c.state != connecting && c.peer != nil {
		c.leave()
	}
	c.drop()
	return nil
}
