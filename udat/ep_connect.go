package udat

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// link is one connection of an endpoint, or one attempt at it. Events of an earlier link are told by it and dropped.
type link struct {
	conn      fabric.Conn
	suspected *time.Timer // runs while work has been flushed for no known reason
	counted   bool        // the adapter's keeper counts it
	began     time.Time
	notice    *time.Timer // reports that connecting takes long

	farewell *Event      // the last event, until it is queued: after the completions of all that was posted
	requests uint32      // before the end, by the queues' tails,
	recvs    uint32      //
	over     time.Time   // since when, zero while it lives: the last event waits for them flushWait at most
	peerLeft bool        // what ended it,
	failed   atomic.Bool // though work had failed by itself: then the peer left because of that
}

// portModulus and portBase map qualifiers above 65535 to ports, as OpenFabrics DAPL does.
const (
	portModulus = 32001
	portBase    = 33534
)

// port is the port that the qualifier stands for.
func (q ConnQual) port(op string, arg Subtype) (uint16, error) {
	switch {
	case q == 0:
		return 0, fail(op, InvalidParameter, arg, "connection qualifier is 0, must be at least 1")
	case q <= 65535:
		return uint16(q), nil
	}
	return uint16(q%portModulus) + portBase, nil
}

// Connect starts to connect to the service point that listens on qual at addr; the outcome comes as exactly one
// event on the connect dispatcher: ESTABLISHED with the acceptor's private data, PEER_REJECTED, NON_PEER_REJECTED,
// UNREACHABLE, or TIMED_OUT when timeout, which must be positive, passes first. All but the first leave the endpoint
// in DISCONNECTED. The endpoint must be UNCONNECTED and have a zone (InvalidState). privateData of at most the
// provider's MaxPrivateDataSize bytes goes to the peer with its connection request. A peer that does not answer is UNREACHABLE
// after the connection manager's patience, also where timeout is longer or [Infinite]: 16 requests, in 103 s, on RoCE with Linux 6.1.
// [Event.Err] says why a connection is none, [WithLogger] after 2 s what is waited for. An address that cannot be used is
// InvalidAddress; a quality of service or flag that is not supported is ModelNotSupported. On an error the endpoint
// stays UNCONNECTED.
//
// Implements: dat_ep_connect.
func (ep *EP) Connect(addr netip.Addr, qual ConnQual, timeout time.Duration, privateData []byte, qos QoS, flags ConnectFlags) error {
	const op = "ep_connect"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	switch {
	case timeout <= 0:
		return fail(op, InvalidParameter, SubArg4, "timeout is %v, must be positive", timeout)
	case qos != QoSBestEffort:
		return fail(op, ModelNotSupported, SubNone, "qos is %d, only QoSBestEffort is supported", qos)
	case flags&^ConnectMultipath != 0:
		return fail(op, InvalidParameter, SubArg8, "flags 0x%x: only ConnectMultipath is known", uint32(flags))
	case flags != 0:
		return fail(op, ModelNotSupported, SubNone, "multipath connections are not supported")
	}
	port, err := qual.port(op, SubArg3)
	if err != nil {
		return err
	}
	if err := checkAddress(op, addr); err != nil {
		return err
	}
	return ep.connect(op, SubArg5, netip.AddrPortFrom(addr, port), timeout, privateData)
}

// checkAddress refuses what can never be a peer.
func checkAddress(op string, addr netip.Addr) error {
	switch {
	case !addr.IsValid() || addr.IsUnspecified():
		return fail(op, InvalidAddress, SubAddressMalformed, "%v is no address of a host", addr)
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fail(op, InvalidAddress, SubAddressUnsupported, "%v is a multicast or broadcast address", addr)
	}
	return nil
}

