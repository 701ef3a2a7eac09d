package udat_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestSegments sends messages of many shapes into receives of many shapes. The message consists of
// the segments in order, and fills the segments of the receive in order.
func TestSegments(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestIOV: 4, MaxRecvIOV: 4}})
		shapes := [][]int{{}, {0}, {1}, {100}, {30, 70}, {1, 0, 99}, {25, 25, 25, 25}, {0, 0, 1, 0}, {3, 200, 5}, {4096, 1}}
		tag := udat.Cookie(0)
		for _, out := range shapes {
			for _, into := range shapes {
				if total(into) < total(out) {
					continue
				}
				tag++
				msg := a.put(0, 1+total(out), byte(tag))[:total(out)]
				fill(b.get(0, len(into)*spreadStep), 0xEE)
				assert.NilError(t, b.ep.PostRecv(b.spread(into), tag, 0))
				assert.NilError(t, a.ep.PostSend(a.consecutive(out), tag, 0))
				ev := completion(t, b.recv, tag)
				assert.Equal(t, ev.Length, uint64(len(msg)))
				completion(t, a.request, tag)
				b.checkSpread(into, msg)
			}
		}
		rule.Proves(t, "EP-SEND-01", "EP-SEND-02", "EP-RECV-01", "EP-RECV-02", "EP-RECV-03", "POST-02", "GEN-13", "GAP-64")
	})
}

func total(shape []int) (n int) {
	for _, s := range shape {
		n += s
	}
	return n
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

// consecutive returns segments that follow each other in memory. Empty segments name no valid
// memory.
func (e *end) consecutive(shape []int) []udat.LMRTriplet {
	var iov []udat.LMRTriplet
	off := 0
	for _, n := range shape {
		s := udat.LMRTriplet{VirtualAddress: 0xbad}
		if n > 0 {
			s = e.mem.Triplet(off, n)
		}
		iov = append(iov, s)
		off += n
	}
	return iov
}

const spreadStep = 8 << 10

// spread returns segments with gaps between them, in descending order of addresses.
func (e *end) spread(shape []int) []udat.LMRTriplet {
	var iov []udat.LMRTriplet
	for i, n := range shape {
		s := udat.LMRTriplet{}
		if n > 0 {
			s = e.mem.Triplet((len(shape)-1-i)*spreadStep, n)
		}
		iov = append(iov, s)
	}
	return iov
}

// checkSpread checks that msg fills the segments of spread from the first on, and that nothing else
// has been written.
func (e *end) checkSpread(shape []int, msg []byte) {
	e.t.Helper()
	for i, n := range shape {
		area := e.get((len(shape)-1-i)*spreadStep, spreadStep)
		n = min(n, len(msg))
		assert.Assert(e.t, bytes.Equal(area[:n], msg[:n]), "segment %d of %v", i, shape)
		assert.Assert(e.t, bytes.Count(area[n:], []byte{0xEE}) == spreadStep-n, "segment %d of %v: more was written", i,
			shape)
		msg = msg[n:]
	}
	assert.Equal(e.t, len(msg), 0)
}

// TestCookies shows that events return the cookies of the posts, in order, also if a cookie is 0 or
// equal to another.
func TestCookies(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: 18}})
		cookies := []udat.Cookie{0, 7, 7, 1<<64 - 1, 0, 1 << 63}
		for _, c := range cookies {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), c, 0))
		}
		for _, c := range cookies {
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), c, 0))
		}
		for _, c := range cookies {
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), c, b.mem.RMRTriplet(0, 8), 0))
		}
		for _, c := range cookies {
			assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 8), c, b.mem.RMRTriplet(0, 8), 0))
		}
		for _, c := range cookies {
			assert.Equal(t, completion(t, b.recv, c).EP, b.ep)
		}
		for _, op := range []udat.DTOOperation{udat.DTOSend, udat.DTORDMAWrite, udat.DTORDMARead} {
			for _, c := range cookies {
				ev := completion(t, a.request, c)
				assert.Equal(t, ev.Operation, op)
				assert.Equal(t, ev.Length, uint64(8))
			}
		}
		rule.Proves(t, "POST-01", "POST-03", "EP-SEND-08", "EP-RECV-12", "EP-READ-08", "EP-WRITE-03", "EP-RECV-14",
			"POST-15", "POST-17",
			"EP-SEND-09", "EVD-40", "EVD-44", "GAP-61", "GAP-62")
	})
}

