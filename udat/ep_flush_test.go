package udat_test

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// endings are the ways in which a connection ends at end a, with the event of each.
var endings = []struct {
	name  string
	end   func(t *testing.T, a, b *end)
	event udat.EventNumber
}{
	{"own abrupt", func(t *testing.T, a, b *end) { assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt)) },
		udat.EventConnectionDisconnected},
	{"peer's abrupt", func(t *testing.T, a, b *end) { assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt)) },
		udat.EventConnectionDisconnected},
	{"graceful, then abrupt", func(t *testing.T, a, b *end) {
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
	}, udat.EventConnectionDisconnected},
	{"graceful, then the peer's", func(t *testing.T, a, b *end) {
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
	}, udat.EventConnectionDisconnected},
	{"peer freed", func(t *testing.T, a, b *end) { assert.NilError(t, b.ep.Free()) }, udat.EventConnectionDisconnected},
	{"peer's adapter closed", func(t *testing.T, a, b *end) { assert.NilError(t, b.ia.Close(udat.CloseAbrupt)) },
		udat.EventConnectionDisconnected},
}

// TestFlush ends connections with work in flight: all of it is flushed, in the order of posting,
// before the last event of the connection. Work that is posted later is flushed after that, so that
// a marker proves that nothing is left.
func TestFlush(t *testing.T) {
	const work = 10
	onEachOutside(t, func(t *testing.T, dev string) {
		all := acknowledged(newEnd(t, dev, setup{}))
		for _, shared := range []bool{false, true} {
			for _, how := range endings {
				if !all && strings.HasPrefix(how.name, "graceful") {
					continue // no request can keep the endpoint in DISCONNECT_PENDING
				}
				t.Run(how.name, func(t *testing.T) {
					s := setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: 3 * work, MaxRecvDTOs: 3 * work}}
					a, b := newEnd(t, dev, s), newEnd(t, dev, setup{})
					if shared {
						s.streams = udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind
						a = newEnd(t, dev, s)
					}
					connect(t, a, b)
					sends := work
					if !all {
						sends = 0
					}
					for i := range work {
						assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(100+i), 0))
						flags := udat.CompletionDefault
						if i%3 == 1 {
							flags = udat.CompletionSuppress
						}
						switch {
						case i >= sends:
						case i%4 == 1:
							assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), udat.Cookie(i), b.mem.RMRTriplet(0, 8), flags))
						case i%4 == 2:
							assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), udat.Cookie(i), b.mem.RMRTriplet(0, 8), flags))
						case i%4 == 3 && udat.DeviceAttr(a.ia).MaxMW > 0:
							_, err := a.window(t).Bind(a.mem.Triplet(0, 8), bothRights, a.ep, udat.Cookie(i), flags)
							assert.NilError(t, err)
						default: // there is no receive for it, so that later requests do not begin
							assert.NilError(t, a.ep.PostSend(nil, udat.Cookie(i), flags))
						}
					}
					how.end(t, a, b)
					if shared {
						requests, recvs := 0, 0
						for requests+recvs < sends+work { // each stream in its order, and all before the event
							ev := next(t, a.conn)
							assert.Equal(t, ev.Status, udat.DTOErrFlushed, describe(ev))
							switch {
							case ev.Cookie >= 100:
								assert.Equal(t, ev.Cookie, udat.Cookie(100+recvs))
								recvs++
							default:
								assert.Equal(t, ev.Cookie, udat.Cookie(requests))
								requests++
							}
						}
						expect(t, a.conn, how.event)
					} else {
						expect(t, a.conn, how.event)
						for i := range work {
							if i < sends {
								ev, err := a.request.Dequeue() // they precede the event
								assert.NilError(t, err)
								assert.Equal(t, ev.Cookie, udat.Cookie(i))
								assert.Equal(t, ev.Status, udat.DTOErrFlushed)
							}
							ev, err := a.recv.Dequeue()
							assert.NilError(t, err)
							assert.Equal(t, ev.Cookie, udat.Cookie(100+i))
							assert.Equal(t, ev.Status, udat.DTOErrFlushed)
						}
					}
					assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
					marker(t, a)
					s2, r, q, err := a.ep.GetStatus()
					assert.NilError(t, err)
					assert.Assert(t, s2 == udat.EPDisconnected && r && q)
					assert.NilError(t, a.ep.Reset())
					empty(t, a.request)
					empty(t, a.recv)
					empty(t, a.conn)
				})
			}
		}
		rule.Proves(t, "EPST-51", "EPST-52", "EPST-53", "EPST-56", "EPST-57", "EP-SEND-03", "EP-RECV-05", "EP-READ-04",
			"EP-WRITE-03", "EP-DISC-12")
		if !all {
			return
		}
		rule.Proves(t, "EPST-28", "EPST-31", "EPST-32", "EPST-33", "EPST-40", "EPST-42", "EP-DISC-02", "EP-DISC-03",
			"EP-DISC-05", "EP-DISC-10",
			"EP-FREE-03", "F-04", "GAP-47", "GAP-48", "GAP-50", "GAP-60")
	})
}