func (ep *EP) connect(op string, arg Subtype, remote netip.AddrPort, timeout time.Duration, private []byte) error {
	ia := ep.obj.ia
	if err := checkPrivate(op, arg, private, ia.device.Attr().MaxConnData); err != nil {
		return err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if _, err := ep.transition(op, callConnect); err != nil {
		return err
	}
	if ep.requests.qp == nil {
		return ep.notReady(op)
	}
	l := &link{began: time.Now()}
	ep.recvs.source.deferEvents()
	conn, err := ia.device.Connect(ep.requests.qp, fabric.ConnectParams{
		Remote: remote, Private: private,
		ReadIn: uint8(ep.attr.MaxRDMAReadIn), ReadOut: uint8(ep.attr.MaxRDMAReadOut),
	}, ep.handler(l))
	if err != nil {
		ep.recvs.source.releaseDeferred()
		return failAs(op, err, SubResourceMemory)
	}
	ep.begin(l, conn, callConnect)
	if ia.log != nil {
		l.notice = time.AfterFunc(noticeAfter, func() { ep.announce(l) })
	}
	if timeout != Infinite {
		ep.timer = time.AfterFunc(timeout, func() { ep.move(l, causeTimedOut, fabric.ConnEvent{}) })
	}
	return nil
}

// checkPrivate refuses more private data than the adapter carries in that message.
func checkPrivate(op string, arg Subtype, private []byte, limit int) error {
	if len(private) > limit {
		return fail(op, InvalidParameter, arg, "private data has %d bytes, the limit is %d", len(private), limit)
	}
	return nil
}

// begin makes l the endpoint's link; ep.mu is held.
func (ep *EP) begin(l *link, conn fabric.Conn, c cause) {
	l.conn, l.counted = conn, true
	ep.link.Store(l)
	ep.apply("ep", c, nil)
	ep.obj.ia.link()
}

// handler takes the fabric's events of a link.
func (ep *EP) handler(l *link) func(fabric.ConnEvent) {
	return func(ev fabric.ConnEvent) { ep.move(l, causeOf[ev.Kind], ev) }
}

// move drives the state machine, unless the link is no longer the endpoint's.
func (ep *EP) move(l *link, c cause, told fabric.ConnEvent) {
	if c == causePeerLeft {
		requests, recvs := ep.sources() // work that failed before says more than that the peer has left
		recvs.evd.poll()
		requests.evd.poll()
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if l != nil && ep.link.Load() == l {
		ep.advance("ep", c, told)
	}
}

// advance lets a cause happen to a connection, with all that follows; ep.mu is held. told is what the fabric said, if the
// cause is the fabric's. A call that the state does not allow is INVALID_STATE.
func (ep *EP) advance(op string, c cause, told fabric.ConnEvent) error {
	t, err := ep.transition(op, c)
	if err != nil || t.effect != moves {
		return err
	}
	switch t.next {
	case EPConnected:
		ep.established(told)
	case EPDisconnectPending:
		ep.drainRequests()
	case epFlushing:
		ep.disconnected(c, t.event, told)
	}
	return nil
}

// established enters CONNECTED; on one dispatcher the event precedes every completion of the connection.
func (ep *EP) established(told fabric.ConnEvent) {
	ep.stopTimer()
	_, readOut := ep.link.Load().conn.ReadDepths()
	ep.apply("ep", causeEstablished, func() error {
		ep.requests.readOut = min(int(readOut), ep.attr.MaxRDMAReadOut)
		return nil
	})
	ep.recvs.source.releaseDeferredAfter(ep.connectEVD, &Event{
		Number: EventConnectionEstablished, EP: ep, PrivateData: told.Private, PrivateDataPadded: told.Padded,
	})
	if ep.aboveHard() {
		ep.advance("ep", causeBroken, fabric.ConnEvent{})
	}
}

// flushWait bounds how long the device may take to flush the work of a connection that is over.
const flushWait = 5 * time.Second

// disconnected enters FLUSHING: the device flushes all work, and the event follows the completions of what had been posted.
func (ep *EP) disconnected(c cause, event EventNumber, told fabric.ConnEvent) {
	ep.stopTimer()
	was := ep.getState()
	l := ep.link.Load()
	failure := ep.whyNot(l, event, told)
	ep.apply("ep", c, func() error {
		ep.requests.qp.SetError() // what is posted in DISCONNECTED meets a queue pair that flushes
		return nil
	})
	if was == EPConnected || was == EPDisconnectPending {
		l.conn.Disconnect()
	} else {
		l.conn.Close()
		l.conn = nil
	}
	ep.endLink(l)
	ep.recvs.source.releaseDeferred()
	l.peerLeft = c == causePeerLeft
	l.farewell = &Event{Number: event, EP: ep, failure: failure}
	if event == EventConnectionPeerRejected || event == EventConnectionNonPeerRejected && c == causeRejected {
		l.farewell.PrivateData, l.farewell.PrivateDataPadded = told.Private, told.Padded
	}
	l.over = time.Now()
	ep.requests.mu.Lock()
	l.requests = ep.requests.inflight.tail
	ep.requests.mu.Unlock()
	ep.recvs.mu.Lock()
	l.recvs = ep.recvs.inflight.tail
	ep.recvs.mu.Unlock()
	if !ep.sayFarewell(l) {
		ep.follow(l, func() bool { return ep.sayFarewell(l) })
	}
}

// sayFarewell queues the last event of a link if what was posted before has completed; ep.mu is held. It says whether
// there is nothing more to do.
func (ep *EP) sayFarewell(l *link) bool {
	if l == nil || l.farewell == nil {
		return true
	}
	taking := ep.takesShared() // first: what it completes meanwhile is drained
	ep.drainBoth()
	done := !taking && ep.requests.inflight.done(l.requests) && ep.recvs.inflight.done(l.recvs)
	if !done && time.Since(l.over) < flushWait {
		return false
	}
	ev := l.farewell
	l.farewell = nil
	ep.apply("ep", causeFlushed, nil)
	if l.peerLeft && l.failed.Load() {
		ev.Number = EventConnectionBroken
	}
	ep.connectEVD.post(ev)
	return true
}

// drainBoth takes the completions of both queues; suppressed work is made to end in one.
func (ep *EP) drainBoth() {
	ep.requests.mu.Lock()
	ep.requests.flushTail()
	ep.requests.mu.Unlock()
	requests, recvs := ep.sources()
	requests.evd.poll()
	recvs.evd.poll()
}

// How often work that must complete is looked at, where nobody takes its completions.
const (
	pollMin = 50 * time.Microsecond
	pollMax = 10 * time.Millisecond
)

// follow calls step, under ep.mu, until it says that there is nothing more to do or the link is no longer the endpoint's.
func (ep *EP) follow(l *link, step func() bool) {
	ep.obj.ia.background(func(closed <-chan struct{}) {
		for pause := pollMin; ; pause = min(2*pause, pollMax) {
			ep.mu.Lock()
			done := ep.link.Load() != l || step()
			ep.mu.Unlock()
			if done {
				return
			}
			select {
			case <-closed:
				return
			case <-time.After(pause):
			}
		}
	})
}

// endLink ends what watches a link that is over or ending.
func (ep *EP) endLink(l *link) {
	if l.counted {
		l.counted = false
		ep.obj.ia.unlink()
	}
}

// unlinkLocked forgets the connection, or gives up the attempt at one; ep.mu is held.
func (ep *EP) unlinkLocked() {
	ep.stopTimer()
	l := ep.link.Load()
	if l == nil {
		return
	}
	ep.link.Store(nil)
	ep.endLink(l)
	if l.conn != nil {
		l.conn.Close()
	}
}

func (ep *EP) stopTimer() {
	if l := ep.link.Load(); l != nil && l.notice != nil {
		l.notice.Stop()
	}
	if ep.timer != nil {
		ep.timer.Stop()
		ep.timer = nil
	}
}

// Disconnect ends the connection, or gives up an attempt at one. CloseAbrupt flushes what is outstanding;
// CloseGraceful first lets all requests complete, in DISCONNECT_PENDING, which takes no new requests. DISCONNECTED
// comes on the connect dispatcher when it is done, after the completions of what had succeeded. A graceful
// disconnect waits for as long as the peer takes its messages: an abrupt one ends that. In DISCONNECTED the call does
// nothing; in UNCONNECTED and in the states of service points it is InvalidState.
//
// Implements: dat_ep_disconnect.
func (ep *EP) Disconnect(flags CloseFlags) error {
	const op = "ep_disconnect"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	c := callAbrupt
	switch flags {
	case CloseAbrupt:
	case CloseGraceful:
		c = callGraceful
	default:
		return fail(op, InvalidParameter, SubArg2, "flags %d: must be CloseAbrupt or CloseGraceful", flags)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.advance(op, c, fabric.ConnEvent{})
}

// drainRequests enters DISCONNECT_PENDING and disconnects once every request has completed.
func (ep *EP) drainRequests() {
	ep.apply("ep_disconnect", callGraceful, nil)
	ep.follow(ep.link.Load(), ep.drained)
}

// drained disconnects if the requests of a graceful disconnect have completed; ep.mu is held. It says whether there is
// nothing more to do.
func (ep *EP) drained() bool {
	ep.drainBoth()
	if ep.requests.outstanding() > 0 {
		return false
	}
	c := causeDrained
	if ep.link.Load().failed.Load() {
		c = causeBroken // what was outstanding has been flushed, not done
	}
	ep.advance("ep", c, fabric.ConnEvent{})
	return true
}

// background runs a function that ends by itself soon after closed is; Close waits for it.
func (ia *IA) background(f func(closed <-chan struct{})) {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if !ia.closed {
		ia.keeper.Go(func() { f(ia.events) })
	}
}

// suspectGrace is how long a flush without a cause may last: a disconnect by the peer, or an error on the other
// queue, explains it sooner.
const suspectGrace = time.Second

// report tells the endpoint that its work has failed. No dispatcher's and no endpoint's lock is held.
func (f failure) report() {
	ep := f.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	l := ep.link.Load()
	if l != f.link {
		return
	}
	if !f.flushed {
		ep.advance("ep", causeBroken, fabric.ConnEvent{})
		return
	}
	if l.suspected == nil {
		l.suspected = time.AfterFunc(suspectGrace, func() { ep.move(l, causeBroken, fabric.ConnEvent{}) })
	}
}

// Reset takes a DISCONNECTED endpoint to UNCONNECTED, ready to connect anew with the same attributes, dispatchers and
// zone. It waits, within a bound, until all flushed work is on the dispatchers. In UNCONNECTED it does nothing and
// keeps the receives posted; in any other state it is InvalidState.
//
// Implements: dat_ep_reset.
func (ep *EP) Reset() error {
	const op = "ep_reset"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	for {
		ep.awaitIdle(time.Now().Add(flushWait))
		if waits, err := ep.reset(op); !waits {
			return err
		}
	}
}

// awaitIdle waits while the endpoint is DISCONNECTED and work of its is not done: until it is, or until then where the last event has come.
func (ep *EP) awaitIdle(until time.Time) {
	for pause := pollMin; ep.getState() == EPDisconnected; pause = min(2*pause, pollMax) {
		ep.mu.Lock()
		flushing := !ep.sayFarewell(ep.link.Load())
		ep.mu.Unlock()
		ep.drainBoth()
		idle := ep.requests.outstanding() == 0 && ep.recvs.outstanding() == 0
		if !flushing && (idle || time.Now().After(until)) {
			return
		}
		time.Sleep(pause)
	}
}

// reset is the call once no work is left, or says that it has to wait once more.
func (ep *EP) reset(op string) (waits bool, err error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	t, err := ep.transition(op, callReset)
	if err == nil && t.effect == moves {
		err = ep.renew(op)
	}
	return t.effect == awaits, err
}

// renew enters UNCONNECTED with a fresh queue pair in the place of the old one; ep.mu is held. What has been posted since
// Reset found the queues empty is flushed first, while no more can be posted. That has a bound of its own: posts that went on may
// have used up Reset's.
func (ep *EP) renew(op string) error {
	ep.unlinkLocked()
	until := time.Now().Add(flushWait)
	return ep.apply(op, callReset, func() error {
		ep.recvs.mu.Lock()
		defer ep.recvs.mu.Unlock()
		for requests, recvs := ep.requests.source, ep.recvs.source; ; time.Sleep(pollMin) {
			ep.requests.flushTail()
			requests.evd.poll()
			recvs.evd.poll()
			if requests.inflight.count() == 0 && recvs.inflight.count() == 0 || time.Now().After(until) {
				break
			}
		}
		old := ep.requests.qp
		if err := ep.newQP(op); err != nil {
			return err
		}
		ep.closeQP(old)
		ep.clearWork()
		return nil
	})
}

// clearWork forgets all outstanding work; the queues' locks are held.
func (ep *EP) clearWork() {
	ep.requests.suppressed, ep.requests.marked, ep.requests.fenced = 0, false, false
	ep.recvs.source.forget()
	forgetBinds(ep.requests.inflight, ep.requests.source.forget())
}