// TestIOVIsFree shows that the Consumer may reuse the slice of segments, though not the memory, as
// soon as the post returns, for each kind of post and each segment.
func TestIOVIsFree(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		reads := min(2, udat.DeviceAttr(a.ia).MaxReadSGE)
		for i, post := range []func(e, peer *end, iov []udat.LMRTriplet) error{
			func(e, _ *end, iov []udat.LMRTriplet) error { return e.ep.PostSend(iov, 1, 0) },
			func(e, _ *end, iov []udat.LMRTriplet) error {
				_, err := e.ep.PostBatch([]udat.Op{{Kind: udat.OpSend, IOV: iov, Cookie: 1}})
				return err
			},
			func(e, peer *end, iov []udat.LMRTriplet) error {
				return e.ep.PostRDMAWrite(iov, 1, peer.mem.RMRTriplet(0, 16), 0)
			},
			func(e, peer *end, iov []udat.LMRTriplet) error {
				return e.ep.PostRDMARead(iov[:reads], 1, peer.mem.RMRTriplet(100, 8*reads), 0)
			},
		} {
			into, out := []udat.LMRTriplet{b.mem.Triplet(0, 8), b.mem.Triplet(8, 8)},
				[]udat.LMRTriplet{a.mem.Triplet(0, 8), a.mem.Triplet(8, 8)}
			want := a.put(0, 16, byte(i))
			switch i {
			case 0:
				assert.NilError(t, b.ep.PostRecv(into, 2, 0))
			case 1:
				recvs := []udat.Recv{{IOV: into, Cookie: 2}}
				_, err := b.ep.PostRecvBatch(recvs)
				assert.NilError(t, err)
				recvs[0] = udat.Recv{}
			case 3:
				want = b.put(100, 16, 99)[:8*reads]
			}
			clear(into)
			assert.NilError(t, post(a, b, out))
			clear(out)
			completion(t, a.request, 1)
			if i < 2 {
				completion(t, b.recv, 2)
			}
			switch {
			case i == 3:
				sameBytes(t, a.get(0, 8*reads), want)
			case i < 2 || acknowledged(a):
				sameBytes(t, b.get(0, 16), want)
			}
		}
		rule.Proves(t, "POST-05", "GAP-93")
	})
}

// TestReceiveTooShort: a message that is longer than the receive ends the connection at both ends.
func TestReceiveTooShort(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, iov := range []int{0, 7} {
			a, b := pair(t, dev, setup{})
			assert.NilError(t, b.ep.PostRecv(b.iov(0, iov), 1, 0))
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 100), 2, 0))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 3, 0))
			ev := expect(t, b.recv, udat.EventDTOCompletion)
			assert.Equal(t, ev.Status, udat.DTOErrLocalLength, describe(ev))
			assert.Equal(t, ev.Cookie, udat.Cookie(1))
			flushed(t, b.recv, 2)
			expect(t, b.conn, udat.EventConnectionBroken)
			ev = expect(t, a.request, udat.EventDTOCompletion)
			if acknowledged(a) {
				assert.Equal(t, ev.Status, udat.DTOErrRemoteResponder, describe(ev))
				expect(t, a.conn, udat.EventConnectionBroken)
			} else {
				expect(t, a.conn, udat.EventConnectionDisconnected)
			}
			assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
			assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
			for _, evd := range []*udat.EVD{a.recv, a.request, a.conn, b.recv, b.request, b.conn} {
				empty(t, evd)
			}
			// Both can be used again.
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			connect(t, a, b)
		}
		rule.Proves(t, "EP-RECV-06", "C-30", "POST-16", "EPST-34", "GAP-51", "GAP-66")
	})
}