// marker posts markers in DISCONNECTED, and checks that all work completes in order, the markers
// last.
func marker(t *testing.T, a *end) {
	t.Helper()
	for i := range 5 {
		assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(200+i), 0))
	}
	assert.NilError(t, a.ep.PostRecv(nil, 299, 0))
	for i := range 6 {
		c := udat.Cookie(200 + i)
		if i == 5 {
			c = 299
		}
		flushed(t, a.recv, c)
	}
	remote := udat.RMRTriplet{RMRContext: 1, TargetAddress: 1, SegmentLength: 8}
	assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 300, 0))
	assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 301, udat.CompletionSuppress))
	assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 302, remote, udat.CompletionSuppress))
	assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), 303, remote, udat.CompletionSuppress|udat.CompletionBarrierFence))
	assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 304, udat.CompletionSolicitedWait|udat.CompletionBarrierFence))
	assert.NilError(t, a.ep.PostSend(nil, 399, 0))
	for _, c := range []udat.Cookie{300, 301, 302, 303, 304, 399} {
		flushed(t, a.request, c)
	}
}

// TestFlushErrors: in DISCONNECTED an invalid post is refused as in other states.
func TestFlushErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := inState(t, dev, udat.EPDisconnected, setup{attr: &udat.EPAttr{MaxRequestDTOs: 4, MaxRecvDTOs: 4}})
		for _, p := range posters {
			refused(t, p.post(a, b, a.iov(endMemory, 8), 1, 0), udat.InvalidParameter)
			refused(t, p.post(a, b, []udat.LMRTriplet{b.mem.Triplet(0, 8)}, 1, 0), udat.ProtectionViolation)
			refused(t, p.post(a, b, a.iov(0, 8), 1, udat.CompletionUnsignalled), udat.InvalidParameter)
		}
		empty(t, a.request)
		empty(t, a.recv)
		// The queues have not become shorter: flushed work makes room when its completion is
		// drained.
		for i := range 40 {
			persist(t, func() error { return a.ep.PostSend(nil, udat.Cookie(i), udat.CompletionSuppress) })
			persist(t, func() error { return a.ep.PostRecv(nil, udat.Cookie(i), 0) })
		}
		for i := range 40 {
			flushed(t, a.request, udat.Cookie(i))
			flushed(t, a.recv, udat.Cookie(i))
		}
		rule.Proves(t, "POST-07", "POST-08", "EP-RECV-09", "EPST-57")
	})
}

// TestFlushUnconnected: a failed attempt to connect flushes the receives too.
func TestFlushUnconnected(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for i := range 5 {
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
		}
		assert.NilError(t, ask(t, a, b, nil).Reject(nil))
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		for i := range 5 {
			flushed(t, a.recv, udat.Cookie(i))
		}
		marker(t, a)
		assert.NilError(t, a.ep.Reset())
		connect(t, a, b)
		rule.Proves(t, "EPST-40", "EPST-13", "GAP-49", "GAP-50")
	})
}

// promptly repeats a turn that must be fast, and judges the fastest one: a busy machine is slow
// sometimes, a library that waits is slow always.
func promptly(t *testing.T, what string, turn func() (took time.Duration)) {
	t.Helper()
	const turns, bound = 8, 150 * time.Millisecond
	var all []time.Duration
	for range turns {
		if took := turn(); took < bound {
			return
		} else {
			all = append(all, took)
		}
	}
	t.Errorf("%s took %v, each time above %v", what, all, bound)
}

// TestFlushAtOnce: the flushed completions and the last event come immediately after the end of a
// connection, and so does the completion of a post in DISCONNECTED.
func TestFlushAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for name, end := range map[string]struct {
			end   func(t *testing.T)
			event udat.EventNumber
		}{
			"own disconnect": {func(t *testing.T) { assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt)) },
				udat.EventConnectionDisconnected},
			"peer's disconnect": {func(t *testing.T) { assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt)) },
				udat.EventConnectionDisconnected},
			"broken": {func(t *testing.T) {
				assert.NilError(t, b.ep.PostSend(b.iov(0, 100), 1, 0)) // longer than the receive
				expect(t, b.request, udat.EventDTOCompletion)
			}, udat.EventConnectionBroken},
		} {
			promptly(t, name, func() time.Duration {
				connect(t, a, b)
				for i := range 5 {
					assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
				}
				begun := time.Now()
				end.end(t)
				for i := range 5 {
					assert.Equal(t, expect(t, a.recv, udat.EventDTOCompletion).Cookie, udat.Cookie(i))
				}
				expect(t, a.conn, end.event)
				took := time.Since(begun)
				next(t, b.conn)
				assert.NilError(t, a.ep.Reset())
				assert.NilError(t, b.ep.Reset())
				return took
			})
		}
		if acknowledged(a) {
			promptly(t, "the end of a graceful disconnect", func() time.Duration {
				connect(t, a, b)
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, udat.CompletionSuppress))
				assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
				begun := time.Now()
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0)) // which the Send waits for
				expect(t, a.conn, udat.EventConnectionDisconnected)
				took := time.Since(begun)
				completion(t, b.recv, 1)
				expect(t, b.conn, udat.EventConnectionDisconnected)
				assert.NilError(t, a.ep.Reset())
				assert.NilError(t, b.ep.Reset())
				return took
			})
		}
		connect(t, a, b)
		part(t, a, b, udat.CloseAbrupt)
		for _, p := range posters {
			promptly(t, p.name+" in DISCONNECTED", func() time.Duration {
				evd, flags := a.request, udat.CompletionSuppress
				if p.recv {
					evd, flags = a.recv, 0
				}
				begun := time.Now()
				assert.NilError(t, p.post(a, b, a.iov(0, 8), 1, flags))
				flushed(t, evd, 1)
				return time.Since(begun)
			})
		}
		rule.Proves(t, "EPST-40", "EPST-51", "EPST-52", "EPST-33", "EPST-28", "EPST-53", "EPST-56", "EP-RECV-05",
			"EP-SEND-03",
			"EP-READ-04", "EP-WRITE-03",
			"EP-DISC-12")
	})
}
