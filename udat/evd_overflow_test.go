package udat_test

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// flood posts n writes to the peer, or a few more. No call dequeues their completions.
func (e *end) flood(t *testing.T, peer *end, n int) {
	t.Helper()
	ops := make([]udat.Op, 16)
	for i := 0; i < n; {
		for j := range ops {
			ops[j] = udat.Op{Kind: udat.OpRDMAWrite, IOV: e.iov(0, 1), Remote: peer.mem.RMRTriplet(0, 1),
				Cookie: udat.Cookie(i + j)}
		}
		posted, err := e.ep.PostBatch(ops)
		if err != nil {
			refused(t, err, udat.InsufficientResources, udat.SubResourceCredits)
		}
		i += posted
	}
	eventually(t, func() bool { _, _, idle, err := e.ep.GetStatus(); return err == nil && idle }, "all is done")
}

// TestOverflowBounded keeps posting although no call dequeues the completions: the overflow is
// reported once, queued events stay in order, later events are lost, and the memory for events is
// bounded. The endpoint still works.
func TestOverflowBounded(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const qlen, posts = 2, 4600
		a, b := pair(t, dev, setup{qlen: qlen})
		a.flood(t, b, posts)
		ev := expect(t, a.ia.AsyncEVD(), udat.EventAsyncEVDOverflow)
		assert.Equal(t, ev.Object, udat.Handle(a.request))
		assert.ErrorContains(t, ev.Err(), "enlarge the queue with Resize")
		kept := udat.Queued(a.request)
		assert.Equal(t, kept, qlen+udat.OverflowRoom)
		for i := range kept {
			completion(t, a.request, udat.Cookie(i))
		}
		empty(t, a.request)
		empty(t, a.ia.AsyncEVD())
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 1), 7, b.mem.RMRTriplet(0, 1), 0))
		completion(t, a.request, 7)
		rule.Proves(t, "EVD-50", "GAP-11")
	})
}

// TestOverflowOver: an overflow ends when half of the queue is free. Until then a further overflow
// is not reported; later it is.
func TestOverflowOver(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const qlen = 8
		a, b := pair(t, dev, setup{})
		assert.NilError(t, a.request.Resize(qlen))
		write := func(n int) {
			t.Helper()
			for range n {
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 1), 0, b.mem.RMRTriplet(0, 1), 0))
			}
			eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "all is done")
		}
		takeUntil := func(left int) {
			t.Helper()
			for udat.Queued(a.request) > left {
				completion(t, a.request, 0)
			}
		}
		told := func() { t.Helper(); expect(t, a.ia.AsyncEVD(), udat.EventAsyncEVDOverflow) }
		write(qlen)
		empty(t, a.ia.AsyncEVD())
		write(1)
		told()
		write(qlen)
		takeUntil(qlen/2 + 1)
		write(qlen)
		empty(t, a.ia.AsyncEVD())
		takeUntil(qlen / 2)
		write(qlen)
		told()
		empty(t, a.ia.AsyncEVD())
		rule.Proves(t, "EVD-50", "GAP-11")
	})
}

// TestOverflowKeepsOutstanding: an overflowed queue keeps at least as many events as operations can
// be in flight.
func TestOverflowKeepsOutstanding(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		const size, messages = 64, 4600
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: messages, MaxRecvIOV: 1})
		b.recv = b.evd(size, udat.EVDDTO)
		b.share(t, s, udat.EPAttr{})
		connect(t, a, b)
		for range messages {
			assert.NilError(t, s.PostRecv(nil, 1))
		}
		for range messages {
			eventually(t, func() bool { return a.ep.PostSend(nil, 1, udat.CompletionSuppress) == nil }, "room for a send")
		}
		eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "all is sent")
		b.ep.GetStatus()
		assert.Equal(t, udat.Queued(b.recv), messages)
		assert.Equal(t, count(t, s).OutstandingDTOCount, messages)
		b.drain(b.recv)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
	})
}

