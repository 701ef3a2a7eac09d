package udat

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/lockrank"
)

// Device returns the fabric's own device of the adapter, for tests that query it or break it.
func (ia *IA) Device() fabric.Device { return faultfabric.Inner(ia.device).(fabric.Device) }

// Posting returns the number of endpoints of the zone that may have posts in progress.
func (pz *PZ) Posting() int {
	pz.obj.ia.mu.Lock()
	defer pz.obj.ia.mu.Unlock()
	return len(pz.posting)
}

// Hold makes calls that answer the request wait until the returned function is called.
func (c *CR) Hold() func() {
	c.mu.Lock()
	return c.mu.Unlock
}

// Causes are the names of the causes of the endpoint's state machine, in order.
var Causes = [causes]string{
	"established", "peer rejected", "rejected", "unreachable", "failed", "timed out", "peer left", "removed", "broken",
	"drained", "flushed",
	"unreserved", "requested", "offered", "withdrawn", "destroyed",
	"connect", "accept", "accept own", "reserve", "abrupt", "graceful", "reset", "free",
}

// Suffer makes cause number c happen to the endpoint's connection, or to a new one if the endpoint
// has none.
func (ep *EP) Suffer(c int) {
	l := ep.conn.Load()
	if l == nil {
		l = &connection{}
		ep.conn.Store(l)
		defer ep.conn.Store(nil)
	}
	ep.happened(l, epCause(c), fabric.ConnEvent{Private: []byte("private")})
}

// States are the states of the state machine, in order.
var States = []EPState{EPUnconnected, EPReserved, EPPassiveConnectionPending, EPTentativeConnection,
	EPActiveConnectionPending,
	EPCompletionPending, EPConnected, EPDisconnectPending, epFlushing, EPDisconnected, epFreed}

// ApplyCause applies cause number c to an endpoint in a state. It returns the next state, the event
// in the table, and whether a call has to wait.
func ApplyCause(s EPState, c int) (next EPState, event EventNumber, waits bool, err error) {
	ep := &EP{}
	ep.obj.ia = &IA{}
	ep.state.Store(uint32(s))
	t, _ := ep.transition("call", epCause(c))
	err = ep.apply("call", epCause(c), nil)
	return ep.exactState(), t.event, t.effect == effectAwaits, err
}

// VisibleState returns the state that the Consumer sees.
func VisibleState(s EPState) EPState {
	ep := &EP{}
	ep.state.Store(uint32(s))
	return ep.getState()
}

// StatesOfTable returns the number of rows of the table.
func StatesOfTable() int { return len(transitions) }

// Late returns the handler of the endpoint's current connection, as a fabric keeps it.
func (ep *EP) Late() func(fabric.ConnEvent) { return ep.handler(ep.conn.Load()) }

// QP returns the endpoint's queue pair.
func (ep *EP) QP() fabric.QP {
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	return ep.requests.qp
}

// HoldEvents makes the connection's events, and every call that changes the state, wait until the
// returned function is called.
func (ep *EP) HoldEvents() (release func()) {
	elsewhere(ep.mu.Lock)
	return ep.mu.Unlock
}

// HoldPosts makes every call that needs the request queue wait until the returned function is
// called.
func (ep *EP) HoldPosts() (release func()) {
	elsewhere(ep.requests.mu.Lock)
	return ep.requests.mu.Unlock
}

// HoldDispatcher makes every call that needs the dispatcher wait until the returned function is
// called.
func (e *EVD) HoldDispatcher() (release func()) {
	elsewhere(e.mu.Lock)
	return e.mu.Unlock
}

// DropHeld drops the deferred events, as the end of the endpoint does.
func (ep *EP) DropHeld() {
	_, recvs := ep.sources()
	recvs.evd.mu.Lock()
	defer recvs.evd.mu.Unlock()
	recvs.dropDeferred()
}

// Port returns the port of the qualifier.
func (q ConnQual) Port() (uint16, error) { return q.port("dat_ep_connect", SubArg3) }

// ActiveEPs returns the number of the adapter's endpoints that are connecting or connected.
func (ia *IA) ActiveEPs() int {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return ia.activeEPs
}

// Holds reports whether the endpoint has a timer for its attempt to connect, and whether it has a
// connection in the fabric.
func (ep *EP) Holds() (timer, conn bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	l := ep.conn.Load()
	return ep.timer != nil, l != nil && l.conn != nil
}

// FailureOf returns a function that reports a failure of the endpoint's current connection.
func FailureOf(ep *EP) (report func()) { return workFailure{ep: ep, conn: ep.conn.Load()}.report }

// Untold returns the number of failures that the dispatcher has not reported yet.
func Untold(e *EVD) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.after)
}

// elsewhere calls f on another goroutine and waits for it, so that the check of lock ranks does not
// count locks that the test holds as those of the library.
func elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// Elsewhere is elsewhere for hooks that the library calls under its locks.
func Elsewhere(f func()) { elsewhere(f) }

// CheckingLocks reports whether the order of locks is checked. The check allocates.
const CheckingLocks = lockrank.Checking

// LockRanks are the ranks of the package's locks, in order.
var LockRanks = []lockrank.Rank{rankCR{}, rankServicePoint{}, rankModifying{}, rankBinding{}, rankEP{}, rankIA{},
	rankRequests{}, rankRecvs{},
	rankEVD{}, rankSRQ{}, rankRMR{}, rankLMR{}, rankWindows{}, rankCNO{}, rankPoller{}, rankFlusher{},
	rankRegistry{}}

// CountFrom makes the sequence numbers of the endpoint's work continue from n. No work may be in
// flight.
func (ep *EP) CountFrom(n uint32) {
	ep.CountRequestsFrom(n)
	ep.recvs.mu.Lock()
	defer ep.recvs.mu.Unlock()
	ep.recvs.inflight.countFrom(n)
}

// CountRequestsFrom is CountFrom for requests alone.
func (ep *EP) CountRequestsFrom(n uint32) {
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	ep.requests.inflight.countFrom(n)
}

func (q *inflight) countFrom(n uint32) {
	q.headMu.Lock()
	defer q.headMu.Unlock()
	q.tail, q.freed, q.completed = n, n, n
}
