package udat

import "github.com/godat/godat/udat/internal/fabric"

// epCause is what moves an endpoint from one state to another.
type epCause uint8

const (
	// What happens to a connection.
	causeEstablished  epCause = iota // the transport is done with the handshake
	causePeerRejected                // the peer's Consumer refused
	causeRejected                    // the peer's provider refused, or no service point listens
	causeUnreachable                 // the peer does not answer
	causeFailed                      // the handshake failed in another way
	causeTimedOut                    // the Consumer's own timeout, or acceptWait
	causePeerLeft                    // the peer disconnected
	causeRemoved                     // the device has gone
	causeBroken                      // work failed
	causeDrained                     // the requests of a graceful disconnect are done
	causeFlushed                     // all work of a connection that has ended is done

	// What happens to a service point.
	causeUnreserved // the reserved service point has been freed
	causeRequested  // a request has come to the reserved service point
	causeOffered    // the provider has made the endpoint for a request
	causeWithdrawn  // the request has been answered without the endpoint
	causeDestroyed  // the adapter is closed, or the provider takes its endpoint back

	// Calls of the Consumer.
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

// transition is what a cause does in a state. event comes on the connect dispatcher: at once on the
// way to CONNECTED, and when all work has been flushed on the way to FLUSHING.
type transition struct {
	effect effect
	next   EPState // where effect is effectMoves
	event  EventNumber
}

// effect is what a cause does.
type effect uint8

const (
	effectNone   effect = iota // nothing; a call is INVALID_STATE
	effectStays                // the call succeeds and changes nothing
	effectAwaits               // the call waits until the state has changed by itself
	effectMoves
)

func goesTo(next EPState) transition           { return transition{effect: effectMoves, next: next} }
func endsWith(with EventNumber) transition     { return transition{effectMoves, epFlushing, with} }
func connectsWith(with EventNumber) transition { return transition{effectMoves, EPConnected, with} }

// transitions is the state machine of an endpoint. What has no entry does nothing: an event then
// belongs to a connection or a service point that is over, and a call is INVALID_STATE.
//
// FLUSHING lies between the end of a connection and its last event: the device flushes what was
// posted. The Consumer sees it as DISCONNECTED.
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
func (ep *EP) transition(op string, c epCause) (transition, error) {
	t := transitions[ep.exactState()][c]
	if t.effect == effectNone && c.isCall() {
		return t, ep.wrongState(op, ep.getState())
	}
	return t, nil
}

// apply makes the transition of a cause; ep.mu is held. It is the only code that stores a state.
// under, which may be nil, runs just before that with the requests locked, so that no post is
// between the two; its error leaves the state as it is.
func (ep *EP) apply(op string, c epCause, under func() error) error {
	t, err := ep.transition(op, c)
	if err != nil || t.effect != effectMoves {
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

// stateSubtype is the subtype of INVALID_STATE for each state.
var stateSubtype = map[EPState]Subtype{
	EPUnconnected: SubStateEPUnconnected, EPReserved: SubStateEPReserved,
	EPPassiveConnectionPending: SubStateEPPassConnPending, EPActiveConnectionPending: SubStateEPActConnPending,
	EPTentativeConnection: SubStateEPTentConnPending, EPConnected: SubStateEPConnected,
	EPDisconnectPending: SubStateEPDiscPending, EPDisconnected: SubStateEPDisconnected,
	EPCompletionPending: SubStateEPComplPending,
}

// wrongState is the error of a call that the state does not allow.
func (ep *EP) wrongState(op string, s EPState) error {
	if s == epFreed {
		return badHandle(op, HandleEP, &ep.obj)
	}
	return fail(op, InvalidState, stateSubtype[s], "the endpoint is %v", s)
}

// notReady is the error of a call that needs a queue pair.
func (ep *EP) notReady(op string) error {
	if ep.getState() == epFreed {
		return badHandle(op, HandleEP, &ep.obj)
	}
	return fail(op, InvalidState, SubStateEPNotReady, "the endpoint has no protection zone")
}
