package cm

import (
	"testing"

	"github.com/godat/godat/cverbs"
)

// Every event has an action in every state, and every state handles the events that end
// connections.
func TestTableIsComplete(t *testing.T) {
	for s := range numStates {
		for ev := range numEvents {
			if a := table[s][ev]; a == 0 || a >= numActions {
				t.Errorf("state %d, event %v: action %d", s, cverbs.CMEventType(ev), a)
			}
		}
	}
	ends := []cverbs.CMEventType{cverbs.CMEventUnreachable, cverbs.CMEventConnectError, cverbs.CMEventRejected,
		cverbs.CMEventDisconnected}
	for _, s := range []connState{stAddr, stRoute, stRequested, stArrived, stAccepted, stUp, stLeaving} {
		for _, ev := range append(ends, cverbs.CMEventDeviceRemoval) {
			if table[s][ev] == actIgnore {
				t.Errorf("state %d ignores %v: its owner would wait for ever", s, ev)
			}
		}
	}
	for _, s := range []connState{stLost, stPeerLeft, stOver} {
		for _, ev := range ends {
			if table[s][ev] != actIgnore {
				t.Errorf("state %d tells %v again", s, ev)
			}
		}
	}
}
