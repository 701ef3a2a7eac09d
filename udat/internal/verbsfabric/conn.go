package verbsfabric

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// conn is one connection or connection attempt, until its id is destroyed.
type conn struct {
	dev    *device
	id     *cverbs.CMID
	qp     *qp // nil until accepted
	active bool
	on     func(fabric.ConnEvent)

	mu            sync.Mutex // held during the calls that move the connection, never during a handler
	state         connState
	closed        bool // the owner wants to hear no more
	destroyed     bool // the id is gone, or goes when calling is over
	calling       bool // a call on the id that may take long is under way
	ports         int  // active: local ports that were in use
	lost          error
	private       []byte                  // active: for the request
	pinger        *pinger                 // nil: it has not asked
	onPong        func(fabric.PingAnswer) // its question, if that waits; guarded by pingMu
	pingPort      uint16                  // of the peer's listener for pings; 0: it has told none
	peerQPN       uint32
	told          bool  // passive: the peer has said how long its private data is, and understands how long ours is
	in, out       uint8 // read depths, as offered and then as agreed
	local, remote netip.AddrPort
}

func (d *device) addConn(c *conn) {
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
}

// allConns returns the connections that their owners have not closed.
func (d *device) allConns() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.conns))
}

// handle runs the state machine on the event goroutine.
func (c *conn) handle(ev cverbs.CMEvent) {
	c.mu.Lock()
	var out []fabric.ConnEvent
	former := ev.ID != nil && ev.ID != c.id // see anotherPort
	if int(ev.Type) < numEvents && !c.destroyed && !former {
		out = c.act(table[c.state][ev.Type], ev)
	}
	c.mu.Unlock()
	for _, e := range out {
		c.tell(e)
	}
}

func (c *conn) act(a action, ev cverbs.CMEvent) []fabric.ConnEvent {
	switch a {
	case actRoute:
		c.local = c.id.LocalAddr()
		if dev, num := c.id.Device(), c.id.Port(); dev != c.dev.device || num != c.dev.num {
			return c.end(fabric.EventUnreachable, fmt.Errorf("verbs: the way to %v goes through %s/%d, not %s/%d",
				c.remote, dev, num, c.dev.device, c.dev.num))
		}
		if err := c.id.ResolveRoute(c.dev.opts.CMWait); err != nil {
			return c.end(fabric.EventUnreachable, err)
		}
		c.state = stRoute
	case actRequest:
		c.state = stRequested
		if c.dev.iwarp {
			c.requestLater()
			break
		}
		err := c.dev.tellOptions(c.id, c.private)
		if err == nil {
			err = c.id.Connect(c.param(c.private))
		}
		if err != nil {
			return c.end(connectFailure(err))
		}
	case actReply:
		return c.reply(ev)
	case actUp:
		return c.up(ev)
	case actUpAndLeft:
		return append(c.up(ev), c.peerLeft(ev)...)
	case actUnreachable:
		return c.end(fabric.EventUnreachable, ev.Err())
	case actRejected:
		e := fabric.ConnEvent{Kind: fabric.EventRejected, Err: ev.Err()}
		var byConsumer bool
		e.Private, e.Padded, byConsumer = unpackReject(ev.PrivateData, c.dev.iwarp)
		if byConsumer && isConsumerReject(ev.Status) {
			e.Kind = fabric.EventPeerRejected
		}
		return c.endWith(e)
	case actRefused:
		return c.end(fabric.EventRejected, ev.Err())
	case actFailed:
		return c.end(fabric.EventFailed, cmError(ev))
	case actLost:
		c.lost = cmError(ev)
		c.state = stLost
		if ev.Type == cverbs.CMEventDeviceRemoval {
			c.destroy() // the kernel waits for it
		}
	case actPeerLeft:
		return c.peerLeft(ev)
	case actOver:
		c.state = stOver
		if c.closed {
			c.dev.unretire(c)
			c.destroy()
		}
		return []fabric.ConnEvent{{Kind: fabric.EventDisconnected, Err: ev.Err()}}
	case actRemoved:
		told := c.state >= stPeerLeft
		if c.closed {
			c.dev.unretire(c)
		}
		c.state = stOver
		c.destroy()
		if !told {
			return []fabric.ConnEvent{{Kind: fabric.EventRemoved, Err: cmError(ev)}}
		}
	case actIgnore:
	}
	return nil
}

// later makes a call on the id that may take long, from a goroutine. Then it hands the result on
// under the lock, unless the id is to be destroyed. The caller holds the lock.
func (c *conn) later(call func() error, then func(err error)) {
	c.calling = true
	c.dev.calls.Go(func() {
		err := call()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calling = false
		if c.destroyed {
			c.dev.destroyID(c.id)
		} else {
			then(err)
		}
	})
}

// param returns the parameters that this end proposes.
func (c *conn) param(private []byte) cverbs.ConnParam {
	return cverbs.ConnParam{
		PrivateData:        private,
		ResponderResources: c.in,
		InitiatorDepth:     c.out,
		FlowControl:        true,
		RetryCount:         c.dev.opts.Retry,
		RNRRetryCount:      c.dev.opts.RNRRetry,
		QPNum:              c.qp.v.Num(),
	}
}