// TestReceiveIntoFreedRegion: the region of the receive has been freed when the message comes.
func TestReceiveIntoFreedRegion(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		gone := b.lmr(4096, udat.PrivAll)
		assert.NilError(t, b.ep.PostRecv([]udat.LMRTriplet{gone.Triplet(0, 8)}, 1, 0))
		assert.NilError(t, gone.Free())
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
		ev := expect(t, b.recv, udat.EventDTOCompletion)
		assert.Equal(t, ev.Status, udat.DTOErrLocalProtection, describe(ev))
		expect(t, b.conn, udat.EventConnectionBroken)
		ev = expect(t, a.request, udat.EventDTOCompletion)
		if acknowledged(a) {
			assert.Equal(t, ev.Status, udat.DTOErrRemoteResponder, describe(ev))
			expect(t, a.conn, udat.EventConnectionBroken)
		} else {
			expect(t, a.conn, udat.EventConnectionDisconnected)
		}
		rule.Proves(t, "LMR-FREE-02")
	})
}

// TestSendFromFreedSegment: the second region of a Send that waits has been freed. The Send fails,
// and nothing holds the first region then.
func TestSendFromFreedSegment(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		if strings.HasPrefix(dev, "rxe") {
			t.Skip("rxe may have sent the message before the region is freed")
		}
		a, b := pair(t, dev, setup{})
		needAcknowledged(t, a)
		first, second := a.lmr(4096, udat.PrivAll), a.lmr(4096, udat.PrivAll)
		assert.NilError(t, a.ep.PostSend([]udat.LMRTriplet{first.Triplet(0, 1000), second.Triplet(0, 1000)}, 1, 0))
		assert.NilError(t, second.Free())
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 2000), 2, 0))
		ev := expect(t, a.request, udat.EventDTOCompletion)
		assert.Equal(t, ev.Status, udat.DTOErrLocalProtection, describe(ev))
		expect(t, a.conn, udat.EventConnectionBroken)
		assert.NilError(t, first.Free()) // waits for those who hold it
	})
}

// TestReceiverNotReady: there is no receive, and the sender's retries are limited.
func TestReceiverNotReady(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{opts: []udat.Option{udat.WithRNRRetry(2)}}), newEnd(t, dev, setup{})
		if acknowledged(a) && !udat.DeviceAttr(a.ia).EnforcesRNR {
			t.Skip("the device retries for ever")
		}
		connect(t, a, b)
		if !acknowledged(a) { // there is nothing to retry: the message ends the connection
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
			completion(t, a.request, 1)
			broken(t, a, b)
			rule.Proves(t, "EP-RECV-15", "EPST-34", "EP-WMARK-06")
			return
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, udat.CompletionSuppress))
		ev := expect(t, a.request, udat.EventDTOCompletion)
		assert.Equal(t, ev.Status, udat.DTOErrReceiverNotReady, describe(ev))
		assert.Equal(t, ev.Cookie, udat.Cookie(1))
		flushed(t, a.request, 2)
		expect(t, a.conn, udat.EventConnectionBroken)
		expect(t, b.conn, udat.EventConnectionDisconnected) // nothing of this end's has failed
		rule.Proves(t, "EP-RECV-15", "EPST-34", "F-04", "GAP-52", "EP-WMARK-06")
	})
}

// TestReceiverLate: by default a Send waits for a receive without limit.
func TestReceiverLate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		needAcknowledged(t, a)
		want := a.put(0, 8, 1)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
		time.Sleep(200 * time.Millisecond)
		empty(t, a.request)
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 2, 0))
		completion(t, b.recv, 2)
		completion(t, a.request, 1)
		sameBytes(t, b.get(0, 8), want)
		rule.Proves(t, "GAP-52")
	})
}