// TestOverflowLosesShared: if the event of a shared receive is lost, the receive no longer counts
// as outstanding.
func TestOverflowLosesShared(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{qlen: 2})
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
		b.recv = b.request
		b.share(t, s, udat.EPAttr{})
		connect(t, a, b)
		b.flood(t, a, 4600)
		assert.Equal(t, expect(t, b.ia.AsyncEVD(), udat.EventAsyncEVDOverflow).Object, udat.Handle(b.request))
		kept := udat.Queued(b.request)
		for i := range udat.Cookie(2) {
			assert.NilError(t, s.PostRecv(b.iov(0, 8), i))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, 0))
			completion(t, a.request, i)
			eventually(t, func() bool { b.ep.GetStatus(); return count(t, s).OutstandingDTOCount == 0 }, "the place is free")
		}
		assert.Equal(t, udat.Queued(b.request), kept)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		rule.Proves(t, "EVD-50")
	})
}

// TestOverflowLosesHeld: the same is true if the event was deferred until ESTABLISHED and then
// finds no room.
func TestOverflowLosesHeld(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{qlen: 2})
		connect(t, a, b)
		b.flood(t, a, 4600)
		kept := udat.Queued(b.request)
		late, second := newEnd(t, dev, setup{}), *b
		second.recv, second.conn, second.ep = b.request, b.evd(4, udat.EVDConnection), nil
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
		second.share(t, s, udat.EPAttr{})
		assert.NilError(t, s.PostRecv(b.iov(0, 8), 1))
		cr := ask(t, &second, late, nil)
		release := second.ep.HoldEvents()
		accepted := cr.Accept(late.ep, nil)
		_, _, established := late.conn.Wait(patience, 1)
		sent := late.ep.PostSend(late.iov(0, 8), 1, 0)
		_, _, completed := late.request.Wait(patience, 1)
		b.ep.GetStatus() // takes the receive's completion
		release()
		assert.NilError(t, errors.Join(accepted, established, sent, completed))
		expect(t, second.conn, udat.EventConnectionEstablished)
		assert.Equal(t, udat.Queued(b.request), kept)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
	})
}

// TestOverflowAfterFree: events of a freed endpoint take no room from the events of other
// endpoints, even if the freed endpoint had most of the requests that could be in flight.
func TestOverflowAfterFree(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const posts = 5000 // more than an overflowed dispatcher keeps in any case
		a, b := pair(t, dev, setup{qlen: 8})
		_, attr, _, err := a.ia.Query()
		assert.NilError(t, err)
		if attr.MaxDTOPerEP < posts {
			t.Skipf("the device has %d requests in flight at most", attr.MaxDTOPerEP)
		}
		x, y := *a, *b
		x.ep, err = a.ia.CreateEP(a.pz, a.recv, a.request, a.conn, &udat.EPAttr{MaxRequestDTOs: posts, MaxRecvDTOs: 1})
		if errors.Is(err, fabric.ErrNotSupported) {
			t.Skip("the device cannot resize completion queues")
		}
		assert.NilError(t, err)
		y.ep = b.another(nil)
		connect(t, &x, &y)
		for range posts {
			assert.NilError(t, x.ep.PostRDMAWrite(x.iov(0, 1), 1, y.mem.RMRTriplet(0, 1), 0))
		}
		eventually(t, func() bool { _, _, idle, err := x.ep.GetStatus(); return err == nil && idle }, "all is done")
		assert.NilError(t, x.ep.Free())
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 1), 7, b.mem.RMRTriplet(0, 1), 0))
		eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "all is done")
		for range posts {
			completion(t, a.request, 1)
		}
		completion(t, a.request, 7)
	})
}

// TestOverflowDropsFreed: when there is no room left, events of freed endpoints go, not those of an
// endpoint that lives. Each event that stays is in order.
func TestOverflowDropsFreed(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{qlen: 2})
		write := func(cookie udat.Cookie) {
			t.Helper()
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 1), cookie, b.mem.RMRTriplet(0, 1), 0))
			eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "all is done")
		}
		for round := range udat.Cookie(2) {
			x, y := *a, *b
			x.ep, y.ep = a.another(nil), b.another(nil)
			connect(t, &x, &y)
			write(10*round + 1)
			x.flood(t, &y, 4600)
			full := udat.Queued(a.request)
			write(10*round + 2) // is lost
			assert.Equal(t, udat.Queued(a.request), full)
			assert.NilError(t, x.ep.Free())
			write(10*round + 3)
			write(10*round + 4)
			expect(t, b.conn, udat.EventConnectionDisconnected)
			assert.NilError(t, y.ep.Free())
		}
		for round := range udat.Cookie(2) {
			for _, of := range []udat.Cookie{1, 3, 4} {
				completion(t, a.request, 10*round+of)
			}
		}
		empty(t, a.request)
	})
}
