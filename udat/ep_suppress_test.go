package udat_test

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// persist repeats a post until there is room. A full queue is the only error that it accepts.
func persist(t *testing.T, post func() error) {
	t.Helper()
	eventually(t, func() bool {
		err := post()
		if err != nil && !errorsIs(err, udat.ErrInsufficientResources) {
			t.Fatal(err)
		}
		return err == nil
	}, "the queue stays full")
}

// TestSuppressed posts thousands of suppressed operations, which make no events, into small queues.
func TestSuppressed(t *testing.T) {
	const posts = 3000
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, depth := range []int{1, 2, 3, 16} {
			t.Run(fmt.Sprint(depth), func(t *testing.T) {
				n := posts
				if depth < 16 {
					n = posts / 5
				}
				a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: depth}})
				for i := range n {
					switch i % 3 {
					case 0:
						persist(t, func() error {
							return a.ep.PostRDMAWrite(a.iov(0, 64), 0, b.mem.RMRTriplet(0, 64), udat.CompletionSuppress)
						})
					case 1:
						persist(t, func() error {
							return a.ep.PostRDMARead(a.iov(64, 64), 0, b.mem.RMRTriplet(64, 64),
								udat.CompletionSuppress|udat.CompletionBarrierFence)
						})
					case 2:
						assert.NilError(t, b.ep.PostRecv(nil, udat.Cookie(i), 0))
						persist(t, func() error { return a.ep.PostSend(nil, 0, udat.CompletionSuppress) })
						completion(t, b.recv, udat.Cookie(i))
					}
				}
				eventually(t, func() bool { _, _, idle, _ := a.ep.GetStatus(); return idle }, "work is left")
				empty(t, a.request)
				// The first request that is not suppressed makes only its own event.
				persist(t, func() error { return a.ep.PostRDMAWrite(a.iov(0, 64), 5, b.mem.RMRTriplet(0, 64), 0) })
				completion(t, a.request, 5)
				empty(t, a.request)
			})
		}
		rule.Proves(t, "F-04", "EVD-29", "EP-SEND-04", "EP-SEND-10", "EP-READ-03", "GAP-60")
	})
}

// TestSuppressedCounts: a suppressed request of any kind counts as in flight until the library has
// seen that it is done. The test hides the completions.
func TestSuppressedCounts(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, b := pair(t, dev, setup{script: &script})
		idle := func() bool { _, _, idle, err := a.ep.GetStatus(); assert.NilError(t, err); return idle }
		posts := map[string]func() error{}
		for _, p := range posters {
			if !p.recv {
				posts[p.name] = func() error { return p.post(a, b, a.iov(0, 8), 2, udat.CompletionSuppress) }
			}
		}
		if udat.DeviceAttr(a.ia).MaxMW > 0 {
			r := a.window(t)
			posts["bind"] = func() error {
				_, err := r.Bind(a.mem.Triplet(0, 8), bothRights, a.ep, 2, udat.CompletionSuppress)
				return err
			}
		}
		for name, post := range posts {
			b.receive(0, 1)
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
			assert.NilError(t, post(), name)
			if name != "send" {
				assert.NilError(t, a.ep.PostSend(nil, 2, udat.CompletionSuppress))
			}
			completion(t, b.recv, 1) // the device has done all
			for range 3 {
				time.Sleep(quiet / 3)
				assert.Assert(t, !idle(), name)
			}
			hidden.Stop()
			eventually(t, idle, "%s: work is left", name)
			empty(t, a.request)
		}
		rule.Proves(t, "EP-STATUS-03")
	})
}

// TestSuppressedThenGraceful: a graceful disconnect completes thousands of suppressed requests.
func TestSuppressedThenGraceful(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, tail := range []int{1, 2, 7, 40, 100} {
			a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: 256, MaxRecvDTOs: 256}, qlen: 512})
			for i := range tail {
				assert.NilError(t, b.ep.PostRecv(b.iov(i*64, 64), udat.Cookie(i), 0))
			}
			want := a.put(0, tail*64, byte(tail))
			for i := range tail {
				assert.NilError(t, a.ep.PostSend(a.iov(i*64, 64), 0, udat.CompletionSuppress))
			}
			part(t, a, b, udat.CloseGraceful)
			for i := range tail {
				completion(t, b.recv, udat.Cookie(i))
			}
			sameBytes(t, b.get(0, tail*64), want)
			empty(t, a.request)
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			assert.Assert(t, idle)
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
		}
		rule.Proves(t, "EP-DISC-02", "EP-DISC-04", "EPST-30", "GAP-46", "GAP-60")
	})
}

