package udat

import "github.com/godat/godat/udat/internal/fabric"

// cause is what moves an endpoint from one state to another.
type cause uint8

const (
	causeEstablished  cause = iota // the transport is done with the handshake
	causePeerRejected              // the peer's Consumer said no
	causeRejected                  // the peer's provider said no, or nobody listens
	causeUnreachable               // the peer does not answer
	causeFailed                    // the handshake failed in another way
	causeTimedOut                  // the Consumer's own timeout
	causePeerLeft                  // the peer disconnected
	causeRemoved                   // the device has gone
	causeBroken                    // work failed
	causeAbrupt                    // ep_disconnect, abrupt
	causeGraceful                  // ep_disconnect, graceful
	causeDrained                   // the requests of a graceful disconnect are done
	causes
)

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

// transition is what a cause does in a state: the next state and the event on the connect dispatcher. The zero value
// does nothing.
type transition struct {
	next  EPState
	event EventNumber
}

// transitions is the part of the endpoint's state machine that connections drive. The states without a connection
// and those of service points have none: what comes there comes late, of a connection that is over.
var transitions = map[EPState][causes]transition{
	EPUnconnected:              {},
	EPReserved:                 {},
	EPPassiveConnectionPending: {},
	EPTentativeConnection:      {},
	EPActiveConnectionPending: {
		causeEstablished:  {EPConnected, EventConnectionEstablished},
		causePeerRejected: {EPDisconnected, EventConnectionPeerRejected},
		causeRejected:     {EPDisconnected, EventConnectionNonPeerRejected},
		causeUnreachable:  {EPDisconnected, EventConnectionUnreachable},
		causeFailed:       {EPDisconnected, EventConnectionNonPeerRejected},
		causeTimedOut:     {EPDisconnected, EventConnectionTimedOut},
		causePeerLeft:     {EPDisconnected, EventConnectionNonPeerRejected},
		causeRemoved:      {EPDisconnected, EventConnectionNonPeerRejected},
		causeBroken:       {EPDisconnected, EventConnectionNonPeerRejected},
		causeAbrupt:       {EPDisconnected, EventConnectionDisconnected},
		causeGraceful:     {EPDisconnected, EventConnectionDisconnected},
		causeDrained:      {},
	},
	EPCompletionPending: {
		causeEstablished:  {EPConnected, EventConnectionEstablished},
		causePeerRejected: {EPDisconnected, EventConnectionAcceptError},
		causeRejected:     {EPDisconnected, EventConnectionAcceptError},
		causeUnreachable:  {EPDisconnected, EventConnectionAcceptError},
		causeFailed:       {EPDisconnected, EventConnectionAcceptError},
		causeTimedOut:     {},
		causePeerLeft:     {EPDisconnected, EventConnectionAcceptError},
		causeRemoved:      {EPDisconnected, EventConnectionAcceptError},
		causeBroken:       {EPDisconnected, EventConnectionAcceptError},
		causeAbrupt:       {EPDisconnected, EventConnectionDisconnected},
		causeGraceful:     {EPDisconnected, EventConnectionDisconnected},
		causeDrained:      {},
	},
	EPConnected: {
		causeEstablished:  {},
		causePeerRejected: {EPDisconnected, EventConnectionBroken},
		causeRejected:     {EPDisconnected, EventConnectionBroken},
		causeUnreachable:  {EPDisconnected, EventConnectionBroken},
		causeFailed:       {EPDisconnected, EventConnectionBroken},
		causeTimedOut:     {},
		causePeerLeft:     {EPDisconnected, EventConnectionDisconnected},
		causeRemoved:      {EPDisconnected, EventConnectionBroken},
		causeBroken:       {EPDisconnected, EventConnectionBroken},
		causeAbrupt:       {EPDisconnected, EventConnectionDisconnected},
		causeGraceful:     {EPDisconnectPending, 0},
		causeDrained:      {},
	},
	EPDisconnectPending: {
		causeEstablished:  {},
		causePeerRejected: {EPDisconnected, EventConnectionBroken},
		causeRejected:     {EPDisconnected, EventConnectionBroken},
		causeUnreachable:  {EPDisconnected, EventConnectionBroken},
		causeFailed:       {EPDisconnected, EventConnectionBroken},
		causeTimedOut:     {},
		causePeerLeft:     {EPDisconnected, EventConnectionDisconnected},
		causeRemoved:      {EPDisconnected, EventConnectionBroken},
		causeBroken:       {EPDisconnected, EventConnectionBroken},
		causeAbrupt:       {EPDisconnected, EventConnectionDisconnected},
		causeGraceful:     {},
		causeDrained:      {EPDisconnected, EventConnectionDisconnected},
	},
	EPDisconnected: {},
	epFreed:        {},
}
