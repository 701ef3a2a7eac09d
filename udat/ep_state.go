package udat

import "github.com/godat/godat/udat/internal/fabric"

// epCause is a cause that may move an endpoint from one state to another.
type epCause uint8

const (
	// Events of a connection.
	causeEstablished  epCause = iota // the handshake is complete
	causePeerRejected                // the peer's Consumer rejected the request
	causeRejected                    // the peer's provider rejected the request, or no service point listens
	causeUnreachable                 // the peer does not answer
	causeFailed                      // the handshake failed in another way
	causeTimedOut                    // the Consumer's timeout or acceptWait has passed
	causePeerLeft                    // the peer disconnected
	causeRemoved                     // the device has gone
	causeBroken                      // work has failed
	causeDrained                     // the requests of a graceful disconnect have completed
	causeFlushed                     // all work of a connection that has ended has completed

	// Events of a service point.
	causeUnreserved // the reserved service point has been freed
	causeRequested  // a request has arrived at the reserved service point
	causeOffered    // the provider has made the endpoint for a request
	causeWithdrawn  // the request was rejected, handed off or dropped
	causeDestroyed  // the endpoint is destroyed: by Free, by the adapter's Close, or by the provider

	// Calls of the Consumer.
	callConnect
	callAccept    // cr_accept of a request without an endpoint
	callAcceptOwn // cr_accept of the request that has this endpoint
	callReserve   // rsp_create
	callAbrupt    // ep_disconnect, abrupt
	callGraceful  // ep_disconnect, graceful
	callReset
	callFree
	causes
)

// isCall reports whether the cause is a call of the Consumer, which gets an error if the state does
// not allow it.
func (c epCause) isCall() bool { return c >= callConnect }

// causeOf maps the fabric's connection events to causes.
var causeOf = map[fabric.ConnEventKind]epCause{
	fabric.EventEstablished:  causeEstablished,
	fabric.EventPeerRejected: causePeerRejected,
	fabric.EventRejected:     causeRejected,
	fabric.EventUnreachable:  causeUnreachable,
	fabric.EventFailed:       causeFailed,
	fabric.EventDisconnected: causePeerLeft,
	fabric.EventRemoved:      causeRemoved,
}

// transition is the effect of a cause in a state. If the next state is CONNECTED, the event is
// queued on the connect dispatcher at once. If the next state is FLUSHING, the event is queued
// after all work has been flushed.
type transition struct {
	effect effect
	next   EPState // set if effect is effectMoves
	event  EventNumber
}

// effect says what a cause does.
type effect uint8

const (
	effectNone   effect = iota // nothing; a call returns InvalidState
	effectStays                // the call succeeds and changes nothing
	effectAwaits               // the call waits until another cause has changed the state
	effectMoves
)

func goesTo(next EPState) transition           { return transition{effect: effectMoves, next: next} }
func endsWith(with EventNumber) transition     { return transition{effectMoves, epFlushing, with} }
func connectsWith(with EventNumber) transition { return transition{effectMoves, EPConnected, with} }

