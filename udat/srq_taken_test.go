package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// tellsTaken reports whether the device counts the receives that an endpoint has taken from a
// shared queue.
func tellsTaken(t *testing.T, e *end) bool {
	t.Helper()
	_, _, p, err := e.ia.Query()
	assert.NilError(t, err)
	all := udat.SRQWatermarkSoftHigh | udat.SRQWatermarkHardHigh
	tells := p.SRQInfoSupported&udat.SRQInfoAvailable != 0
	assert.Equal(t, p.SRQWatermarksSupported&all == all, tells)
	assert.Equal(t, p.SRQWatermarksSupported&all != 0, tells)
	return tells
}

// oneWithSRQ returns two connected ends. The receives of b come from a shared queue with n receives
// of size bytes.
func oneWithSRQ(t *testing.T, dev string, n, size int, attr udat.EPAttr) (a, b *end, s *udat.SRQ) {
	t.Helper()
	a, b = newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
	s = b.shared(t, udat.SRQAttr{MaxRecvDTOs: n, MaxRecvIOV: 1})
	b.share(t, s, attr)
	for i := range n {
		assert.NilError(t, s.PostRecv(b.iov(0, size), udat.Cookie(i)))
	}
	return a, b, s
}

// TestRecvQuerySRQ: RecvQuery returns the number of receives that the endpoint has taken from the
// queue and not completed, or ValueUnknown if the device does not count them.
func TestRecvQuerySRQ(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, silent := range []bool{false, true} { // true: the attributes say that the device does not count them
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{script: &faultfabric.Script{Attr: func(d *fabric.Attr) {
				d.SRQExactCounts = d.SRQExactCounts && !silent
			}}})
			s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 8, MaxRecvIOV: 1})
			b.share(t, s, udat.EPAttr{})
			want := 0
			if !tellsTaken(t, b) {
				want = udat.ValueUnknown
			}
			holds(t, b.ep, want)
			connect(t, a, b)
			for i := range udat.Cookie(3) {
				assert.NilError(t, s.PostRecv(b.iov(0, 8), i))
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
				completion(t, a.request, i)
				completion(t, b.recv, i)
				holds(t, b.ep, want)
				available(t, s, 0)
			}
			if want == udat.ValueUnknown {
				refused(t, b.ep.SetWatermark(3, 4), udat.ModelNotSupported)
			}
		}
		rule.Proves(t, "SRQ-QUERY-03", "EP-WMARK-08")
		rule.Proves(t, "EP-RECVQ-08", "V-35", "C-32")
	})
}

// TestRecvQueryTaken follows receives that a device takes from the queue before their messages have
// come.
func TestRecvQueryTaken(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 8, 8, udat.EPAttr{})
		send := func() {
			t.Helper()
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
		}
		connect(t, a, b)
		b.nic().TakeAhead(3)
		send()
		holds(t, b.ep, 3) // the completed receive is no longer held, although its event is not dequeued
		available(t, s, 4)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 8)
		completion(t, b.recv, 0)
		holds(t, b.ep, 3)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 7)
		refused(t, s.Resize(6), udat.InvalidState) // the 3 receives held by the endpoint count too
		send()
		completion(t, b.recv, 1)
		holds(t, b.ep, 3)
		available(t, s, 3)
		b.nic().TakeAhead(0)
		send()
		completion(t, b.recv, 2)
		holds(t, b.ep, 2)
		available(t, s, 3)
		rule.Proves(t, "EP-RECVQ-01", "EP-RECVQ-02", "EP-RECVQ-06", "SRQ-CREATE-06", "SRQ-QUERY-01",
			"SRQ-QUERY-02", "SRQ-RESIZE-01")
		// The receives that the endpoint holds are flushed before the connection ends; those on the
		// queue stay there.
		assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
		expect(t, b.conn, udat.EventConnectionDisconnected)
		for _, c := range []udat.Cookie{3, 4} {
			ev, err := b.recv.Dequeue()
			assert.NilError(t, err)
			assert.Assert(t, ev.Status == udat.DTOErrFlushed && ev.Cookie == c, "%s", describe(ev))
		}
		empty(t, b.recv)
		holds(t, b.ep, 0)
		available(t, s, 3)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 3)
		rule.Proves(t, "EPST-41", "EP-RECVQ-12")
	})
}