// reply completes the handshake at the active end.
func (c *conn) reply(ev cverbs.CMEvent) []fabric.ConnEvent {
	c.in, c.out = min(c.in, ev.ResponderResources), min(c.out, ev.InitiatorDepth)
	c.peerQPN = ev.QPNum
	_, err := c.qp.connect(c.id, c.in, c.out)
	if err == nil {
		err = c.id.Establish()
	}
	if err != nil {
		c.id.Reject(nil)
		return c.end(fabric.EventFailed, err)
	}
	return c.up(ev)
}

// up reports that data can flow.
func (c *conn) up(ev cverbs.CMEvent) []fabric.ConnEvent {
	c.state = stUp
	if c.dev.iwarp {
		c.qp.connected()
	}
	e := fabric.ConnEvent{Kind: fabric.EventEstablished}
	if c.active {
		if ev.Type == cverbs.CMEventEstablished {
			// iWARP drivers speak of their own end here, not of the peer's.
			c.in, c.out = min(c.in, ev.InitiatorDepth), min(c.out, ev.ResponderResources)
		}
		n, port := c.dev.toldOptions(c.id)
		e.Private, e.Padded = unpack(ev.PrivateData, n, c.dev.iwarp)
		c.pingPort = port
	}
	return []fabric.ConnEvent{e}
}

func (c *conn) peerLeft(ev cverbs.CMEvent) []fabric.ConnEvent {
	c.state = stPeerLeft
	return []fabric.ConnEvent{{Kind: fabric.EventDisconnected, Err: ev.Err()}}
}

// end finishes an attempt: it destroys the id, and frees the queue pair if it is still in INIT.
func (c *conn) end(kind fabric.ConnEventKind, cause error) []fabric.ConnEvent {
	return c.endWith(fabric.ConnEvent{Kind: kind, Err: cause})
}

func (c *conn) endWith(e fabric.ConnEvent) []fabric.ConnEvent {
	c.state = stOver
	c.qp.unclaim()
	c.destroy()
	return []fabric.ConnEvent{e}
}

// destroy ends the id. The caller holds the lock.
func (c *conn) destroy() {
	if !c.destroyed {
		c.destroyed = true
		c.endPings()
		if !c.calling {
			c.dev.destroyID(c.id)
		}
	}
}

// drop destroys the id of a connection without an owner.
func (c *conn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = stOver
	c.destroy()
}

func (c *conn) tell(e fabric.ConnEvent) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if !closed {
		c.on(e)
	}
}

func (c *conn) tellLater(e fabric.ConnEvent) { c.dev.post(func() { c.tell(e) }) }

// commEst handles data that arrived before the last message of the handshake: the connection is
// established.
func (c *conn) commEst() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == stAccepted && !c.destroyed {
		c.id.Notify(cverbs.AsyncCommEst) // a failure means that the handshake has just completed by itself
	}
}

func (c *conn) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

func (c *conn) RemoteAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remote
}

func (c *conn) ReadDepths() (in, out uint8) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in, c.out
}

// Awaits returns what an attempt waits for.
func (c *conn) Awaits() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case stAddr:
		return "the hardware address of " + c.remote.Addr().String() + " (ARP or neighbour discovery)"
	case stRoute:
		return "the route to " + c.remote.Addr().String()
	case stRequested:
		return "the answer to the connection request"
	case stAccepted:
		return "the peer's confirmation of the accept"
	}
	return ""
}

// Disconnect moves the queue pair to error and notifies the peer, or answers it. A disconnect that
// began here ends with EventDisconnected when the peer has answered; a pending attempt ends with
// EventFailed.
func (c *conn) Disconnect() error {
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
func (c *conn) leave() error {
	var next connState
	switch c.state {
	case stUp:
		next = stLeaving
	case stPeerLeft:
		next = stOver
	default:
		return nil
	}
	c.endPings()
	// The queue pair first: from here on everything posted is flushed. One that has been closed
	// needs no flush.
	err := ignoreClosed(c.qp.SetError())
	if c.dev.noRoute(c.id) {
		c.later(func() error { c.dev.awaitRoute(c.id); return nil }, func(error) { c.id.Disconnect() })
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

// Close releases the connection. The id of an established one lingers until the peer has answered,
// or for lingerTime.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fabric.ErrClosed
	}
	c.closed = true
	d := c.dev
	err := c.leave()
	switch c.state {
	case stLeaving:
		d.retire(c)
	case stAccepted:
		err = ignoreClosed(c.qp.SetError())
		c.destroy()
	default:
		c.qp.unclaim()
		c.destroy()
	}
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
	d.release()
	return err
}

// isConsumerReject reports whether a reject may come from the peer's consumer: reason 28 of
// InfiniBand, or the errno of every refusal on iWARP.
func isConsumerReject(status int) bool { return status == cverbs.RejectConsumerDefined || status < 0 }

// cmError describes an event, also one without a status.
func cmError(ev cverbs.CMEvent) error {
	if err := ev.Err(); err != nil {
		return err
	}
	return fmt.Errorf("verbs: rdma_cm %s", ev.Type)
}
