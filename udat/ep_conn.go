package udat

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// The completion of flushed work may come before the completion of the failed request or receive
// that caused the flush, if the failed work is on the other queue of the queue pair. If no failed
// work explains the flush within suspectGrace, the connection is broken: the device refused what
// the peer did, or the link is down. iWARP devices also flush when the peer disconnects, and report
// the disconnect only later. Therefore the time for iWARP is suspectGraceIWARP.
const (
	suspectGrace      = 50 * time.Millisecond
	suspectGraceIWARP = time.Second
)

var errFlushed = errors.New("the device has flushed what was posted and names no reason: " +
	"the link is down, or an address or the peer has gone")

var errNoReason = errors.New("the device names no reason")

// handler returns the handler for the fabric's events of a connection.
func (ep *EP) handler(c *connection) func(fabric.ConnEvent) {
	return func(ev fabric.ConnEvent) { ep.happened(c, causeOf[ev.Kind], ev) }
}

// happened applies a cause that is not a call of the Consumer, such as an event of the fabric; see
// advance. It does nothing if c is no longer the endpoint's connection.
func (ep *EP) happened(c *connection, why epCause, told fabric.ConnEvent) {
	if why == causePeerLeft {
		requests, recvs := ep.sources() // first, because an error of failed work says more than the peer's disconnect
		recvs.evd.poll()
		requests.evd.poll()
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if c != nil && ep.conn.Load() == c {
		ep.advance("ep", why, told)
	}
}

// advance applies a cause to the state, with all consequences for the connection; ep.mu is held.
// The parameter ev is the fabric's event. If the cause is not an event of the fabric, ev is zero or
// contains only an error. If the cause is a call that the state does not allow, advance returns
// InvalidState.
func (ep *EP) advance(op string, why epCause, ev fabric.ConnEvent) error {
	t, err := ep.transition(op, why)
	if err != nil || t.effect != effectMoves {
		return err
	}
	switch t.next {
	case EPConnected:
		ep.enterConnected(t.event, ev)
	case EPDisconnectPending:
		ep.apply(op, why, nil)
		if !ep.finishDrain() {
			ep.watch(ep.finishDrain)
		}
	case epFlushing:
		ep.flush(why, t.event, ev)
	}
	return nil
}

var errAboveHard = errors.New("the endpoint holds more receives than its hard watermark allows")

// breakConnection breaks the connection, if there is one, and reports cause as the reason; ep.mu is
// held.
func (ep *EP) breakConnection(cause error) {
	if ep.conn.Load() != nil {
		ep.advance("ep", causeBroken, fabric.ConnEvent{Err: cause})
	}
}

// enterConnected moves the endpoint to CONNECTED. If one dispatcher receives both connection events
// and receive completions, the ESTABLISHED event precedes all completions of the connection.
func (ep *EP) enterConnected(event EventNumber, told fabric.ConnEvent) {
	ep.stopTimers()
	_, readOut := ep.conn.Load().conn.ReadDepths()
	ep.apply("ep", causeEstablished, func() error {
		ep.requests.readOut = min(int(readOut), ep.attr.MaxRDMAReadOut)
		return nil
	})
	ep.recvs.source.releaseDeferredAfter(ep.connectEVD, &Event{
		Number: event, EP: ep, conn: &connectionData{private: told.Private, padded: told.Padded},
	})
	if ep.aboveHard() {
		ep.breakConnection(errAboveHard)
	}
}

// finishDrain ends the connection and returns true if all requests of a graceful disconnect have
// completed. Otherwise it only returns false; ep.mu is held.
func (ep *EP) finishDrain() (done bool) {
	ep.drainBoth()
	if ep.requests.inFlight() > 0 {
		return false
	}
	why := causeDrained
	if ep.conn.Load().failed.Load() != nil {
		why = causeBroken // the requests have been flushed, not executed
	}
	ep.advance("ep", why, fabric.ConnEvent{})
	return true
}

// flush moves the endpoint to FLUSHING: the device flushes all work in flight. The last event of
// the connection is queued when all work that was posted before the flush has completed.
func (ep *EP) flush(why epCause, event EventNumber, told fabric.ConnEvent) {
	ep.stopTimers()
	was := ep.exactState()
	c := ep.conn.Load()
	data := &connectionData{failure: ep.whyNot(c, event, told)}
	if event == EventConnectionPeerRejected || event == EventConnectionNonPeerRejected && why == causeRejected {
		data.private, data.padded = told.Private, told.Padded
	}
	c.disconnectEvent = &Event{Number: event, EP: ep, conn: data}
	c.peerLeft = why == causePeerLeft
	ep.apply("ep", why, func() error {
		ep.requests.qp.SetError() // the device flushes later posts too
		c.requests = ep.requests.inflight.tail
		return nil
	})
	if was == EPConnected || was == EPDisconnectPending {
		c.conn.Disconnect()
	} else {
		c.conn.Close()
		c.conn = nil
	}
	ep.deactivate(c)
	ep.recvs.source.releaseDeferred()
	ep.recvs.mu.Lock()
	c.recvs = ep.recvs.inflight.tail
	ep.recvs.mu.Unlock()
	c.ended = time.Now()
	if !ep.postDisconnect() {
		ep.watch(ep.postDisconnect)
	}
}

// postDisconnect moves an endpoint in FLUSHING to DISCONNECTED and queues the last event of the
// connection. It does so only if all work that was posted before the end of the connection has
// completed, or if flushWait has passed. Otherwise it returns false, and must be called again;
// ep.mu is held.
func (ep *EP) postDisconnect() (done bool) {
	c := ep.conn.Load()
	if ep.exactState() != epFlushing {
		return true
	}
	taking := ep.takesShared() // first, so that the completions of taken receives are drained
	ep.drainBoth()
	flushed := !taking && ep.requests.inflight.done(c.requests) && ep.recvs.inflight.done(c.recvs)
	if !flushed && time.Now().Before(c.ended.Add(flushWait)) {
		return false
	}
	if c.peerLeft && c.failed.Load() != nil {
		c.disconnectEvent.Number = EventConnectionBroken
		c.disconnectEvent.conn.failure = ep.whyNot(c, EventConnectionBroken, fabric.ConnEvent{})
	}
	ep.apply("ep", causeFlushed, nil)
	ep.connectEVD.post(c.disconnectEvent)
	c.disconnectEvent = nil
	return true
}

// watch makes the flusher call step, with ep.mu held, until step returns true. The calls stop
// earlier if the endpoint loses the connection that it had when watch was called.
func (ep *EP) watch(step func() (done bool)) {
	c := ep.conn.Load()
	ep.obj.ia.flusher.watch(func() bool {
		if !ep.mu.TryLock() {
			return false // Reset may hold ep.mu for a long time
		}
		defer ep.mu.Unlock()
		return ep.conn.Load() != c || step()
	})
}

// report breaks the connection whose work has failed. If the work was flushed for an unknown
// reason, the connection breaks after suspectGrace. No lock of a dispatcher or an endpoint is held.
func (f workFailure) report() {
	ep := f.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	c := ep.conn.Load()
	switch {
	case c != f.conn || c == nil:
	case f.status != fabric.StatusFlush:
		ep.advance("ep", causeBroken, fabric.ConnEvent{Err: f.cause()})
	case c.suspected == nil:
		grace := suspectGrace
		if !ep.obj.ia.device.Attr().Acknowledged {
			grace = suspectGraceIWARP
		}
		c.suspected = time.AfterFunc(grace, func() { ep.happened(c, causeBroken, fabric.ConnEvent{Err: errFlushed}) })
	}
}

// Reset moves a DISCONNECTED endpoint to UNCONNECTED, so that it can connect again with the same
// attributes, dispatchers and zone. It first waits, for a limited time, until the events of all
// flushed work are queued. In UNCONNECTED it does nothing, and posted receives stay posted. In any
// other state it returns InvalidState.
//
// Implements: dat_ep_reset.
func (ep *EP) Reset() error {
	const op = "ep_reset"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	for {
		pollUntil(time.Now().Add(flushWait), ep.flushed)
		if waits, err := ep.reset(op); !waits {
			return err
		}
	}
}

// flushed reports whether Reset can go on without a wait: the last event is queued and all work has
// completed, or the state is not DISCONNECTED.
func (ep *EP) flushed() bool {
	if ep.getState() != EPDisconnected {
		return true
	}
	ep.mu.Lock()
	done := ep.postDisconnect()
	ep.mu.Unlock()
	ep.drainBoth()
	return done && ep.requests.inFlight() == 0 && ep.recvs.inFlight() == 0
}

// reset is Reset without the wait. If waits is true, the caller must wait and call reset again.
func (ep *EP) reset(op string) (waits bool, err error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	t, err := ep.transition(op, callReset)
	if err != nil || t.effect != effectMoves {
		return t.effect == effectAwaits, err
	}
	ep.dropConnection()
	return false, ep.apply(op, callReset, func() error { return ep.renewQP(op) })
}

// renewQP replaces the queue pair; ep.mu and the lock of the requests are held. Work may have been
// posted after Reset found the queues empty. renewQP first waits until this work is flushed, while
// the locks stop further posts. This wait has its own limit, flushWait, because concurrent posts
// may have used up the limit of the wait in Reset.
func (ep *EP) renewQP(op string) error {
	ep.recvs.mu.Lock()
	defer ep.recvs.mu.Unlock()
	requests, recvs := ep.requests.source, ep.recvs.source
	pollUntil(time.Now().Add(flushWait), func() bool {
		ep.requests.flushTail()
		requests.evd.poll()
		recvs.evd.poll()
		return requests.inflight.count() == 0 && recvs.inflight.count() == 0
	})
	old := ep.requests.qp
	if err := ep.newQP(op); err != nil {
		return err
	}
	ep.closeQP(old)
	ep.clearWork()
	return nil
}

// clearWork forgets all work in flight; the locks of both queues are held.
func (ep *EP) clearWork() {
	ep.requests.suppressed, ep.requests.marked, ep.requests.fenced = 0, false, false
	ep.recvs.source.forget()
	forgetBinds(ep.requests.inflight, ep.requests.source.forget())
}

// dropConnection ends the endpoint's connection, or the attempt to connect, without an event; ep.mu
// is held.
func (ep *EP) dropConnection() {
	ep.stopTimers()
	c := ep.conn.Load()
	if c == nil {
		return
	}
	ep.conn.Store(nil)
	ep.deactivate(c)
	if c.conn != nil {
		c.conn.Close()
	}
}

// deactivate subtracts a connection that has ended from the counts of the adapter and the
// dispatchers; ep.mu is held.
func (ep *EP) deactivate(c *connection) {
	if c.active {
		c.active = false
		ep.requests.source.addConnected(-1)
		ep.recvs.source.addConnected(-1)
		ep.obj.ia.deactivate()
	}
}

// stopTimers stops the timers of an attempt to connect, which is over; ep.mu is held.
func (ep *EP) stopTimers() {
	c, ia := ep.conn.Load(), ep.obj.ia
	ia.mu.Lock()
	delete(ia.unconfirmed, c)
	ia.mu.Unlock()
	if c != nil && c.notice != nil {
		c.notice.Stop()
	}
	if ep.timer != nil {
		ep.timer.Stop()
		ep.timer = nil
	}
}

// workFailure is a failure of work that was posted on a connection of an endpoint.
type workFailure struct {
	ep     *EP
	conn   *connection
	status fabric.Status
}

// cause returns the error that the BROKEN event reports.
func (f workFailure) cause() error {
	if f.status == fabric.StatusRetryExceeded {
		return fmt.Errorf("the peer's device does not answer: %w", syscall.ETIMEDOUT)
	}
	return fmt.Errorf("work has failed: %v", f.status)
}

// noticeAfter is the time after which a pending attempt to connect is logged.
const noticeAfter = 2 * time.Second

// announce logs that an attempt to connect is still pending.
func (ep *EP) announce(c *connection) {
	ep.mu.Lock()
	pending := ep.conn.Load() == c && ep.getState() == EPActiveConnectionPending
	var awaits, reach string
	var to any
	if pending {
		awaits, reach = ep.awaits(c)
		to = c.conn.RemoteAddr()
	}
	ep.mu.Unlock()
	if pending {
		ep.obj.ia.log.Info("udat: still connecting", "remote", to, "from", ep.obj.ia.name, "after",
			time.Since(c.began).Round(time.Millisecond).String(),
			"awaits", awaits, "look_at", reach)
	}
}

// awaits describes a pending attempt to connect. The first result says what the attempt waits for.
// The second result says what the user should check between the hosts; it is empty if the peer's
// host has answered.
func (ep *EP) awaits(c *connection) (what, reach string) {
	what, reached := c.conn.Awaits()
	if reached {
		return what, ""
	}
	return what, ep.obj.ia.device.Attr().Reach
}

// whyNot returns the error that [Event.Err] reports for the connection's last event, or nil if it
// reports none. The parameter event is the number of the last event. If the connection is broken
// and ev contains no reason, the reason is the first failure of work on the connection. ep.mu is
// held.
func (ep *EP) whyNot(c *connection, event EventNumber, ev fabric.ConnEvent) error {
	if event == EventConnectionBroken && ev.Err == nil {
		ev.Err = errNoReason
		if failed := c.failed.Load(); failed != nil {
			ev.Err = *failed
		}
	}
	if c.conn == nil || event == EventConnectionDisconnected || ev.Err == nil && event != EventConnectionTimedOut {
		return nil
	}
	remote, after := c.conn.RemoteAddr(), time.Since(c.began).Round(time.Millisecond)
	awaits, reach := ep.awaits(c)
	if errors.Is(ev.Err, fabric.ErrResources) || errors.Is(ev.Err, fabric.ErrAddrInvalid) ||
		errors.Is(ev.Err, fabric.ErrNoPort) {
		reach = "" // the cause is on this host, not between the hosts
	}
	if reach != "" {
		reach = "; look at: " + reach
	}
	e := &connectError{cause: ev.Err}
	switch event {
	case EventConnectionTimedOut:
		e.cause = &Error{Op: "ep_connect", Type: TimeoutExpired}
		e.text = fmt.Sprintf("udat: no connection to %v within the call's timeout, after %v: it awaited %s%s", remote,
			after, awaits, reach)
	case EventConnectionUnreachable:
		e.text = fmt.Sprintf("udat: no connection to %v after %v: %v%s", remote, after, ev.Err, reach)
	case EventConnectionBroken:
		e.text = fmt.Sprintf("udat: the connection to %v is broken: %v", remote, ev.Err)
	default:
		e.text = fmt.Sprintf("udat: no connection to %v: %v", remote, ev.Err)
	}
	return e
}
