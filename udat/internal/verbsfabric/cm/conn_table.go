package cm

import "github.com/godat/godat/cverbs"

// connState is where a connection stands.
type connState uint8

const (
	stAddr      connState = iota // active: resolving the address
	stRoute                      // active: resolving the route
	stRequested                  // active: the request is sent
	stArrived                    // passive: a request that nobody has answered
	stLost                       // passive: the same, and its peer has given up
	stAccepted                   // passive: the reply is sent
	stUp                         // established
	stPeerLeft                   // the peer has disconnected and waits for our answer
	stLeaving                    // we have disconnected and wait for the peer's answer
	stOver                       // nothing more to tell
	numStates
)

// action is what an event of the connection manager makes of a connection.
type action uint8

const (
	_              action = iota // a row that was forgotten
	actIgnore                    // nothing
	actRoute                     // resolve the route
	actRequest                   // send the connection request
	actReply                     // the peer has accepted: QP to RTS, answer, tell established
	actUp                        // tell established
	actUpAndLeft                 // established and already left again: tell both
	actUnreachable               // tell unreachable
	actRejected                  // tell peer-rejected or rejected, by the marker
	actRefused                   // tell rejected
	actFailed                    // tell failed
	actLost                      // remember that the requester has given up
	actPeerLeft                  // tell disconnected; the answer is the owner's Disconnect
	actOver                      // the peer has answered our disconnect: tell disconnected, destroy what lingers
	actRemoved                   // the device has gone: tell removed, destroy the id
	numActions
)

const numEvents = int(cverbs.CMEventTimewaitExit) + 1

// table says what each event does in each state. The events of multicast never come to an id of the
// TCP port space, and CONNECT_REQUEST comes with an id of its own: both are ignored here.
// ADDR_CHANGE (a bonding failover) breaks nothing by itself. CONNECT_RESPONSE is how InfiniBand and
// RoCE tell the active end of an accept; iWARP tells it by ESTABLISHED.
var table = [numStates][numEvents]action{
	stAddr: row(events{
		cverbs.CMEventAddrResolved: actRoute, cverbs.CMEventAddrError: actUnreachable,
		cverbs.CMEventRouteError: actUnreachable, cverbs.CMEventUnreachable: actUnreachable,
		cverbs.CMEventConnectError: actFailed, cverbs.CMEventRejected: actFailed, cverbs.CMEventDisconnected: actFailed,
	}),
	stRoute: row(events{
		cverbs.CMEventRouteResolved: actRequest, cverbs.CMEventAddrError: actUnreachable,
		cverbs.CMEventRouteError: actUnreachable, cverbs.CMEventUnreachable: actUnreachable,
		cverbs.CMEventConnectError: actFailed, cverbs.CMEventRejected: actFailed, cverbs.CMEventDisconnected: actFailed,
	}),
	stRequested: row(events{
		cverbs.CMEventConnectResponse: actReply, cverbs.CMEventEstablished: actUp, cverbs.CMEventRejected: actRejected,
		cverbs.CMEventUnreachable: actUnreachable, cverbs.CMEventConnectError: actRefused,
		cverbs.CMEventAddrError: actUnreachable, cverbs.CMEventRouteError: actUnreachable,
		cverbs.CMEventDisconnected: actFailed, cverbs.CMEventTimewaitExit: actFailed,
	}),
	stArrived: row(events{
		cverbs.CMEventRejected: actLost, cverbs.CMEventUnreachable: actLost, cverbs.CMEventConnectError: actLost,
		cverbs.CMEventDisconnected: actLost, cverbs.CMEventTimewaitExit: actLost, cverbs.CMEventDeviceRemoval: actLost,
	}),
	stLost: row(events{cverbs.CMEventDeviceRemoval: actLost}),
	stAccepted: row(events{
		cverbs.CMEventEstablished: actUp, cverbs.CMEventRejected: actFailed, cverbs.CMEventUnreachable: actFailed,
		cverbs.CMEventConnectError: actFailed, cverbs.CMEventTimewaitExit: actFailed,
		cverbs.CMEventDisconnected: actUpAndLeft,
	}),
	stUp: row(events{
		// A REJECTED now is a late one: the passive end was destroyed before it saw that we are
		// ready to use.
		cverbs.CMEventDisconnected: actPeerLeft, cverbs.CMEventRejected: actPeerLeft, cverbs.CMEventTimewaitExit: actPeerLeft,
		cverbs.CMEventConnectError: actPeerLeft, cverbs.CMEventUnreachable: actPeerLeft,
	}),
	stPeerLeft: row(events{}),
	stLeaving: row(events{
		cverbs.CMEventDisconnected: actOver, cverbs.CMEventTimewaitExit: actOver, cverbs.CMEventRejected: actOver,
		cverbs.CMEventConnectError: actOver, cverbs.CMEventUnreachable: actOver,
	}),
	stOver: row(events{}),
}

type events map[cverbs.CMEventType]action

// row returns the actions of a state: those of except, actRemoved for the device's removal unless
// except has another one, and actIgnore for all other events.
func row(except events) (r [numEvents]action) {
	for i := range r {
		r[i] = actIgnore
	}
	r[cverbs.CMEventDeviceRemoval] = actRemoved
	for ev, act := range except {
		r[ev] = act
	}
	return r
}
