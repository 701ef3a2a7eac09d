package cm

import (
	"testing"

	"github.com/godat/godat/cverbs"
)

// TestTableIsComplete: every state handles the events that end connections, once.
func TestTableIsComplete(t *testing.T) {
	ends := []cverbs.CMEventType{cverbs.CMEventUnreachable, cverbs.CMEventConnectError, cverbs.CMEventRejected,
		cverbs.CMEventDisconnected}
	for _, s := range []connState{stAddr, stRoute, stRequested, stArrived, stAccepted, stUp, stLeaving} {
		for _, ev := range append(ends, cverbs.CMEventDeviceRemoval) {
			if table[s][ev] == nil {
				t.Errorf("state %d ignores %v: its owner would wait for ever", s, ev)
			}
		}
	}
	for _, s := range []connState{stLost, stPeerLeft, stOver} {
		for _, ev := range ends {
			if table[s][ev] != nil {
				t.Errorf("state %d tells %v again", s, ev)
			}
		}
	}
}
