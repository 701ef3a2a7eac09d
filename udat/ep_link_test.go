package udat_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// linkHolds checks what an endpoint has in addition to its state: a timer, a connection in the
// fabric, and a place in the adapter's count of active endpoints.
func linkHolds(t *testing.T, e *end, timer, conn bool, linked int) {
	t.Helper()
	gotTimer, gotConn := e.ep.Holds()
	assert.Equal(t, gotTimer, timer, "timer")
	assert.Equal(t, gotConn, conn, "connection")
	assert.Equal(t, e.ia.ActiveEPs(), linked, "endpoints that the adapter looks after")
}

// TestLinkLeavesNothing: the timer of an attempt ends with the attempt, and the adapter counts an
// endpoint as active while it is connecting or connected. The fabric's connection of a failed
// attempt is closed at once. After an established connection it stays open until the endpoint is
// reset, so that the disconnect can reach the peer.
func TestLinkLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		linkHolds(t, a, false, false, 0)

		cr := ask(t, a, b, nil)
		linkHolds(t, a, true, true, 1)
		assert.NilError(t, cr.Reject(nil))
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

		// The shortest possible timeout; nobody answers.
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), 4711, time.Nanosecond, nil, udat.QoSBestEffort, udat.ConnectDefault))
		next(t, a.conn)
		linkHolds(t, a, false, false, 0)
	})
}

// TestFailedBeforePeerLeft: the peer disconnects because work of this end has failed, and the
// failed completion is drained only after the disconnect. The connection still counts as broken;
// without a failure it counts as disconnected.
func TestFailedBeforePeerLeft(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, c := range []struct {
			fails bool
			want  udat.EventNumber
		}{{true, udat.EventConnectionBroken}, {false, udat.EventConnectionDisconnected}} {
			var script faultfabric.Script
			a, b := pair(t, dev, setup{unkept: true, script: &script})
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
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
			hidden.Stop()
			expect(t, a.conn, c.want)
		}
		rule.Proves(t, "EPST-34")
	})
}

// TestLateFailure: a failure of an earlier connection that is reported late does not break the next
// connection.
func TestLateFailure(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		report := udat.FailureOf(a.ep)
		part(t, a, b, udat.CloseAbrupt)
		assert.NilError(t, a.ep.Reset())
		assert.NilError(t, b.ep.Reset())
		report()
		assert.Equal(t, state(t, a.ep), udat.EPUnconnected)
		connect(t, a, b)
		report()
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		udat.FailureOf(a.ep)()
		expect(t, a.conn, udat.EventConnectionBroken)
	})
}

// TestFailureToldOnce: a dispatcher reports a failure once.
func TestFailureToldOnce(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _ := pair(t, dev, setup{})
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), 1, udat.RMRTriplet{RMRContext: 0xdeadbe00, TargetAddress: 1,
			SegmentLength: 8}, 0))
		broken(t, a)
		ev := expect(t, a.request, udat.EventDTOCompletion)
		assert.Assert(t, ev.Status != udat.DTOSuccess)
		empty(t, a.request)
		assert.Equal(t, udat.Untold(a.request), 0)
	})
}

// TestFarewellLooks: the last event follows the completions even if only the library polls for
// them, and the polling ends.
func TestFarewellLooks(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true})
		a.receive(0, 1)
		if acknowledged(a) {
			assert.NilError(t, a.ep.PostSend(nil, 2, 0)) // no receive for it
		}
		part(t, a, b, udat.CloseAbrupt)
		assert.Equal(t, udat.Queued(a.recv), 1)
		if acknowledged(a) {
			assert.Equal(t, udat.Queued(a.request), 1)
		}
		connectAgain := func() {
			t.Helper()
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			connect(t, a, b)
		}
		connectAgain()
		part(t, a, b, udat.CloseGraceful)
		eventually(t, func() bool {
			stacks := make([]byte, 1<<20)
			return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*EP).follow"))
		}, "nobody follows a connection that is over")
	})
}

// TestResetWaits: Reset waits until the device has flushed all work, including work that was posted
// in DISCONNECTED.
func TestResetWaits(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, receive := range []bool{true, false} {
			var script faultfabric.Script
			a, b := pair(t, dev, setup{unkept: true, script: &script})
			part(t, a, b, udat.CloseAbrupt)
			evd, post := a.request, a.ep.PostSend
			if receive {
				evd, post = a.recv, a.ep.PostRecv
			}
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(evd)).Drop()
			assert.NilError(t, post(a.iov(0, 8), 1, 0))
			done := make(chan error, 1)
			go func() { done <- a.ep.Reset() }()
			select {
			case err := <-done:
				t.Fatalf("the call did not wait: %v", err)
			case <-time.After(quiet):
			}
			hidden.Stop()
			assert.NilError(t, <-done)
			assert.Equal(t, udat.Queued(evd), 1)
			flushed(t, evd, 1)
		}
		rule.Proves(t, "EP-RESET-02")
	})
}

// TestResetFlushesLateWork: work that other goroutines post while Reset waits is flushed before the
// queue pair is destroyed, and not forgotten.
func TestResetFlushesLateWork(t *testing.T) {
	inTime(t, func(t *testing.T) {
		for _, receive := range []bool{true, false} {
			var script faultfabric.Script
			a, b := pair(t, "mem0", setup{unkept: true, script: &script})
			part(t, a, b, udat.CloseAbrupt)
			evd, post := a.request, a.ep.PostSend
			if receive {
				evd, post = a.recv, a.ep.PostRecv
			}
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(evd)).Drop() // as if there were always more
			time.AfterFunc(udat.FlushWait+time.Second, hidden.Stop)
			assert.NilError(t, post(a.iov(0, 8), 1, 0))
			assert.NilError(t, a.ep.Reset())
			assert.Equal(t, udat.Queued(evd), 1)
			flushed(t, evd, 1)
		}
		rule.Proves(t, "EP-RESET-02")
	})
}