// idle checks the recvIdle result of GetStatus.
func idle(t *testing.T, ep *udat.EP, want bool) {
	t.Helper()
	_, recvs, _, err := ep.GetStatus()
	assert.NilError(t, err)
	assert.Equal(t, recvs, want)
}

// TestStatusSRQ: the receives of an endpoint with a shared queue are those that it has taken and
// not completed. If the device does not count them, recvIdle is true only while there can be none:
// before the connection and after it.
func TestStatusSRQ(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 8, 8, udat.EPAttr{})
		tells := tellsTaken(t, b)
		idle(t, b.ep, true) // the receives on the queue are not the endpoint's
		for range 2 {
			connect(t, a, b)
			idle(t, b.ep, tells)
			if tells {
				b.nic().TakeAhead(3)
			}
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
			ev := next(t, b.recv)
			assert.Equal(t, ev.Status, udat.DTOSuccess)
			idle(t, b.ep, false)
			if tells {
				allocated, _, err := b.ep.RecvQuery()
				assert.NilError(t, err)
				assert.Equal(t, allocated, 3)
				b.nic().TakeAhead(0)
			}
			part(t, a, b, udat.CloseAbrupt)
			eventually(t, func() bool { _, recvs, _, _ := b.ep.GetStatus(); return recvs },
				"nothing is left after the connection")
			for ev, err := b.recv.Dequeue(); err == nil; ev, err = b.recv.Dequeue() {
				assert.Equal(t, ev.Status, udat.DTOErrFlushed, "%s", describe(ev))
			}
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			idle(t, b.ep, true)
			for count(t, s).OutstandingDTOCount < 8 {
				assert.NilError(t, s.PostRecv(b.iov(0, 8), 1))
			}
		}
		rule.Proves(t, "EP-STATUS-02")
	})
}

// TestSRQSoftWatermark: each setting of the watermark makes one event when the endpoint holds more
// receives.
func TestSRQSoftWatermark(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 32, 8, udat.EPAttr{SRQSoftHW: 3})
		async := b.ia.AsyncEVD()
		fires := func() {
			t.Helper()
			ev := expect(t, async, udat.EventAsyncEPSoftHighWatermark)
			assert.Assert(t, ev.Object == udat.Handle(b.ep) && ev.EP == b.ep)
			assert.Equal(t, ev.Reason, uint32(udat.ReasonEPSoftHighWatermark))
		}
		quiet := func() {
			t.Helper()
			time.Sleep(quiet)
			empty(t, async)
		}
		hold := func(n int) { // while a message is on its way it holds one more
			t.Helper()
			b.nic().TakeAhead(n)
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
			expect(t, b.recv, udat.EventDTOCompletion)
			holds(t, b.ep, n)
		}
		connect(t, a, b)
		hold(2)
		quiet()
		hold(3)
		fires()
		hold(5)
		quiet() // once
		rule.Proves(t, "EP-WMARK-02", "EP-CREATESRQ-08")
		assert.NilError(t, b.ep.SetWatermark(4, udat.WatermarkInfinite))
		fires() // 5 are above
		assert.NilError(t, b.ep.SetWatermark(7, udat.WatermarkInfinite))
		assert.NilError(t, b.ep.SetWatermark(6, udat.WatermarkInfinite)) // replaces it
		quiet()
		hold(6)
		fires()
		assert.NilError(t, b.ep.SetWatermark(6, udat.WatermarkInfinite)) // 6 are not above
		quiet()
		assert.NilError(t, b.ep.SetWatermark(5, udat.WatermarkInfinite))
		fires()
		rule.Proves(t, "EP-WMARK-01", "EP-WMARK-04", "EP-WMARK-05")
		// A watermark that has fired is not armed by a new queue pair or a new attribute. A
		// watermark that has not fired stays armed.
		renew := func() {
			t.Helper()
			part(t, a, b, udat.CloseAbrupt)
			b.drain(b.recv)
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			assert.NilError(t, b.ep.Modify(udat.EPFieldMaxRequestDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRequestDTOs: 7}}))
			for count(t, s).OutstandingDTOCount < 32 {
				assert.NilError(t, s.PostRecv(nil, 1))
			}
			connect(t, a, b)
		}
		renew()
		hold(8)
		quiet()
		assert.NilError(t, b.ep.SetWatermark(9, udat.WatermarkInfinite))
		renew()
		hold(10)
		fires()
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, udat.WatermarkInfinite))
		hold(14)
		quiet()
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		rule.Proves(t, "EP-WMARK-06")
	})
}

