package cm

import (
	"bytes"
	"fmt"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// This file has the state machine of a connection.

// Handle runs the state machine for an event. It is called on the event goroutine.
func (c *Conn) Handle(ev cverbs.CMEvent) {
	c.mu.Lock()
	var out []fabric.ConnEvent
	former := ev.ID != nil && ev.ID != c.id // the event is of an id that anotherPort has replaced
	if int(ev.Type) < numEvents && !c.destroyed && !former {
		out = c.act(table[c.state][ev.Type], ev)
	}
	c.mu.Unlock()
	for _, e := range out {
		c.tell(e)
	}
}

func (c *Conn) act(a action, ev cverbs.CMEvent) []fabric.ConnEvent {
	switch a {
	case actRoute:
		c.local = c.id.LocalAddr()
		if dev, num := c.id.Device(), c.id.Port(); dev != c.m.port.Device || num != c.m.port.Num {
			return c.end(fabric.EventUnreachable, fmt.Errorf("verbs: the way to %v goes through %s/%d, not %s/%d",
				c.remote, dev, num, c.m.port.Device, c.m.port.Num))
		}
		if err := c.id.ResolveRoute(c.m.port.Options.CMWait); err != nil {
			return c.end(fabric.EventUnreachable, err)
		}
		c.state = stRoute
	case actRequest:
		c.state = stRequested
		if c.m.port.IWARP {
			c.requestLater()
			break
		}
		err := tellLength(c.id, c.m.port.IWARP, c.private)
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
		e.Private, e.Padded, byConsumer = unpackReject(ev.PrivateData, c.m.port.IWARP)
		if byConsumer && isConsumerReject(ev.Status) {
			e.Kind = fabric.EventPeerRejected
		} else if ev.Status == cverbs.RejectConsumerDefined && len(bytes.Trim(e.Private, "\x00")) == 0 {
			e.Err = fmt.Errorf("%w: the listener's queue is full, or its program refuses: %w", e.Err, syscall.EAGAIN)
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
			c.destroy() // the kernel waits until the id is destroyed
		}
	case actPeerLeft:
		return c.peerLeft(ev)
	case actOver:
		c.state = stOver
		if c.closed {
			c.m.unretire(c)
			c.destroy()
		}
		return []fabric.ConnEvent{{Kind: fabric.EventDisconnected, Err: ev.Err()}}
	case actRemoved:
		told := c.state >= stPeerLeft
		if c.closed {
			c.m.unretire(c)
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

// reply completes the handshake at the active end.
func (c *Conn) reply(ev cverbs.CMEvent) []fabric.ConnEvent {
	c.in, c.out = min(c.in, ev.ResponderResources), min(c.out, ev.InitiatorDepth)
	_, err := c.qp.Connect(c.id, c.in, c.out)
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
func (c *Conn) up(ev cverbs.CMEvent) []fabric.ConnEvent {
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

func (c *Conn) peerLeft(ev cverbs.CMEvent) []fabric.ConnEvent {
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
