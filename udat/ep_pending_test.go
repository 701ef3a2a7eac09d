package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// TestGivenUpWhileAccepting disconnects right after accept, in either way, while the handshake goes on: the attempt is over
// and the receives are flushed. A device may be faster than the test, which then tries again.
func TestGivenUpWhileAccepting(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CloseFlags{udat.CloseAbrupt, udat.CloseGraceful} {
			for tries := 0; ; tries++ {
				if tries == 100 {
					t.Skip("the handshake is always over before the test looks")
				}
				a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
				if d, ok := a.ia.Device().(*memfabric.Device); ok {
					d.Faults().Lose(memfabric.MsgReady, 1) // or it is always faster
				}
				cr := ask(t, a, b, nil)
				assert.NilError(t, cr.Accept(b.ep, nil))
				seen := state(t, b.ep)
				assert.NilError(t, b.ep.Disconnect(flags))
				after := state(t, b.ep)
				ev := next(t, b.conn)
				flushed(t, b.recv, 1)
				if ev.Number == udat.EventConnectionEstablished || after == udat.EPDisconnectPending {
					continue // it was connected before it was given up
				}
				assert.Equal(t, seen, udat.EPCompletionPending)
				assert.Equal(t, ev.Number, udat.EventConnectionDisconnected)
				assert.Equal(t, after, udat.EPDisconnected)
				empty(t, b.conn)
				become(t, a.ep, udat.EPDisconnected)
				break
			}
		}
		rule.Proves(t, "EPST-04", "EPST-27", "EP-DISC-06", "EP-DISC-07")
	})
}
