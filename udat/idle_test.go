package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
)

// becomesIdle waits until the dispatcher is idle: only the next completion wakes a goroutine for
// it.
func becomesIdle(t *testing.T, evd *udat.EVD) {
	t.Helper()
	until(t, "the dispatcher is idle", func() bool { return udat.Idle(evd) && !udat.Polled(evd) })
}

// TestIdleBreaks: work that fails breaks the connection of an idle dispatcher although no call
// takes completions, whatever has happened to the dispatcher since it became idle.
func TestIdleBreaks(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		cno := func(t *testing.T, e *end) *udat.CNO { return newCNO(t, e.ia, nil) }
		for name, since := range map[string]func(t *testing.T, e *end){
			"nothing":   func(*testing.T, *end) {},
			"a Dequeue": func(t *testing.T, e *end) { empty(t, e.request) },
			"a Wait": func(t *testing.T, e *end) {
				_, _, err := e.request.Wait(10*time.Millisecond, 1)
				assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			},
			"a Wait for three": func(t *testing.T, e *end) {
				_, _, err := e.request.Wait(10*time.Millisecond, 3)
				assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
			},
			"a Wait that lasts": func(t *testing.T, e *end) {
				w := waitOn(t, e.request, time.Second, 3)
				until(t, "nobody polls", func() bool { return hasWaiter(t, e.request) && !udat.Polled(e.request) })
				assert.ErrorIs(t, w.result(t).err, udat.ErrTimeoutExpired)
			},
			"no Wait any more": func(t *testing.T, e *end) { assert.NilError(t, e.request.SetUnwaitable()) },
			"an object":        func(t *testing.T, e *end) { assert.NilError(t, e.request.ModifyCNO(cno(t, e))) },
			"an object, which goes": func(t *testing.T, e *end) {
				assert.NilError(t, e.request.ModifyCNO(cno(t, e)))
				time.Sleep(quiet)
				assert.NilError(t, e.request.ModifyCNO(nil))
			},
			"an object, which is disabled": func(t *testing.T, e *end) {
				assert.NilError(t, e.request.ModifyCNO(cno(t, e)))
				assert.NilError(t, e.request.Disable())
			},
			"another length": func(t *testing.T, e *end) { assert.NilError(t, e.request.Resize(4000)) },
			"another endpoint": func(t *testing.T, e *end) {
				ep, err := e.ia.CreateEP(e.pz, e.request, e.request, nil, nil)
				assert.NilError(t, err)
				assert.NilError(t, ep.Free())
			},
			"a completion": func(t *testing.T, e *end) {
				assert.NilError(t, e.ep.PostRDMAWrite(e.iov(0, 0), 2, udat.RMRTriplet{}, 0))
				until(t, "the adapter polls again", func() bool { return udat.Polled(e.request) || udat.Idle(e.request) })
				completion(t, e.request, 2)
			},
			"a completion, and time": func(t *testing.T, e *end) {
				assert.NilError(t, e.ep.PostRDMAWrite(e.iov(0, 0), 2, udat.RMRTriplet{}, 0))
				completion(t, e.request, 2)
				becomesIdle(t, e.request)
			},
		} {
			t.Run(name, func(t *testing.T) {
				a, b := pair(t, dev, setup{opts: keepAlive(0)})
				needAcknowledged(t, a)
				becomesIdle(t, a.request)
				becomesIdle(t, a.recv)
				since(t, a)
				bad := b.mem.RMRTriplet(0, 8)
				bad.RMRContext ^= 0xff00
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, bad, 0))
				expect(t, a.conn, udat.EventConnectionBroken)
			})
		}
	})
}

