package cm

import (
	"bytes"
	"fmt"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// This file has the state machine of a connection.

// action handles an event of the connection manager. It moves the connection to its next state, and
// returns the events for the owner. c.mu is held. A nil action ignores the event.
type action func(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent

const numEvents = int(cverbs.CMEventTimewaitExit) + 1

// table has the action for each state and event. The table ignores events of multicast, which never
// come to an id of the TCP port space, and CONNECT_REQUEST, which comes with a new id. It also
// ignores ADDR_CHANGE (a bonding failover), which breaks no connection by itself. The active end
// learns of an accept by CONNECT_RESPONSE on InfiniBand and RoCE, and by ESTABLISHED on iWARP.
var table = [numStates][numEvents]action{
	stAddr: row(events{
		cverbs.CMEventAddrResolved: resolveRoute, cverbs.CMEventAddrError: unreachable,
		cverbs.CMEventRouteError: unreachable, cverbs.CMEventUnreachable: unreachable,
		cverbs.CMEventConnectError: failed, cverbs.CMEventRejected: failed, cverbs.CMEventDisconnected: failed,
	}),
	stRoute: row(events{
		cverbs.CMEventRouteResolved: request, cverbs.CMEventAddrError: unreachable,
		cverbs.CMEventRouteError: unreachable, cverbs.CMEventUnreachable: unreachable,
		cverbs.CMEventConnectError: failed, cverbs.CMEventRejected: failed, cverbs.CMEventDisconnected: failed,
	}),
	stRequested: row(events{
		cverbs.CMEventConnectResponse: reply, cverbs.CMEventEstablished: up, cverbs.CMEventRejected: rejected,
		cverbs.CMEventUnreachable: unreachable, cverbs.CMEventConnectError: refused,
		cverbs.CMEventAddrError: unreachable, cverbs.CMEventRouteError: unreachable,
		cverbs.CMEventDisconnected: failed, cverbs.CMEventTimewaitExit: failed,
	}),
	stArrived: row(events{
		cverbs.CMEventRejected: lost, cverbs.CMEventUnreachable: lost, cverbs.CMEventConnectError: lost,
		cverbs.CMEventDisconnected: lost, cverbs.CMEventTimewaitExit: lost, cverbs.CMEventDeviceRemoval: lost,
	}),
	stLost: row(events{cverbs.CMEventDeviceRemoval: lost}),
	stAccepted: row(events{
		cverbs.CMEventEstablished: up, cverbs.CMEventRejected: failed, cverbs.CMEventUnreachable: failed,
		cverbs.CMEventConnectError: failed, cverbs.CMEventTimewaitExit: failed,
		cverbs.CMEventDisconnected: upAndLeft,
	}),
	stUp: row(events{
		// REJECTED in this state means that the passive end was destroyed before our ready-to-use
		// message reached it.
		cverbs.CMEventDisconnected: peerLeft, cverbs.CMEventRejected: peerLeft, cverbs.CMEventTimewaitExit: peerLeft,
		cverbs.CMEventConnectError: peerLeft, cverbs.CMEventUnreachable: peerLeft,
	}),
	stPeerLeft: row(events{}),
	stLeaving: row(events{
		cverbs.CMEventDisconnected: over, cverbs.CMEventTimewaitExit: over, cverbs.CMEventRejected: over,
		cverbs.CMEventConnectError: over, cverbs.CMEventUnreachable: over,
	}),
	stOver: row(events{}),
}

type events map[cverbs.CMEventType]action

// row returns the actions of a state. The parameter special has the actions for some events. For
// any other event the action is nil, or removed if the event is the device's removal.
func row(special events) (r [numEvents]action) {
	r[cverbs.CMEventDeviceRemoval] = removed
	for ev, act := range special {
		r[ev] = act
	}
	return r
}

// Handle runs the state machine for an event. It is called on the event goroutine.
func (c *Conn) Handle(ev cverbs.CMEvent) {
	c.mu.Lock()
	var out []fabric.ConnEvent
	former := ev.ID != nil && ev.ID != c.id // the event is of an id that anotherPort has replaced
	if int(ev.Type) < numEvents && !c.destroyed && !former {
		if act := table[c.state][ev.Type]; act != nil {
			out = act(c, ev)
		}
	}
	c.mu.Unlock()
	for _, e := range out {
		c.tell(e)
	}
}

func resolveRoute(c *Conn, _ cverbs.CMEvent) []fabric.ConnEvent {
	c.local = c.id.LocalAddr()
	if dev, num := c.id.Device(), c.id.Port(); dev != c.m.port.Device || num != c.m.port.Num {
		return c.end(fabric.EventUnreachable, fmt.Errorf("verbs: the way to %v goes through %s/%d, not %s/%d",
			c.remote, dev, num, c.m.port.Device, c.m.port.Num))
	}
	if err := c.id.ResolveRoute(c.m.port.Options.CMWait); err != nil {
		return c.end(fabric.EventUnreachable, err)
	}
	c.state = stRoute
	return nil
}

// request sends the connection request.
func request(c *Conn, _ cverbs.CMEvent) []fabric.ConnEvent {
	c.state = stRequested
	if c.m.port.IWARP {
		c.requestLater()
		return nil
	}
	err := tellLength(c.id, c.m.port.IWARP, c.private)
	if err == nil {
		err = c.id.Connect(c.param(c.private))
	}
	if err != nil {
		return c.end(connectFailure(err))
	}
	return nil
}

func unreachable(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	return c.end(fabric.EventUnreachable, ev.Err())
}

// rejected reports EventPeerRejected or EventRejected, depending on the marker.
func rejected(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	e := fabric.ConnEvent{Kind: fabric.EventRejected, Err: ev.Err()}
	var byConsumer bool
	e.Private, e.Padded, byConsumer = unpackReject(ev.PrivateData, c.m.port.IWARP)
	if byConsumer && isConsumerReject(ev.Status) {
		e.Kind = fabric.EventPeerRejected
	} else if ev.Status == cverbs.RejectConsumerDefined && len(bytes.Trim(e.Private, "\x00")) == 0 {
		e.Err = fmt.Errorf("%w: the listener's queue is full, or its program refuses: %w", e.Err, syscall.EAGAIN)
	}
	return c.endWith(e)
}

func refused(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	return c.end(fabric.EventRejected, ev.Err())
}

func failed(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	return c.end(fabric.EventFailed, cmError(ev))
}

// lost records that the requester has given up.
func lost(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	c.lost = cmError(ev)
	c.state = stLost
	if ev.Type == cverbs.CMEventDeviceRemoval {
		c.destroy() // the kernel waits until the id is destroyed
	}
	return nil
}

// over ends a connection whose peer has answered this end's disconnect. An id that lingers is
// destroyed.
func over(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	c.state = stOver
	if c.closed {
		c.m.unretire(c)
		c.destroy()
	}
	return []fabric.ConnEvent{{Kind: fabric.EventDisconnected, Err: ev.Err()}}
}

// removed ends a connection whose device is gone.
func removed(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	told := c.state >= stPeerLeft
	if c.closed {
		c.m.unretire(c)
	}
	c.state = stOver
	c.destroy()
	if told {
		return nil
	}
	return []fabric.ConnEvent{{Kind: fabric.EventRemoved, Err: cmError(ev)}}
}

// reply completes the handshake at the active end: it moves the queue pair to RTS and answers the
// peer, which has accepted.
func reply(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	c.in, c.out = min(c.in, ev.ResponderResources), min(c.out, ev.InitiatorDepth)
	_, err := c.qp.Connect(c.id, c.in, c.out)
	if err == nil {
		err = c.id.Establish()
	}
	if err != nil {
		c.id.Reject(nil)
		return c.end(fabric.EventFailed, err)
	}
	return up(c, ev)
}

// up reports that data can flow.
func up(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	c.state = stUp
	if c.m.port.IWARP {
		c.qp.Connected()
	}
	e := fabric.ConnEvent{Kind: fabric.EventEstablished}
	if c.active {
		if ev.Type == cverbs.CMEventEstablished {
			// In this event iWARP drivers report the depths of this end, not those of the peer.
			c.in, c.out = min(c.in, ev.InitiatorDepth), min(c.out, ev.ResponderResources)
		}
		e.Private, e.Padded = unpack(ev.PrivateData, toldLength(c.id, c.m.port.IWARP), c.m.port.IWARP)
	}
	return []fabric.ConnEvent{e}
}

// upAndLeft reports a connection that the peer has already disconnected.
func upAndLeft(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	return append(up(c, ev), peerLeft(c, ev)...)
}

// peerLeft reports the peer's disconnect, which the owner's Disconnect answers.
func peerLeft(c *Conn, ev cverbs.CMEvent) []fabric.ConnEvent {
	c.state = stPeerLeft
	return []fabric.ConnEvent{{Kind: fabric.EventDisconnected, Err: ev.Err()}}
}

// isConsumerReject reports whether a reject may come from the peer's consumer: reason 28 of
// InfiniBand, or the errno of every refusal on iWARP.
func isConsumerReject(status int) bool { return status == cverbs.RejectConsumerDefined || status < 0 }

// cmError returns the error of an event. If the event has no status, the error names the event's
// type.
func cmError(ev cverbs.CMEvent) error {
	if err := ev.Err(); err != nil {
		return err
	}
	return fmt.Errorf("verbs: rdma_cm %s", ev.Type)
}