// TestReceivesBeforeConnecting: receives that are posted before Connect take the first messages.
func TestReceivesBeforeConnecting(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for i := range 3 {
			assert.NilError(t, a.ep.PostRecv(a.iov(i*8, 8), udat.Cookie(i), 0))
			assert.NilError(t, b.ep.PostRecv(b.iov(i*8, 8), udat.Cookie(i), 0))
		}
		_, recvIdle, _, err := a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, !recvIdle)
		connect(t, a, b)
		for i := range 3 {
			assert.NilError(t, a.ep.PostSend(a.iov(100, 8), 10, 0))
			assert.NilError(t, b.ep.PostSend(b.iov(100, 8), 10, 0))
			completion(t, a.recv, udat.Cookie(i))
			completion(t, b.recv, udat.Cookie(i))
		}
		_, recvIdle, _, err = a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, recvIdle)
		rule.Proves(t, "EPST-50", "EP-RECV-04", "GAP-30", "EP-STATUS-02")
	})
}

// TestReceivesOnTheWay posts one receive in each state on the way to a connection: they take the
// messages in the order of posting.
func TestReceivesOnTheWay(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, reserved := range []bool{true, false} {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			posted := map[*end]int{}
			post := func(e *end, in ...udat.EPState) {
				t.Helper()
				s := state(t, e.ep)
				assert.Assert(t, slices.Contains(in, s), "%v, want %v", s, in)
				assert.NilError(t, e.ep.PostRecv(e.iov(8*posted[e], 8), udat.Cookie(posted[e]), 0))
				posted[e]++
			}
			post(a, udat.EPUnconnected)
			var cr *udat.CR
			if reserved {
				post(b, udat.EPUnconnected)
				qual, _ := listenReserved(t, b, b.ep)
				post(b, udat.EPReserved)
				a.call(b, qual, "")
				cr = expect(t, b.cr, udat.EventConnectionRequest).CR
				post(b, udat.EPPassiveConnectionPending)
			} else {
				cr = b.tentative(a)
				post(b, udat.EPTentativeConnection)
			}
			post(a, udat.EPActiveConnectionPending)
			assert.NilError(t, cr.Accept(nil, nil))
			post(b, udat.EPCompletionPending, udat.EPConnected)
			expect(t, a.conn, udat.EventConnectionEstablished)
			expect(t, b.conn, udat.EventConnectionEstablished)
			post(a, udat.EPConnected)
			for _, ends := range [][2]*end{{a, b}, {b, a}} {
				from, to := ends[0], ends[1]
				for i := range posted[to] {
					want := from.put(512, 8, byte(10*i))
					assert.NilError(t, from.ep.PostSend(from.iov(512, 8), 9, 0))
					completion(t, from.request, 9)
					completion(t, to.recv, udat.Cookie(i))
					sameBytes(t, to.get(8*i, 8), want)
				}
			}
		}
		rule.Proves(t, "EPST-50", "EP-RECV-04")
	})
}

// TestEstablishedComesFirst: on a dispatcher for all events, no completion of a receive precedes
// ESTABLISHED.
func TestEstablishedComesFirst(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for range 20 {
			all := setup{streams: udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind}
			a, b := newEnd(t, dev, all), newEnd(t, dev, setup{})
			needPeerToPeer(t, a)
			for i := range 3 {
				assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
			}
			psp := listen(t, b)
			assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, udat.QoSBestEffort, 0))
			assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(b.ep, nil))
			expect(t, b.conn, udat.EventConnectionEstablished)
			for range 3 {
				assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 0, 0))
			}
			expect(t, a.conn, udat.EventConnectionEstablished)
			for i := range 3 {
				completion(t, a.recv, udat.Cookie(i))
			}
			assert.NilError(t, a.ia.Close(udat.CloseAbrupt))
			assert.NilError(t, b.ia.Close(udat.CloseAbrupt))
		}
		rule.Proves(t, "EVD-46", "GAP-48")
	})
}