// TestIdleFlags: dispatchers with every completion flag become idle if the device notifies of every
// failure. A failure breaks their connection, with and without a call that waits.
func TestIdleFlags(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionUnsignalled, udat.CompletionSolicitedWait,
			udat.CompletionEVDThreshold} {
			for _, waits := range []bool{false, true} {
				s := withFlags(flags, 0)
				s.unkept, s.opts = false, keepAlive(0)
				a, b := pair(t, dev, s)
				needAcknowledged(t, a)
				b.receive(flags&udat.CompletionUnsignalled, 1)
				notifies := flags != udat.CompletionSolicitedWait || udat.DeviceAttr(b.ia).FailuresNotify
				var w *waiting
				if waits {
					w = waitOn(t, b.recv, udat.Infinite, 1)
				}
				if notifies && waits {
					until(t, "nobody polls", func() bool { return !udat.Polled(b.recv) })
				} else if notifies {
					becomesIdle(t, b.recv)
				} else {
					time.Sleep(untended)
					assert.Assert(t, udat.Polled(b.recv))
				}
				assert.NilError(t, a.ep.PostSend(a.iov(0, 2000), 0, quietly)) // longer than the receive
				expect(t, b.conn, udat.EventConnectionBroken)
				if waits {
					r := w.result(t)
					assert.NilError(t, r.err)
					assert.Equal(t, r.ev.Status, udat.DTOErrLocalLength)
				}
			}
		}
	})
}

// TestIdleEnds: the arm loop of an idle dispatcher ends with the connection.
func TestIdleEnds(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		for _, e := range []*end{a, b} {
			becomesIdle(t, e.recv)
			becomesIdle(t, e.request)
		}
		part(t, a, b, udat.CloseGraceful)
		for _, evd := range []*udat.EVD{a.recv, a.request, b.recv, b.request} {
			until(t, "nobody takes completions of a connection that is over", func() bool {
				return !udat.Looping(evd) && !udat.Polled(evd)
			})
		}
		assert.NilError(t, a.ep.Reset())
		assert.NilError(t, b.ep.Reset())
		connect(t, a, b)
		becomesIdle(t, a.request)
	})
}

// TestIdleUsed: a call that waits ends the arm loop of an idle dispatcher, and so does the first
// completion. The arm loop does not start again while the dispatcher is used: later completions
// wake no goroutine.
func TestIdleUsed(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, waits := range []bool{true, false} {
			var script faultfabric.Script
			opts := append(keepAlive(0), udat.WithPollInterval(time.Second))
			a, b := pair(t, dev, setup{script: &script, opts: opts})
			becomesIdle(t, a.request)
			arms := script.On(faultfabric.Arm, udat.CompletionQueue(a.request)).Count()
			if waits {
				_, _, err := a.request.Wait(time.Millisecond, 1)
				assert.ErrorIs(t, err, udat.ErrTimeoutExpired)
				until(t, "the arm loop has ended", func() bool { return !udat.Looping(a.request) })
			}
			const writes = 200
			for i := range writes {
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), 0))
				time.Sleep(5 * time.Millisecond)
				until(t, "it completes", func() bool { _, err := a.request.Dequeue(); return err == nil })
				if i == 0 {
					until(t, "the arm loop has ended", func() bool { return !udat.Looping(a.request) })
				}
			}
			assert.Assert(t, arms.Calls() < 5, "armed %d times", arms.Calls()) // the machine may stand still for an interval
		}
	})
}

// TestIdleNotArmed: a queue that cannot be armed, or on which a wait fails, is polled.
func TestIdleNotArmed(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, call := range []faultfabric.Call{faultfabric.Arm, faultfabric.Wait} {
			var script faultfabric.Script
			a, b := newEnd(t, dev, setup{opts: keepAlive(0), script: &script}), newEnd(t, dev, setup{})
			refused := script.On(call, udat.CompletionQueue(a.request)).Fail(fabric.ErrResources)
			connect(t, a, b)
			needAcknowledged(t, a)
			until(t, "the queue is used", func() bool { return refused.Calls() > 2 })
			bad := b.mem.RMRTriplet(0, 8)
			bad.RMRContext ^= 0xff00
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, bad, 0))
			expect(t, a.conn, udat.EventConnectionBroken)
		}
	})
}
