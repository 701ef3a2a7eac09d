package cm

import "github.com/godat/godat/cverbs"

// connState is the state of a connection.
type connState uint8

const (
	stAddr      connState = iota // active: resolving the address
	stRoute                      // active: resolving the route
	stRequested                  // active: the request is sent
	stArrived                    // passive: a request that nobody has answered
	stLost                       // passive: a request that nobody has answered, and its peer has given up
	stAccepted                   // passive: the reply is sent
	stUp                         // established
	stPeerLeft                   // the peer has disconnected and waits for our answer
	stLeaving                    // we have disconnected and wait for the peer's answer
	stOver                       // the last event has been reported
	numStates
)

// action is what is done with a connection after an event of the connection manager.
type action uint8

const (
	_              action = iota // an entry that was forgotten
	actIgnore                    // nothing
	actRoute                     // resolve the route
	actRequest                   // send the connection request
	actReply                     // the peer has accepted: move the queue pair to RTS, answer, report established
	actUp                        // report established
	actUpAndLeft                 // established, and the peer has already disconnected: report both
	actUnreachable               // report unreachable
	actRejected                  // report EventPeerRejected or EventRejected, depending on the marker
	actRefused                   // report rejected
	actFailed                    // report failed
	actLost                      // remember that the requester has given up
	actPeerLeft                  // report disconnected; the owner's Disconnect will answer
	actOver                      // the peer has answered our disconnect: report disconnected, destroy an id that lingers
	actRemoved                   // the device has gone: report removed, destroy the id
	numActions
)

const numEvents = int(cverbs.CMEventTimewaitExit) + 1

// table has the action for each state and event. The table ignores events of multicast, which never
// come to an id of the TCP port space, and CONNECT_REQUEST, which comes with a new id. It also
// ignores ADDR_CHANGE (a bonding failover), which breaks no connection by itself. The active end
// learns of an accept by CONNECT_RESPONSE on InfiniBand and RoCE, and by ESTABLISHED on iWARP.
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
		// REJECTED in this state means that the passive end was destroyed before our ready-to-use
		// message reached it.
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

// row returns the actions of a state. The parameter special has the actions for some events. For
// any other event the action is actIgnore, or actRemoved if the event is the device's removal.
func row(special events) (r [numEvents]action) {
	for i := range r {
		r[i] = actIgnore
	}
	r[cverbs.CMEventDeviceRemoval] = actRemoved
	for ev, act := range special {
		r[ev] = act
	}
	return r
}