// drain takes all events.
func (e *end) drain(evd *udat.EVD) {
	for err := error(nil); err == nil; {
		_, err = evd.Dequeue()
	}
}

// TestSRQHardWatermarkStays: a change of other attributes does not change the hard watermark,
// whether it was set by a call or by the attribute.
func TestSRQHardWatermarkStays(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, c := range []struct{ attr, call, hold, breaks int }{
			{udat.HWDefault, 2, 3, 1}, {8, 2, 3, 1}, {2, 8, 3, 0}, {2, udat.WatermarkInfinite, 6, 0},
		} {
			for field, attr := range map[udat.EPField]udat.EPAttr{
				udat.EPFieldMaxRequestDTOs: {MaxRequestDTOs: 9}, udat.EPFieldMaxMessageSize: {MaxMessageSize: 100},
				udat.EPFieldMaxRDMAReadIn: {MaxRDMAReadIn: 2}, udat.EPFieldRecvCompletionFlags: {},
			} {
				a, b, _ := oneWithSRQ(t, dev, 16, 8, udat.EPAttr{MaxRecvDTOs: c.attr})
				assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, c.call))
				assert.NilError(t, b.ep.Modify(field, udat.EPParam{Attr: attr}))
				connect(t, a, b)
				b.nic().TakeAhead(c.hold)
				assert.NilError(t, a.ep.PostSend(nil, 1, 0))
				if c.breaks == 1 {
					expect(t, b.conn, udat.EventConnectionBroken)
					continue
				}
				completion(t, a.request, 1)
				next(t, b.recv)
				assert.Equal(t, state(t, b.ep), udat.EPConnected, "field 0x%x", uint32(field))
			}
		}
		rule.Proves(t, "EP-WMARK-05", "EP-MODIFY-09")
	})
}

// TestSRQHardWatermark: the connection breaks when the endpoint holds more receives.
func TestSRQHardWatermark(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 16, 8, udat.EPAttr{MaxRecvDTOs: 3})
		breaks := func() {
			t.Helper()
			assert.Equal(t, expect(t, b.conn, udat.EventConnectionBroken).EP, b.ep)
			assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
			parted(t, a)
			holds(t, b.ep, 0)
			b.drain(b.recv)
			a.drain(a.request)
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			for count(t, s).OutstandingDTOCount < 16 {
				assert.NilError(t, s.PostRecv(nil, 1))
			}
			empty(t, b.ia.AsyncEVD())
		}
		hold := func(n int) {
			t.Helper()
			b.nic().TakeAhead(n)
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		}
		connect(t, a, b)
		hold(2)
		completion(t, a.request, 1)
		completion(t, b.recv, 0)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		hold(3)
		breaks()
		rule.Proves(t, "EP-WMARK-03", "EP-CREATESRQ-08")
		connect(t, a, b) // and so the next one
		hold(3)
		breaks()
		// By the call.
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 10))
		connect(t, a, b)
		hold(6)
		completion(t, a.request, 1)
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 6))
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 5))
		breaks()
		rule.Proves(t, "EP-WMARK-04")
		// As soon as the connection is established, because of messages that came before.
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 2))
		cr := ask(t, a, b, nil)
		b.nic().TakeAhead(4)
		assert.NilError(t, cr.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		expect(t, b.conn, udat.EventConnectionEstablished)
		breaks()
		rule.Proves(t, "EP-WMARK-07")
		// An attribute is a setting too.
		b.nic().TakeAhead(4)
		assert.NilError(t, b.ep.Modify(udat.EPFieldMaxRecvDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRecvDTOs: udat.HWDefault}}))
		connect(t, a, b)
		hold(9)
		completion(t, a.request, 1)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
	})
}

// TestSRQWatermarkUnknown: a device that does not count the receives that endpoints take has no
// high watermarks.
func TestSRQWatermarkUnknown(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		_, b, _ := oneWithSRQ(t, dev, 4, 8, udat.EPAttr{MaxRecvDTOs: 2, SRQSoftHW: 1})
		if err := b.ep.SetWatermark(3, 4); tellsTaken(t, b) {
			assert.NilError(t, err)
		} else {
			refused(t, err, udat.ModelNotSupported)
		}
		refused(t, b.ep.SetWatermark(-2, 4), udat.InvalidParameter)
		rule.Proves(t, "EP-WMARK-08")
	})
}