// transitions is the state machine of an endpoint. A cause without an entry changes nothing. If it
// is an event, the event belongs to a connection or a service point that has ended, and is ignored.
// If it is a call, the call returns InvalidState.
//
// FLUSHING lies between the end of a connection and its last event, while the device flushes what
// was posted. The Consumer sees this state as DISCONNECTED.
var transitions = map[EPState]map[epCause]transition{
	EPUnconnected: {
		causeOffered:   goesTo(EPTentativeConnection),
		causeDestroyed: goesTo(epFreed),
		callConnect:    goesTo(EPActiveConnectionPending),
		callAccept:     goesTo(EPCompletionPending),
		callReserve:    goesTo(EPReserved),
		callReset:      {effect: effectStays},
		callFree:       goesTo(epFreed),
	},
	EPReserved: {
		causeUnreserved: goesTo(EPUnconnected),
		causeRequested:  goesTo(EPPassiveConnectionPending),
		causeDestroyed:  goesTo(epFreed),
	},
	EPPassiveConnectionPending: {
		causeWithdrawn: goesTo(EPUnconnected),
		causeDestroyed: goesTo(epFreed),
		callAcceptOwn:  goesTo(EPCompletionPending),
	},
	EPTentativeConnection: {
		causeDestroyed: goesTo(epFreed),
		callAcceptOwn:  goesTo(EPCompletionPending),
	},
	EPActiveConnectionPending: {
		causeEstablished:  connectsWith(EventConnectionEstablished),
		causePeerRejected: endsWith(EventConnectionPeerRejected),
		causeRejected:     endsWith(EventConnectionNonPeerRejected),
		causeUnreachable:  endsWith(EventConnectionUnreachable),
		causeFailed:       endsWith(EventConnectionNonPeerRejected),
		causeTimedOut:     endsWith(EventConnectionTimedOut),
		causePeerLeft:     endsWith(EventConnectionNonPeerRejected),
		causeRemoved:      endsWith(EventConnectionNonPeerRejected),
		causeBroken:       endsWith(EventConnectionNonPeerRejected),
		causeDestroyed:    goesTo(epFreed),
		callAbrupt:        endsWith(EventConnectionDisconnected),
		callGraceful:      endsWith(EventConnectionDisconnected),
		callFree:          goesTo(epFreed),
	},
	EPCompletionPending: {
		causeEstablished:  connectsWith(EventConnectionEstablished),
		causePeerRejected: endsWith(EventConnectionAcceptError),
		causeRejected:     endsWith(EventConnectionAcceptError),
		causeUnreachable:  endsWith(EventConnectionAcceptError),
		causeFailed:       endsWith(EventConnectionAcceptError),
		causeTimedOut:     endsWith(EventConnectionAcceptError),
		causePeerLeft:     endsWith(EventConnectionAcceptError),
		causeRemoved:      endsWith(EventConnectionAcceptError),
		causeBroken:       endsWith(EventConnectionAcceptError),
		causeDestroyed:    goesTo(epFreed),
		callAbrupt:        endsWith(EventConnectionDisconnected),
		callGraceful:      endsWith(EventConnectionDisconnected),
		callFree:          goesTo(epFreed),
	},
	EPConnected: {
		causePeerRejected: endsWith(EventConnectionBroken),
		causeRejected:     endsWith(EventConnectionBroken),
		causeUnreachable:  endsWith(EventConnectionBroken),
		causeFailed:       endsWith(EventConnectionBroken),
		causePeerLeft:     endsWith(EventConnectionDisconnected),
		causeRemoved:      endsWith(EventConnectionBroken),
		causeBroken:       endsWith(EventConnectionBroken),
		causeDestroyed:    goesTo(epFreed),
		callAbrupt:        endsWith(EventConnectionDisconnected),
		callGraceful:      goesTo(EPDisconnectPending),
		callFree:          goesTo(epFreed),
	},
	EPDisconnectPending: {
		causePeerRejected: endsWith(EventConnectionBroken),
		causeRejected:     endsWith(EventConnectionBroken),
		causeUnreachable:  endsWith(EventConnectionBroken),
		causeFailed:       endsWith(EventConnectionBroken),
		causePeerLeft:     endsWith(EventConnectionDisconnected),
		causeRemoved:      endsWith(EventConnectionBroken),
		causeBroken:       endsWith(EventConnectionBroken),
		causeDrained:      endsWith(EventConnectionDisconnected),
		causeDestroyed:    goesTo(epFreed),
		callAbrupt:        endsWith(EventConnectionDisconnected),
		callGraceful:      {effect: effectStays},
		callFree:          goesTo(epFreed),
	},
	epFlushing: {
		causeFlushed:   goesTo(EPDisconnected),
		causeDestroyed: goesTo(epFreed),
		callAbrupt:     {effect: effectStays},
		callGraceful:   {effect: effectStays},
		callReset:      {effect: effectAwaits},
		callFree:       goesTo(epFreed),
	},
	EPDisconnected: {
		causeDestroyed: goesTo(epFreed),
		callAbrupt:     {effect: effectStays},
		callGraceful:   {effect: effectStays},
		callReset:      goesTo(EPUnconnected),
		callFree:       goesTo(epFreed),
	},
	epFreed: {},
}

// exactState returns the state of the state machine, which may be FLUSHING.
func (ep *EP) exactState() EPState { return EPState(ep.state.Load()) }

// getState returns the state that the Consumer sees: DISCONNECTED instead of FLUSHING.
func (ep *EP) getState() EPState {
	if s := ep.exactState(); s != epFlushing {
		return s
	}
	return EPDisconnected
}

// transition returns the effect of a cause in the current state, which does not change while ep.mu
// is held. For a call that the state does not allow it returns InvalidState.
func (ep *EP) transition(op string, c epCause) (transition, error) {
	t := transitions[ep.exactState()][c]
	if t.effect == effectNone && c.isCall() {
		return t, ep.wrongState(op, ep.getState())
	}
	return t, nil
}

// apply makes the transition of a cause; ep.mu is held. No other code stores a state. If change is
// not nil, apply calls change just before it stores the new state. The lock of the requests is held
// from the call of change until the state is stored, so that no request is posted between them. If
// change returns an error, the state does not change.
func (ep *EP) apply(op string, c epCause, change func() error) error {
	t, err := ep.transition(op, c)
	if err != nil || t.effect != effectMoves {
		return err
	}
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	if change != nil {
		if err := change(); err != nil {
			return err
		}
	}
	ep.state.Store(uint32(t.next))
	return nil
}

// stateSubtype maps each state to the subtype of InvalidState for it.
var stateSubtype = map[EPState]Subtype{
	EPUnconnected: SubStateEPUnconnected, EPReserved: SubStateEPReserved,
	EPPassiveConnectionPending: SubStateEPPassConnPending, EPActiveConnectionPending: SubStateEPActConnPending,
	EPTentativeConnection: SubStateEPTentConnPending, EPConnected: SubStateEPConnected,
	EPDisconnectPending: SubStateEPDiscPending, EPDisconnected: SubStateEPDisconnected,
	EPCompletionPending: SubStateEPComplPending,
}

// wrongState returns the error of a call that the state does not allow.
func (ep *EP) wrongState(op string, s EPState) error {
	if s == epFreed {
		return badHandle(op, HandleEP, &ep.obj)
	}
	return fail(op, InvalidState, stateSubtype[s], "the endpoint is %v", s)
}

// notReady returns the error of a call that needs a queue pair.
func (ep *EP) notReady(op string) error {
	if ep.getState() == epFreed {
		return badHandle(op, HandleEP, &ep.obj)
	}
	return fail(op, InvalidState, SubStateEPNotReady, "the endpoint has no protection zone")
}
