package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// TestUnconfirmedAccept accepts a request whose initiator never confirms: the attempt ends within
// the bound, with the receives flushed, and the endpoint connects again.
func TestUnconfirmedAccept(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a := newEnd(t, dev, setup{})
		b := newEnd(t, dev, setup{opts: []udat.Option{udat.WithAcceptWait(time.Second)}})
		psp := listen(t, b)
		if d, ok := a.ia.Device().(*memfabric.Device); ok {
			nicfault.Of(d).Lose(softnic.MsgReady, 1)
			assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
		} else {
			newCPeer(t, a).calls(b.ia.Addr(), psp.Qual(), nil)
		}
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
		assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(b.ep, nil))
		assert.Equal(t, state(t, b.ep), udat.EPCompletionPending)
		ev, _, err := b.conn.Wait(20*time.Second, 1)
		assert.NilError(t, err)
		assert.Equal(t, ev.Number, udat.EventConnectionAcceptError, "%s", describe(ev))
		assert.ErrorContains(t, ev.Err(), "the initiator has not confirmed the accept within 30s")
		assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
		flushed(t, b.recv, 1)
		empty(t, b.conn)
		rule.Proves(t, "EPST-26", "CR-ACCEPT-04")

		// On a loaded machine the limit may pass before the endpoint is connected again.
		for tries := 1; ev.Number != udat.EventConnectionEstablished; tries++ {
			assert.Assert(t, tries <= 20, "%s", describe(ev))
			assert.NilError(t, b.ep.Reset())
			c := newEnd(t, dev, setup{})
			assert.NilError(t, c.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
			assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(b.ep, nil))
			ev = next(t, b.conn)
		}
	})
}

// TestGivenUpWhileAccepting disconnects directly after Accept, abruptly or gracefully, during the
// handshake: the attempt ends and the receives are flushed. If the device is faster than the test,
// the test tries again.
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
					nicfault.Of(d).Lose(softnic.MsgReady, 1) // or it is always faster
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
