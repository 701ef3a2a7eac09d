package udat

import "github.com/godat/godat/udat/internal/fabric"

// cause is what moves an endpoint from one state to another.
type cause uint8

const (
	// What happens to a connection.
	causeEstablished  cause = iota // the transport is done with the handshake
	causePeerRejected              // the peer's Consumer said no
	causeRejected                  // the peer's provider said no, or nobody listens
	causeUnreachable               // the peer does not answer
	causeFailed                    // the handshake failed in another way
	causeTimedOut                  // the Consumer's own timeout
	causePeerLeft                  // the peer disconnected
	causeRemoved                   // the device has gone
	causeBroken                    // work failed
	causeDrained                   // the requests of a graceful disconnect are done
	causeFlushed                   // all work of a connection that has ended is done

	// What happens to a service point.
	causeUnreserved // the reserved service point has been freed
	causeRequested  // a request has come to the reserved service point
	causeOffered    // the provider has made the endpoint for a request
	causeWithdrawn  // the request has been answered without the endpoint
	causeDestroyed  // the adapter is closed, or the provider takes its endpoint back

	// Calls of the Consumer's.
	callConnect
	callAccept    // of a request that brings no endpoint
	callAcceptOwn // of the request that has brought the endpoint
	callReserve   // rsp_create
	callAbrupt    // ep_disconnect, abrupt
	callGraceful  // ep_disconnect, graceful
	callReset
	callFree
	causes
)

// isCall reports whether the Consumer waits for an answer.
func (c cause) isCall() bool { return c >= callConnect }

// causeOf is the cause that a fabric's connection event is.
var causeOf = map[fabric.ConnEventKind]cause{
	fabric.EventEstablished:  causeEstablished,
	fabric.EventPeerRejected: causePeerRejected,
	fabric.EventRejected:     causeRejected,
	fabric.EventUnreachable:  causeUnreachable,
	fabric.EventFailed:       causeFailed,
	fabric.EventDisconnected: causePeerLeft,
	fabric.EventRemoved:      causeRemoved,
}

// transition is what a cause does in a state. event comes on the connect dispatcher: at once on the
// way to CONNECTED, and when all work has been flushed on the way to FLUSHING.
type transition struct {
	effect effect
	next   EPState // where effect is moves
	event  EventNumber
}

// effect says what becomes of a cause.
type effect uint8

const (
	none   effect = iota // nothing; a call is INVALID_STATE
	stays                // the call succeeds and changes nothing
	awaits               // the call waits until the state has changed by itself
	moves
)

func to(next EPState) transition           { return transition{effect: moves, next: next} }
func ends(with EventNumber) transition     { return transition{moves, epFlushing, with} }
func connects(with EventNumber) transition { return transition{moves, EPConnected, with} }
func only(e effect) transition             { return transition{effect: e} }