// TestGracefulWaitsForSuppressed: a graceful disconnect waits for suppressed requests in flight,
// alone and after other requests, until the peer has received the last of them.
func TestGracefulWaitsForSuppressed(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, first := range []udat.CompletionFlags{udat.CompletionSuppress, 0} {
			for _, tail := range []int{1, 2, 7, 40} {
				a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: 64, MaxRecvDTOs: 64}})
				needAcknowledged(t, a)
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, first)) // the peer has no receives yet
				for range tail {
					assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, udat.CompletionSuppress))
				}
				assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
				for i := range tail + 1 { // each but the last is taken, and the last is waited for
					time.Sleep(10 * time.Millisecond)
					assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
					empty(t, a.conn)
					assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
					completion(t, b.recv, udat.Cookie(i))
				}
				expect(t, a.conn, udat.EventConnectionDisconnected)
				expect(t, b.conn, udat.EventConnectionDisconnected)
				if first == 0 {
					completion(t, a.request, 1)
				}
				empty(t, a.request)
			}
		}
		rule.Proves(t, "EP-DISC-04", "GAP-46", "GAP-60")
	})
}

// TestGracefulAfterMarker: suppressed work is posted while a request of the library, for earlier
// suppressed work, is in flight.
func TestGracefulAfterMarker(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: 64}})
		needAcknowledged(t, a)
		for range 3 {
			assert.NilError(t, a.ep.PostSend(nil, 0, udat.CompletionSuppress)) // waits for its receive
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			assert.Assert(t, !idle)
		}
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
		for range 3 {
			assert.NilError(t, b.ep.PostRecv(nil, 1, 0))
		}
		expect(t, a.conn, udat.EventConnectionDisconnected)
		for range 3 {
			completion(t, b.recv, 1)
		}
		expect(t, b.conn, udat.EventConnectionDisconnected)
		empty(t, a.request)
		rule.Proves(t, "EP-DISC-04", "EP-STATUS-03", "GAP-60")
	})
}

// TestSuppressedFailure: a suppressed request makes no event if it succeeds, but makes one if it
// fails or is flushed.
func TestSuppressedFailure(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: 64}})
		needAcknowledged(t, a)
		for i := range 5 {
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), udat.Cookie(i), b.mem.RMRTriplet(0, 8), udat.CompletionSuppress))
		}
		bad := b.mem.RMRTriplet(endMemory, 8)
		for i := 5; i < 12; i++ {
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), udat.Cookie(i), bad, udat.CompletionSuppress))
		}
		ev := expect(t, a.request, udat.EventDTOCompletion)
		assert.Equal(t, ev.Status, udat.DTOErrRemoteAccess, describe(ev))
		assert.Equal(t, ev.Cookie, udat.Cookie(5))
		for i := 6; i < 12; i++ {
			flushed(t, a.request, udat.Cookie(i))
		}
		expect(t, a.conn, udat.EventConnectionBroken)
		empty(t, a.request)
		_, _, idle, err := a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, idle)
		rule.Proves(t, "F-04", "EPST-56", "GAP-61", "EPST-43")
	})
}

// TestSuppressedBeforeStuckSend: completed suppressed writes in front of a blocked Send occupy at
// most half of the request slots, and free them once the Send completes.
func TestSuppressedBeforeStuckSend(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 8
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: limit}})
		needAcknowledged(t, a)
		for round := range 5 {
			for range round {
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), udat.CompletionSuppress))
			}
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0)) // for which the peer has no receive
			sends := 1
			for ; sends <= limit; sends++ {
				if err := a.ep.PostSend(a.iov(0, 8), 3, udat.CompletionSuppress); err != nil {
					refused(t, err, udat.InsufficientResources, udat.SubResourceCredits)
					break
				}
			}
			assert.Assert(t, sends >= limit/2 && sends <= limit, "%d sends after %d silent writes", sends, round)
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			assert.Assert(t, !idle)
			for i := range sends {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
			}
			completion(t, a.request, 2)
			for i := range sends {
				completion(t, b.recv, udat.Cookie(i))
			}
			// Posts alone get all slots back.
			for i := range limit {
				eventually(t, func() bool {
					return a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), udat.CompletionSuppress) == nil
				}, "round %d: post %d is refused for ever", round, i)
			}
			eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "idle")
			empty(t, a.request)
		}
		rule.Proves(t, "POST-10", "EP-STATUS-03", "GAP-60")
	})
}

// TestSuppressedAndUnsignalled: with both flags a request that succeeds makes no event at all.
func TestSuppressedAndUnsignalled(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, withFlags(0, udat.CompletionUnsignalled))
		b.receive(0, 1)
		for range 100 { // more than the queue has places: some of them complete at the device
			eventually(t, func() bool {
				return a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8),
					udat.CompletionSuppress|udat.CompletionUnsignalled) == nil
			}, "room for a write")
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
		completion(t, a.request, 2)
		empty(t, a.request)
	})
}

// TestRefusedPostEndsNothing: the library learns that suppressed work is done even if the device
// refused the request whose completion would have proved it.
func TestRefusedPostEndsNothing(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), udat.CompletionSuppress))
		a.faults().FailPost(1)
		assert.Assert(t, a.ep.PostSend(a.iov(0, 8), 2, 0) != nil)
		eventually(t, func() bool {
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			return idle
		}, "the requests are idle")
		empty(t, a.request)
	})
}
