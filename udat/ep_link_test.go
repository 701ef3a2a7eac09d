package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// linkHolds checks what an endpoint has beside its state: a timer, a connection of the fabric's, and an adapter that looks after it.
func linkHolds(t *testing.T, e *end, timer, conn bool, linked int) {
	t.Helper()
	gotTimer, gotConn := e.ep.Holds()
	assert.Equal(t, gotTimer, timer, "timer")
	assert.Equal(t, gotConn, conn, "connection")
	assert.Equal(t, e.ia.Linked(), linked, "endpoints that the adapter looks after")
}

// TestLinkLeavesNothing: an attempt's timer ends with the attempt, and the adapter looks after an endpoint for as long as it is
// connecting or connected. An attempt that failed is given up at once; a connection that is over stays until the endpoint is
// reset, so that its disconnect can reach the peer.
func TestLinkLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		linkHolds(t, a, false, false, 0)

		cr := ask(t, a, b, nil)
		linkHolds(t, a, true, true, 1)
		assert.NilError(t, cr.Reject())
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		linkHolds(t, a, false, false, 0)
		assert.NilError(t, a.ep.Reset())

		connect(t, a, b)
		linkHolds(t, a, false, true, 1)
		linkHolds(t, b, false, true, 1)
		part(t, a, b, udat.CloseAbrupt)
		linkHolds(t, a, false, true, 0)
		linkHolds(t, b, false, true, 0)
		assert.NilError(t, a.ep.Reset())
		linkHolds(t, a, false, false, 0)

		ask(t, a, b, nil)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		expect(t, a.conn, udat.EventConnectionDisconnected)
		linkHolds(t, a, false, false, 0)
		assert.NilError(t, a.ep.Reset())

		// The shortest timeout that there is; nobody answers.
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), 4711, time.Nanosecond, nil, udat.QoSBestEffort, udat.ConnectDefault))
		next(t, a.conn)
		linkHolds(t, a, false, false, 0)
	})
}

// TestFailedBeforePeerLeft: the peer leaves because work of this end has failed, and the completion that says so is seen only
// after the peer's disconnect. The connection is broken all the same; where nothing has failed it is not.
func TestFailedBeforePeerLeft(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, c := range []struct {
			fails bool
			want  udat.EventNumber
		}{{true, udat.EventConnectionBroken}, {false, udat.EventConnectionDisconnected}} {
			a, b := pair(t, dev, setup{unkept: true})
			show := udat.Hide(a.request)
			if c.fails {
				a.faults().FailOp(1, fabric.StatusRemoteOp)
				a.receive(0, 2)
			} else {
				b.receive(0, 1)
			}
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
			if c.fails {
				flushed(t, a.recv, 2) // the send has failed
			} else {
				completion(t, b.recv, 1)
			}
			assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
			expect(t, b.conn, udat.EventConnectionDisconnected)
			become(t, a.ep, udat.EPDisconnected)
			empty(t, a.conn) // the completion comes first
			show()
			expect(t, a.conn, c.want)
		}
		rule.Proves(t, "EPST-34")
	})
}