// transitions is the state machine of an endpoint. What has no entry does nothing: an event then
// belongs to a connection or a service point that is over, and a call is INVALID_STATE.
//
// FLUSHING lies between the end of a connection and its last event: the device flushes what was
// posted. The Consumer sees it as DISCONNECTED.
var transitions = map[EPState]map[cause]transition{
	EPUnconnected: {
		causeOffered:   to(EPTentativeConnection),
		causeDestroyed: to(epFreed),
		callConnect:    to(EPActiveConnectionPending),
		callAccept:     to(EPCompletionPending),
		callReserve:    to(EPReserved),
		callReset:      only(stays),
		callFree:       to(epFreed),
	},
	EPReserved: {
		causeUnreserved: to(EPUnconnected),
		causeRequested:  to(EPPassiveConnectionPending),
		causeDestroyed:  to(epFreed),
	},
	EPPassiveConnectionPending: {
		causeWithdrawn: to(EPUnconnected),
		causeDestroyed: to(epFreed),
		callAcceptOwn:  to(EPCompletionPending),
	},
	EPTentativeConnection: {
		causeDestroyed: to(epFreed),
		callAcceptOwn:  to(EPCompletionPending),
	},
	EPActiveConnectionPending: {
		causeEstablished:  connects(EventConnectionEstablished),
		causePeerRejected: ends(EventConnectionPeerRejected),
		causeRejected:     ends(EventConnectionNonPeerRejected),
		causeUnreachable:  ends(EventConnectionUnreachable),
		causeFailed:       ends(EventConnectionNonPeerRejected),
		causeTimedOut:     ends(EventConnectionTimedOut),
		causePeerLeft:     ends(EventConnectionNonPeerRejected),
		causeRemoved:      ends(EventConnectionNonPeerRejected),
		causeBroken:       ends(EventConnectionNonPeerRejected),
		causeDestroyed:    to(epFreed),
		callAbrupt:        ends(EventConnectionDisconnected),
		callGraceful:      ends(EventConnectionDisconnected),
		callFree:          to(epFreed),
	},
	EPCompletionPending: {
		causeEstablished:  connects(EventConnectionEstablished),
		causePeerRejected: ends(EventConnectionAcceptError),
		causeRejected:     ends(EventConnectionAcceptError),
		causeUnreachable:  ends(EventConnectionAcceptError),
		causeFailed:       ends(EventConnectionAcceptError),
		causePeerLeft:     ends(EventConnectionAcceptError),
		causeRemoved:      ends(EventConnectionAcceptError),
		causeBroken:       ends(EventConnectionAcceptError),
		causeDestroyed:    to(epFreed),
		callAbrupt:        ends(EventConnectionDisconnected),
		callGraceful:      ends(EventConnectionDisconnected),
		callFree:          to(epFreed),
	},
	EPConnected: {
		causePeerRejected: ends(EventConnectionBroken),
		causeRejected:     ends(EventConnectionBroken),
		causeUnreachable:  ends(EventConnectionBroken),
		causeFailed:       ends(EventConnectionBroken),
		causePeerLeft:     ends(EventConnectionDisconnected),
		causeRemoved:      ends(EventConnectionBroken),
		causeBroken:       ends(EventConnectionBroken),
		causeDestroyed:    to(epFreed),
		callAbrupt:        ends(EventConnectionDisconnected),
		callGraceful:      to(EPDisconnectPending),
		callFree:          to(epFreed),
	},
	EPDisconnectPending: {
		causePeerRejected: ends(EventConnectionBroken),
		causeRejected:     ends(EventConnectionBroken),
		causeUnreachable:  ends(EventConnectionBroken),
		causeFailed:       ends(EventConnectionBroken),
		causePeerLeft:     ends(EventConnectionDisconnected),
		causeRemoved:      ends(EventConnectionBroken),
		causeBroken:       ends(EventConnectionBroken),
		causeDrained:      ends(EventConnectionDisconnected),
		causeDestroyed:    to(epFreed),
		callAbrupt:        ends(EventConnectionDisconnected),
		callGraceful:      only(stays),
		callFree:          to(epFreed),
	},
	epFlushing: {
		causeFlushed:   to(EPDisconnected),
		causeDestroyed: to(epFreed),
		callAbrupt:     only(stays),
		callGraceful:   only(stays),
		callReset:      only(awaits),
		callFree:       to(epFreed),
	},
	EPDisconnected: {
		causeDestroyed: to(epFreed),
		callAbrupt:     only(stays),
		callGraceful:   only(stays),
		callReset:      to(EPUnconnected),
		callFree:       to(epFreed),
	},
	epFreed: {},
}

// exactState is the state as the machine has it.
func (ep *EP) exactState() EPState { return EPState(ep.state.Load()) }

// getState is the state as the Consumer sees it.
func (ep *EP) getState() EPState {
	if s := ep.exactState(); s != epFlushing {
		return s
	}
	return EPDisconnected
}

// transition is what a cause does now; the answer holds while ep.mu is held. A call that the state
// does not allow is INVALID_STATE.
func (ep *EP) transition(op string, c cause) (transition, error) {
	t := transitions[ep.exactState()][c]
	if t.effect == none && c.isCall() {
		return t, ep.wrongState(op, ep.getState())
	}
	return t, nil
}

// apply makes the transition of a cause; ep.mu is held. It is the only code that stores a state.
// under, which may be nil, runs just before that with the requests locked, so that no post is
// between the two; its error leaves the state as it is.
func (ep *EP) apply(op string, c cause, under func() error) error {
	t, err := ep.transition(op, c)
	if err != nil || t.effect != moves {
		return err
	}
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	if under != nil {
		if err := under(); err != nil {
			return err
		}
	}
	ep.state.Store(uint32(t.next))
	return nil
}

// stateSubtype is what INVALID_STATE says of each state.
var stateSubtype = map[EPState]Subtype{
	EPUnconnected: SubStateEPUnconnected, EPReserved: SubStateEPReserved,
	EPPassiveConnectionPending: SubStateEPPassConnPending, EPActiveConnectionPending: SubStateEPActConnPending,
	EPTentativeConnection: SubStateEPTentConnPending, EPConnected: SubStateEPConnected,
	EPDisconnectPending: SubStateEPDiscPending, EPDisconnected: SubStateEPDisconnected,
	EPCompletionPending: SubStateEPComplPending,
}

// wrongState is the answer to a call that the state does not allow.
func (ep *EP) wrongState(op string, s EPState) error {
	if s == epFreed {
		return badHandle(op, HandleEP, &ep.obj)
	}
	return fail(op, InvalidState, stateSubtype[s], "the endpoint is %v", s)
}