// TestSRQFreeHolding frees, resets and closes endpoints that hold receives of the queue: each place
// becomes free again, and a freed endpoint makes no more events.
func TestSRQFreeHolding(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 8, 8, udat.EPAttr{})
		connect(t, a, b)
		b.nic().TakeAhead(3)
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		completion(t, b.recv, 0)
		assert.NilError(t, b.ep.Free())
		empty(t, b.recv)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 4)
		available(t, s, 4)
		rule.Proves(t, "EP-FREE-04", "OBJ-08")
		for i := range 4 {
			assert.NilError(t, s.PostRecv(nil, udat.Cookie(i)))
		}
		assert.ErrorIs(t, s.PostRecv(nil, 9), udat.ErrInsufficientResources)
	})
}

// TestSRQHeldBack: receives that have completed before ESTABLISHED count as held by the endpoint,
// and their places become free again when the deferred events are dropped.
func TestSRQHeldBack(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 4, 8, udat.EPAttr{})
		cr := ask(t, b, a, nil)
		release := b.ep.HoldEvents()
		accepted := cr.Accept(a.ep, nil)
		_, _, err := a.conn.Wait(patience, 1)
		var sent, done [2]error
		for i := range sent {
			sent[i] = a.ep.PostSend(nil, 1, 0)
			_, _, done[i] = a.request.Wait(patience, 1)
		}
		_, early := b.recv.Dequeue()
		allocated, _, _ := b.ep.RecvQuery()
		left := count(t, s).OutstandingDTOCount
		b.ep.DropHeld()
		after := count(t, s).OutstandingDTOCount
		release()
		for _, err := range []error{accepted, err, sent[0], sent[1], done[0], done[1]} {
			assert.NilError(t, err)
		}
		assert.ErrorIs(t, early, udat.ErrQueueEmpty)
		if tellsTaken(t, b) {
			assert.Equal(t, allocated, 2) // taken, and not on the dispatcher
		}
		assert.DeepEqual(t, []int{left, after}, []int{4, 2})
		expect(t, b.conn, udat.EventConnectionEstablished)
		empty(t, b.recv) // dropped events do not appear later
		rule.Proves(t, "EVD-46", "SRQ-CREATE-06")
	})
}

// TestSRQDispatcherFreed frees a dispatcher on which events of shared receives are queued: their
// places become free again.
func TestSRQDispatcherFreed(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b, s := oneWithSRQ(t, dev, 4, 8, udat.EPAttr{})
		connect(t, a, b)
		for range 3 {
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
		}
		eventually(t, func() bool { _, n, _ := b.recv.Wait(0, 3); return n == 2 }, "three completions") // takes one
		assert.Equal(t, count(t, s).OutstandingDTOCount, 3)
		assert.NilError(t, b.ep.Free())
		assert.NilError(t, b.recv.Free())
		assert.Equal(t, count(t, s).OutstandingDTOCount, 1)
	})
}

// TestSRQFreeMidMessage frees endpoints while long messages are being received: no receive of the
// queue is lost.
func TestSRQFreeMidMessage(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const n, size = 6, 1 << 20
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		from, to := a.lmr(size, udat.PrivAll), b.lmr(size, udat.PrivAll)
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: n, MaxRecvIOV: 1})
		fill := func() {
			for count(t, s).OutstandingDTOCount < n {
				assert.NilError(t, s.PostRecv([]udat.LMRTriplet{to.Triplet(0, size)}, 1))
			}
		}
		for round := range 6 {
			b.share(t, s, udat.EPAttr{})
			fill()
			connect(t, a, b)
			for range n {
				assert.NilError(t, a.ep.PostSend([]udat.LMRTriplet{from.Triplet(0, size)}, 1, udat.CompletionSuppress))
			}
			time.Sleep(time.Duration(round) * 2 * time.Millisecond)
			assert.NilError(t, b.ep.Free())
			b.ep = nil
			become(t, a.ep, udat.EPDisconnected)
			assert.NilError(t, a.ep.Reset())
			for _, evd := range []*udat.EVD{a.request, a.conn, b.recv, b.conn} {
				b.drain(evd)
			}
		}
		// Another endpoint can take as many receives as the queue reports.
		b.share(t, s, udat.EPAttr{})
		fill()
		connect(t, a, b)
		for i := range udat.Cookie(n) {
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
			completion(t, a.request, i)
			expect(t, b.recv, udat.EventDTOCompletion)
		}
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
		rule.Proves(t, "EPST-41", "GAP-83", "GAP-34")
	})
}
