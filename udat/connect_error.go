package udat

import (
	"fmt"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// noticeAfter is how long an attempt to connect lasts before it is logged.
const noticeAfter = 2 * time.Second

// announce logs an attempt to connect that takes long.
func (ep *EP) announce(c *connection) {
	ep.mu.Lock()
	pending := ep.conn.Load() == c && ep.getState() == EPActiveConnectionPending
	var awaits string
	var to any
	if pending {
		awaits, to = c.conn.Awaits(), c.conn.RemoteAddr()
	}
	ep.mu.Unlock()
	if pending {
		ep.obj.ia.log.Info("udat: still connecting", "remote", to, "from", ep.obj.ia.name, "after",
			time.Since(c.began).Round(time.Millisecond).String(),
			"awaits", awaits, "look_at", ep.obj.ia.device.Attr().Reach)
	}
}

// whyNot returns why the attempt or the connection ends with event; ep.mu is held and the
// connection has not been changed yet.
func (ep *EP) whyNot(c *connection, event EventNumber, told fabric.ConnEvent) *connectError {
	if c.conn == nil || event == EventConnectionDisconnected || told.Err == nil && event != EventConnectionTimedOut {
		return nil
	}
	remote, after, reach := c.conn.RemoteAddr(), time.Since(c.began).Round(time.Millisecond), ep.obj.ia.device.Attr().Reach
	if reach != "" {
		reach = "; look at: " + reach
	}
	e := &connectError{cause: told.Err}
	switch event {
	case EventConnectionTimedOut:
		e.cause = &Error{Op: "ep_connect", Type: TimeoutExpired}
		e.text = fmt.Sprintf("udat: no connection to %v within the call's timeout, after %v: it awaited %s%s", remote,
			after, c.conn.Awaits(), reach)
	case EventConnectionUnreachable:
		e.text = fmt.Sprintf("udat: no connection to %v after %v: %v%s", remote, after, told.Err, reach)
	case EventConnectionBroken:
		e.text = fmt.Sprintf("udat: the connection to %v is broken: %v", remote, told.Err)
	default:
		e.text = fmt.Sprintf("udat: no connection to %v: %v", remote, told.Err)
	}
	return e
}