// TestEstablishedIsLate: the first message arrives before ESTABLISHED, and its event waits for
// ESTABLISHED.
func TestEstablishedIsLate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{streams: udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind}),
			newEnd(t, dev, setup{})
		needPeerToPeer(t, a)
		assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 1, 0))
		cr := ask(t, a, b, nil)
		release := a.ep.HoldEvents()
		accepted := cr.Accept(b.ep, nil)
		ev, _, err := b.conn.Wait(patience, 1)
		sent := b.ep.PostSend(b.iov(0, 8), 2, 0)
		done, _, derr := b.request.Wait(patience, 1) // the message has arrived
		_, early := a.recv.Dequeue()
		release()
		assert.NilError(t, accepted)
		assert.NilError(t, err)
		assert.Equal(t, ev.Number, udat.EventConnectionEstablished)
		assert.NilError(t, sent)
		assert.NilError(t, derr)
		assert.Equal(t, done.Status, udat.DTOSuccess)
		assert.ErrorIs(t, early, udat.ErrQueueEmpty)
		expect(t, a.conn, udat.EventConnectionEstablished)
		completion(t, a.recv, 1)
		rule.Proves(t, "EVD-46", "GAP-48")
	})
}

// TestEstablishedWakes: a call that is parked when ESTABLISHED comes is woken by it, or by the
// deferred completions.
func TestEstablishedWakes(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, streams := range []udat.EVDFlags{0, udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind} {
			a, b := newEnd(t, dev, setup{streams: streams, unkept: true}), newEnd(t, dev, setup{})
			needPeerToPeer(t, a)
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 1, 0))
			cr := ask(t, a, b, nil)
			w := waitOn(t, a.recv, udat.Infinite, 1)
			release := a.ep.HoldEvents()
			accepted := cr.Accept(b.ep, nil)
			_, _, err := b.conn.Wait(patience, 1)
			sent := b.ep.PostSend(b.iov(0, 8), 2, 0)
			_, _, derr := b.request.Wait(patience, 1)
			time.Sleep(quiet)
			early := len(w.done)
			release()
			for _, err := range []error{accepted, err, sent, derr} {
				assert.NilError(t, err)
			}
			assert.Equal(t, early, 0)
			r := w.result(t)
			assert.NilError(t, r.err)
			if streams == 0 {
				assert.Equal(t, r.ev.Cookie, udat.Cookie(1), "%s", describe(r.ev))
			} else {
				assert.Equal(t, r.ev.Number, udat.EventConnectionEstablished)
				completion(t, a.recv, 1)
			}
		}
		rule.Proves(t, "EVD-20", "EVD-26", "EVD-46")
	})
}

// TestEstablishedHoldsNothingBack: after ESTABLISHED is dequeued, the deferred completions are
// already queued on another dispatcher.
func TestEstablishedHoldsNothingBack(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		cr := ask(t, a, b, nil)
		release := a.recv.HoldDispatcher() // nothing can be released
		accepted := cr.Accept(b.ep, nil)
		_, _, early := a.conn.Wait(200*time.Millisecond, 1)
		release()
		assert.NilError(t, accepted)
		assert.ErrorIs(t, early, udat.ErrTimeoutExpired)
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
	})
}

// TestSolicited: only the receive of a solicited Send wakes the waiter of a dispatcher with
// SOLICITED_WAIT.
func TestSolicited(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}),
			newEnd(t, dev, setup{attr: &udat.EPAttr{RecvCompletionFlags: udat.CompletionSolicitedWait}})
		needSolicited(t, b)
		connect(t, a, b)
		for i := range 4 {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), udat.Cookie(i), 0))
		}
		woken := make(chan udat.Event, 1)
		go func() {
			ev, _, err := b.recv.Wait(patience, 1)
			if err != nil {
				t.Error(err)
			}
			woken <- ev
		}()
		eventually(t, func() bool { _, err := b.recv.Dequeue(); return !errorsIs(err, udat.ErrQueueEmpty) }, "nobody waits")
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
		completion(t, a.request, 1)
		completion(t, a.request, 2)
		select {
		case ev := <-woken:
			t.Fatalf("a Send that was not solicited has woken the waiter: %s", describe(ev))
		case <-time.After(200 * time.Millisecond):
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 3, udat.CompletionSolicitedWait))
		ev := <-woken
		assert.Equal(t, ev.Cookie, udat.Cookie(0)) // the first on the queue
		completionNow(t, b.recv, 1)
		completionNow(t, b.recv, 2)
		rule.Proves(t, "EP-RECV-08", "EVD-23", "F-05", "EP-SEND-04")
	})
}
