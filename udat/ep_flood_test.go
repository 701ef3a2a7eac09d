package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestHalfOpenFlood: if there are more unconfirmed accepts than the adapter keeps, those that have
// waited long enough are given up, oldest first. Younger accepts and connections stay, and a proper
// client can connect meanwhile.
func TestHalfOpenFlood(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		flood, server := newEnd(t, dev, setup{qlen: 1024, opts: keepAlive(0)}), newEnd(t, dev, setup{qlen: 1024})
		client, good := newEnd(t, dev, setup{}), *server
		psp := listen(t, server)
		half := func() *udat.EP {
			t.Helper()
			time.Sleep(time.Millisecond) // so that no two have the same age
			a := flood.endpoint()
			b := server.endpoint()
			flood.faults().Lose(softnic.MsgReady, 1)
			assert.NilError(t, a.Connect(server.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
			assert.NilError(t, expect(t, server.cr, udat.EventConnectionRequest).CR.Accept(b, nil))
			for ev := next(t, flood.conn); ev.EP != a; ev = next(t, flood.conn) {
				assert.Equal(t, ev.Number, udat.EventConnectionDisconnected) // an accept that has been given up
			}
			return b
		}
		var eps []*udat.EP
		for range 140 {
			eps = append(eps, half())
		}
		empty(t, server.conn) // all are young
		time.Sleep(2500 * time.Millisecond)
		eps = append(eps, half()) // 141
		for i := range 13 {
			ev := expect(t, server.conn, udat.EventConnectionAcceptError)
			assert.Assert(t, ev.EP == eps[i], "%d", i)
			assert.ErrorContains(t, ev.Err(), "await confirmation")
		}
		empty(t, server.conn)

		assert.NilError(t, client.ep.Connect(server.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
		assert.NilError(t, expect(t, good.cr, udat.EventConnectionRequest).CR.Accept(good.ep, nil))
		expect(t, client.conn, udat.EventConnectionEstablished)
		for ev := next(t, server.conn); ev.EP != good.ep; ev = next(t, server.conn) {
			assert.Equal(t, ev.Number, udat.EventConnectionAcceptError)
		}
		assert.Equal(t, state(t, good.ep), udat.EPConnected)
		assert.Equal(t, state(t, eps[140]), udat.EPCompletionPending)
	})
}

// TestUnconfirmedWithMessage: an accept whose initiator has sent a message is not given up, however
// many other accepts wait for their confirmation.
func TestUnconfirmedWithMessage(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		client, server := newEnd(t, dev, setup{qlen: 1024}), newEnd(t, dev, setup{qlen: 1024, script: &script})
		script.On(faultfabric.ConnEvent).With(int(fabric.EventEstablished)).Drop()
		psp := listen(t, server)
		half := func(says bool) *udat.EP {
			t.Helper()
			time.Sleep(time.Millisecond) // so that no two have the same age
			a, b := client.endpoint(), server.endpoint()
			assert.NilError(t, b.PostRecv(server.iov(0, 8), 1, 0))
			assert.NilError(t, a.Connect(server.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
			assert.NilError(t, expect(t, server.cr, udat.EventConnectionRequest).CR.Accept(b, nil))
			for ev := next(t, client.conn); ev.EP != a; ev = next(t, client.conn) {
				assert.Equal(t, ev.Number, udat.EventConnectionDisconnected) // the one that has been given up
			}
			if says {
				assert.NilError(t, a.PostSend(client.iov(0, 8), 1, 0))
				expect(t, client.request, udat.EventDTOCompletion)
			}
			return b
		}
		silent, says := half(false), half(true)
		for range 140 {
			half(true)
		}
		time.Sleep(2500 * time.Millisecond)
		half(true)
		ev := expect(t, server.conn, udat.EventConnectionAcceptError)
		assert.Assert(t, ev.EP == silent)
		assert.ErrorContains(t, ev.Err(), "await confirmation")
		empty(t, server.conn)
		assert.Equal(t, state(t, says), udat.EPCompletionPending)
	})
}

// endpoint makes one more endpoint of the end.
func (e *end) endpoint() *udat.EP {
	e.t.Helper()
	ep, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, &udat.EPAttr{MaxRecvDTOs: 1, MaxRequestDTOs: 1})
	assert.NilError(e.t, err)
	return ep
}
