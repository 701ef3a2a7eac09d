package udat_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

// shared makes a shared receive queue, or skips the test if the device has none.
func (e *end) shared(t *testing.T, attr udat.SRQAttr) *udat.SRQ {
	t.Helper()
	s, err := e.ia.CreateSRQ(e.pz, attr)
	_, _, p, qerr := e.ia.Query()
	assert.NilError(t, qerr)
	if !p.SRQSupported {
		assert.ErrorIs(t, err, udat.ErrModelNotSupported)
		t.Skip("the device has no shared receive queues")
	}
	assert.NilError(t, err)
	return s
}

// TestSRQRefused: a refused CreateSRQ leaves no reference. The low watermark of an empty queue
// fires at once.
func TestSRQRefused(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e, other := newEnd(t, dev, setup{}), open(t, dev)
		pz, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		_, err = other.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 4})
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		e.faults().Exhaust(softnic.SRQs, 1)
		_, err = e.ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 4})
		assert.ErrorIs(t, err, udat.ErrInsufficientResources)
		s, err := e.ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: 4})
		assert.NilError(t, err)
		p, err := s.Query()
		assert.NilError(t, err)
		assert.DeepEqual(t, []int{p.AvailableDTOCount, p.OutstandingDTOCount}, []int{0, 0})
		assert.ErrorIs(t, pz.Free(), udat.ErrInvalidState)
		assert.NilError(t, s.SetLW(2)) // fires at once, and only once
		expect(t, e.ia.AsyncEVD(), udat.EventAsyncSRQLowWatermark)
		e.faults().Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: udat.FabricSRQ(s)})
		assert.NilError(t, s.SetLW(1))
		expect(t, e.ia.AsyncEVD(), udat.EventAsyncSRQLowWatermark)
		time.Sleep(50 * time.Millisecond)
		empty(t, e.ia.AsyncEVD())
		// A post is valid in both states of the queue.
		assert.NilError(t, s.PostRecv(nil, 1))
		assert.NilError(t, s.SetLW(1))
		for range 2 { // a device that reports it twice
			e.faults().Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQLimit, SRQ: udat.FabricSRQ(s)})
		}
		expect(t, e.ia.AsyncEVD(), udat.EventAsyncSRQLowWatermark)
		e.faults().Report(fabric.AsyncEvent{Kind: fabric.AsyncSRQError, SRQ: udat.FabricSRQ(s)})
		expect(t, e.ia.AsyncEVD(), udat.EventAsyncProviderInternalError)
		assert.Equal(t, count(t, s).State, udat.SRQError)
		assert.NilError(t, s.PostRecv(nil, 2))
		assert.Equal(t, count(t, s).OutstandingDTOCount, 2)
		rule.Proves(t, "SRQ-POST-04")
		assert.NilError(t, s.Free())
		assert.NilError(t, pz.Free())
	})
}

// share replaces the end's endpoint by an endpoint with a shared queue.
func (e *end) share(t *testing.T, s *udat.SRQ, attr udat.EPAttr) {
	t.Helper()
	if e.ep != nil {
		assert.NilError(t, e.ep.Free())
	}
	var err error
	e.ep, err = e.ia.CreateEPWithSRQ(e.pz, e.recv, e.request, e.conn, s, &attr)
	assert.NilError(t, err)
}

// twoWithSRQ returns two ends a1 and a2, connected to the ends b1 and b2 of one adapter. The
// endpoints of b1 and b2 share a queue of the given size; their streams have separate dispatchers.
func twoWithSRQ(t *testing.T, dev string, size int, attr udat.EPAttr) (a1, a2, b1, b2 *end, s *udat.SRQ) {
	t.Helper()
	a1, a2, b1 = newEnd(t, dev, setup{}), newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
	s = b1.shared(t, udat.SRQAttr{MaxRecvDTOs: size, MaxRecvIOV: 2})
	second := *b1
	b2 = &second
	b2.recv, b2.request, b2.conn = b1.evd(128, udat.EVDDTO), b1.evd(128, udat.EVDDTO), b1.evd(128, udat.EVDConnection)
	b2.ep = nil
	b1.share(t, s, attr)
	b2.share(t, s, attr)
	connect(t, a1, b1)
	connect(t, a2, b2)
	return a1, a2, b1, b2, s
}

func count(t *testing.T, s *udat.SRQ) udat.SRQParam {
	t.Helper()
	p, err := s.Query()
	assert.NilError(t, err)
	return p
}

// available checks the number of receives on the queue, if the device reports it.
func available(t *testing.T, s *udat.SRQ, want int) {
	t.Helper()
	p := count(t, s)
	_, _, attr, err := p.IA.Query()
	assert.NilError(t, err)
	if attr.SRQInfoSupported&udat.SRQInfoAvailable == 0 {
		want = udat.ValueUnknown
	}
	assert.Equal(t, p.AvailableDTOCount, want)
}

// TestSRQ tests a queue that serves two endpoints with separate dispatchers.
func TestSRQ(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 16, udat.EPAttr{})
		p := count(t, s)
		assert.Assert(t, p.IA == b1.ia && p.PZ == b1.pz && p.State == udat.SRQOperational &&
			p.LowWatermark == udat.SRQLWDefault)
		assert.Assert(t, p.MaxRecvDTOs >= 16 && p.MaxRecvIOV >= 2)
		rule.Proves(t, "SRQ-CREATE-01", "SRQ-QUERY-01")
		var recvs []udat.Recv
		for i := range 17 {
			iov := []udat.LMRTriplet{b1.mem.Triplet(i*100, 60), b1.mem.Triplet(i*100+80, 20)}
			recvs = append(recvs, udat.Recv{IOV: iov, Cookie: udat.Cookie(100 + i)})
		}
		for _, r := range recvs[:4] {
			assert.NilError(t, s.PostRecv(r.IOV, r.Cookie))
		}
		n, err := s.PostRecvBatch(recvs[4:]) // one more than there is room for
		assert.Equal(t, n, 12)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InsufficientResources, udat.SubResourceSRQ))
		available(t, s, 16)
		assert.ErrorIs(t, s.PostRecv(nil, 0), udat.ErrInsufficientResources)
		used := map[udat.Cookie]bool{}
		for i := range 6 {
			for j, pair := range [][2]*end{{a1, b1}, {a2, b2}} {
				from, to := pair[0], pair[1]
				want := from.put(0, 70, byte(i*2+j))
				assert.NilError(t, from.ep.PostSend(from.iov(0, 70), udat.Cookie(i), 0))
				ev := expect(t, to.recv, udat.EventDTOCompletion)
				assert.Assert(t, ev.Status == udat.DTOSuccess && ev.EP == to.ep && ev.Length == 70, "%s", describe(ev))
				assert.Assert(t, ev.Cookie >= 100 && ev.Cookie < 116 && !used[ev.Cookie], "%s", describe(ev))
				used[ev.Cookie] = true
				at := int(ev.Cookie-100) * 100
				assert.DeepEqual(t, b1.get(at, 60), want[:60])
				assert.DeepEqual(t, b1.get(at+80, 10), want[60:])
				assert.DeepEqual(t, b1.get(at+90, 10), make([]byte, 10))
				completion(t, from.request, udat.Cookie(i))
			}
		}
		rule.Proves(t, "SRQ-POST-01", "SRQ-POST-03", "SRQ-CREATE-05", "EP-CREATESRQ-01", "EVD-24")
		available(t, s, 4)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 4)
	})
}

// TestSRQOrder shows that the receives of each connection complete in the order of its sends.
func TestSRQOrder(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 64, udat.EPAttr{})
		for i := range 40 {
			assert.NilError(t, s.PostRecv(b1.iov(i*8, 8), udat.Cookie(i)))
		}
		for i := range 10 {
			for _, a := range []*end{a1, a2} {
				a.get(i*8, 1)[0] = byte(i)
				assert.NilError(t, a.ep.PostSend(a.iov(i*8, i%8+1), udat.Cookie(i), 0))
			}
		}
		for _, b := range []*end{b1, b2} {
			for i := range 10 {
				ev := expect(t, b.recv, udat.EventDTOCompletion)
				assert.Equal(t, ev.Length, uint64(i%8+1))
				assert.Equal(t, b1.get(int(ev.Cookie)*8, 1)[0], byte(i))
			}
		}
		rule.Proves(t, "SRQ-POST-08", "EVD-44")
	})
}

// TestSRQCounts is the example of the specification: ten places, three receives.
func TestSRQCounts(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _, b, _, s := twoWithSRQ(t, dev, 10, udat.EPAttr{})
		for i := range 3 {
			assert.NilError(t, s.PostRecv(b.iov(i, 1), udat.Cookie(i)))
		}
		available(t, s, 3)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 3)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 1), 1, 0))
		completion(t, a.request, 1)
		available(t, s, 2)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 3)
		expect(t, b.recv, udat.EventDTOCompletion)
		available(t, s, 2)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 2)
		rule.Proves(t, "SRQ-QUERY-02", "SRQ-QUERY-03")
		// A completed receive occupies its place until its event is dequeued.
		for i := range 8 {
			assert.NilError(t, s.PostRecv(b.iov(i, 1), udat.Cookie(i)))
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 1), 1, 0))
		completion(t, a.request, 1)
		assert.NilError(t, b.recv.Resize(200)) // which takes the completion from the device
		refused(t, s.PostRecv(b.iov(0, 1), 9), udat.InsufficientResources, udat.SubResourceSRQ)
		expect(t, b.recv, udat.EventDTOCompletion)
		assert.NilError(t, s.PostRecv(b.iov(0, 1), 9))
	})
}

// TestSRQNoDispatcher uses a queue with an endpoint that has no receive dispatcher.
func TestSRQNoDispatcher(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 2})
		b.recv = nil
		b.share(t, s, udat.EPAttr{})
		connect(t, a, b)
		for i := range 6 {
			eventually(t, func() bool { b.ep.GetStatus(); return s.PostRecv(b.iov(i, 1), 1) == nil }, "receive %d", i)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 1), 2, 0))
			completion(t, a.request, 2)
		}
	})
}

// TestSRQErrors shows the errors of the calls.
func TestSRQErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: 2, MaxRecvIOV: 2})
		_, attr, _, err := e.ia.Query()
		assert.NilError(t, err)
		foreign := newEnd(t, dev, setup{})
		for _, c := range []struct {
			pz   *udat.PZ
			attr udat.SRQAttr
			want *udat.Error
		}{
			{nil, udat.SRQAttr{MaxRecvDTOs: 1}, udat.WithSubtype(udat.InvalidHandle, udat.SubHandlePZ)},
			{foreign.pz, udat.SRQAttr{MaxRecvDTOs: 1}, udat.WithSubtype(udat.InvalidHandle, udat.SubHandlePZ)},
			{e.pz, udat.SRQAttr{}, udat.ErrInvalidParameter},
			{e.pz, udat.SRQAttr{MaxRecvDTOs: -1}, udat.ErrInvalidParameter},
			{e.pz, udat.SRQAttr{MaxRecvDTOs: attr.MaxRecvPerSRQ + 1}, udat.ErrInvalidParameter},
			{e.pz, udat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: 1000}, udat.ErrInvalidParameter},
			{e.pz, udat.SRQAttr{MaxRecvDTOs: 1, MaxRecvIOV: -1}, udat.ErrInvalidParameter},
		} {
			_, err := e.ia.CreateSRQ(c.pz, c.attr)
			assert.ErrorIs(t, err, c.want, "%+v", c.attr)
		}
		rule.Proves(t, "SRQ-CREATE-07")
		_, err = e.ia.CreateSRQ(e.pz, udat.SRQAttr{MaxRecvDTOs: 4, LowWatermark: 1})
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		rule.Proves(t, "SRQ-CREATE-02")

		pz, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		zoned, err := e.ia.AllocLMR(pz, 100, udat.PrivAll)
		assert.NilError(t, err)
		freed := e.lmr(10, udat.PrivAll)
		assert.NilError(t, freed.Free())
		for _, c := range []struct {
			iov  []udat.LMRTriplet
			want *udat.Error
		}{
			{[]udat.LMRTriplet{e.mem.Triplet(1, endMemory)}, udat.ErrInvalidParameter},
			{[]udat.LMRTriplet{e.mem.Triplet(0, 1), e.mem.Triplet(1, 1), e.mem.Triplet(2, 1)}, udat.ErrInvalidParameter},
			{[]udat.LMRTriplet{zoned.Triplet(0, 1)}, udat.WithSubtype(udat.ProtectionViolation, udat.SubProtectionWrite)},
			{[]udat.LMRTriplet{e.lmr(10, udat.PrivLocalRead).Triplet(0, 1)},
				udat.WithSubtype(udat.PrivilegesViolation, udat.SubPrivilegesWrite)},
			{[]udat.LMRTriplet{freed.Triplet(0, 1)}, udat.ErrPrivilegesViolation},
			{[]udat.LMRTriplet{{SegmentLength: 1}}, udat.ErrPrivilegesViolation},
		} {
			assert.ErrorIs(t, s.PostRecv(c.iov, 1), c.want)
		}
		n, err := s.PostRecvBatch([]udat.Recv{{Flags: udat.CompletionUnsignalled}, {}})
		assert.Equal(t, n, 0)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
		rule.Proves(t, "SRQ-CREATE-03")
		assert.NilError(t, s.PostRecv(e.iov(0, 1), 1))
		assert.NilError(t, s.PostRecv([]udat.LMRTriplet{{VirtualAddress: 5}}, 2))
		refused(t, s.PostRecv(e.iov(0, 1), 3), udat.InsufficientResources, udat.SubResourceSRQ)
		rule.Proves(t, "SRQ-POST-11")
		// Free with receives on it: they are dropped.
		ep, err := e.ia.CreateEPWithSRQ(e.pz, e.recv, e.request, e.conn, s, &udat.EPAttr{})
		assert.NilError(t, err)
		refused(t, s.Free(), udat.InvalidState, udat.SubStateSRQInUse)
		assert.NilError(t, ep.Free())
		rule.Proves(t, "SRQ-FREE-01")
		assert.NilError(t, s.Free())
		empty(t, e.recv)
		rule.Proves(t, "SRQ-FREE-02")
	})
}

// TestSRQAllocations shows that a post allocates nothing.
func TestSRQAllocations(t *testing.T) {
	if udat.CheckingLocks {
		t.Skip("the checker of locks allocates")
	}
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: 200, MaxRecvIOV: 1})
		iov := e.iov(0, 8)
		allocs := testing.AllocsPerRun(100, func() {
			if err := s.PostRecv(iov, 1); err != nil {
				t.Error(err)
			}
		})
		assert.Equal(t, allocs, 0.0)
		rule.Proves(t, "SRQ-POST-04", "GEN-09")
	})
}

// TestSRQBatchRefused: if the device refuses a receive of a batch, the receives before it are
// posted, and the places of the others are free again.
func TestSRQBatchRefused(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		e := newEnd(t, dev, setup{script: &script})
		s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: 100, MaxRecvIOV: 1})
		batch := make([]udat.Recv, 100)
		call := script.On(faultfabric.PostRecv).Skip(1).Fail(syscall.ENOMEM)
		n, err := s.PostRecvBatch(batch)
		call.Stop()
		assert.Equal(t, n, 64)
		assert.ErrorIs(t, err, syscall.ENOMEM)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 64)
		n, err = s.PostRecvBatch(batch[64:])
		assert.NilError(t, err)
		assert.Equal(t, n, 36)
		refused(t, s.PostRecv(nil, 0), udat.InsufficientResources, udat.SubResourceSRQ)
	})
}

// TestSRQEmpty tests a Send that finds the queue empty.
func TestSRQEmpty(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		// With unlimited retries the Send waits until a receive is posted.
		a, _, b, _, s := twoWithSRQ(t, dev, 4, udat.EPAttr{})
		late := acknowledged(a)
		if !late {
			assert.NilError(t, s.PostRecv(nil, 2))
		}
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		if late {
			time.Sleep(20 * time.Millisecond)
			empty(t, a.request)
			assert.NilError(t, s.PostRecv(nil, 2))
		}
		completion(t, a.request, 1)
		assert.Equal(t, completion(t, b.recv, 2).Length, uint64(0))
		rule.Proves(t, "SRQ-POST-02")
		if !late { // there is nothing to retry: the next message ends the connection
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
			broken(t, a, b)
			rule.Proves(t, "SRQ-CREATE-04")
			return
		}
		// With limited retries the connection breaks.
		c := newEnd(t, dev, setup{opts: []udat.Option{udat.WithRNRRetry(1)}})
		_, _, p, err := c.ia.Query()
		assert.NilError(t, err)
		if p.Specific(udat.AttrRNRRetryFinite) != "TRUE" {
			t.Skip("the device retries for ever")
		}
		d := newEnd(t, dev, setup{})
		d.share(t, d.shared(t, udat.SRQAttr{MaxRecvDTOs: 4}), udat.EPAttr{})
		connect(t, c, d)
		assert.NilError(t, c.ep.PostSend(nil, 3, 0))
		failed(t, c.request, 3, udat.DTOErrReceiverNotReady)
		expect(t, c.conn, udat.EventConnectionBroken)
		rule.Proves(t, "SRQ-CREATE-04")
	})
}

// TestSRQNotification shows which shared receives wake a waiter.
func TestSRQNotification(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, c := range []struct {
			flags     udat.CompletionFlags
			solicited bool // only those of solicited sends
		}{{udat.CompletionDefault, false}, {udat.CompletionUnsignalled, false}, {udat.CompletionEVDThreshold, false},
			{udat.CompletionSolicitedWait, true}} {
			a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{unkept: true})
			if c.solicited && !udat.DeviceAttr(b.ia).SolicitedArm {
				continue
			}
			s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4})
			b.share(t, s, udat.EPAttr{RecvCompletionFlags: c.flags})
			connect(t, a, b)
			for i := range 4 {
				assert.NilError(t, s.PostRecv(nil, udat.Cookie(i)))
			}
			w := waitOn(t, b.recv, udat.Infinite, 1)
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			if c.solicited {
				w.still(t)
				assert.NilError(t, a.ep.PostSend(nil, 1, udat.CompletionSolicitedWait))
				rule.Proves(t, "SRQ-POST-06")
			}
			r := w.result(t)
			assert.NilError(t, r.err, "flags 0x%x", uint32(c.flags))
			assert.Assert(t, r.ev.Number == udat.EventDTOCompletion && r.ev.EP == b.ep, "%s", describe(r.ev))
		}
		rule.Proves(t, "SRQ-POST-05", "SRQ-POST-07", "EP-CREATESRQ-07", "EVD-24")
	})
}

// TestSRQThreshold waits for several events of shared receives.
func TestSRQThreshold(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _, b, _, s := twoWithSRQ(t, dev, 8, udat.EPAttr{RecvCompletionFlags: udat.CompletionEVDThreshold})
		for i := range 3 {
			assert.NilError(t, s.PostRecv(nil, udat.Cookie(i)))
		}
		w := waitOn(t, b.recv, udat.Infinite, 3)
		for i := range 2 {
			assert.NilError(t, a.ep.PostSend(nil, udat.Cookie(i), 0))
			completion(t, a.request, udat.Cookie(i))
		}
		w.still(t)
		assert.NilError(t, a.ep.PostSend(nil, 2, 0))
		r := w.result(t)
		assert.NilError(t, r.err)
		assert.Equal(t, r.nmore, 2)
		rule.Proves(t, "SRQ-POST-06")
	})
}

// TestSRQResize changes the capacity under load.
func TestSRQResize(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _, b, _, s := twoWithSRQ(t, dev, 4, udat.EPAttr{})
		for i := range 4 {
			assert.NilError(t, s.PostRecv(b.iov(i, 1), udat.Cookie(i)))
		}
		for _, bad := range []int{0, -1, 1 << 30} {
			assert.ErrorIs(t, s.Resize(bad), udat.ErrInvalidParameter)
		}
		rule.Proves(t, "SRQ-RESIZE-03")
		assert.ErrorIs(t, s.Resize(3), udat.ErrInvalidState)
		assert.Equal(t, count(t, s).MaxRecvDTOs, 4)
		err := s.Resize(40)
		unlessUnsupported(t, err)
		room := 4
		if err == nil {
			room = 40
		}
		assert.Assert(t, count(t, s).MaxRecvDTOs >= room)
		for i := 4; i < room; i++ {
			assert.NilError(t, s.PostRecv(b.iov(i, 1), udat.Cookie(i)))
		}
		used := map[udat.Cookie]bool{}
		for i := range room {
			a.get(0, 1)[0] = byte(i)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 1), udat.Cookie(i), 0))
			completion(t, a.request, udat.Cookie(i))
			if left := room - i; left > 1 {
				if i%2 == 0 {
					b.ep.GetStatus() // takes the completion from the device
				}
				assert.ErrorIs(t, s.Resize(left-1), udat.ErrInvalidState,
					"one has completed and is not dequeued, the others are on the queue")
				assert.Assert(t, count(t, s).MaxRecvDTOs >= room)
			}
			ev := expect(t, b.recv, udat.EventDTOCompletion)
			assert.Assert(t, ev.Status == udat.DTOSuccess && !used[ev.Cookie], "%s", describe(ev))
			used[ev.Cookie] = true
			assert.Equal(t, b.get(int(ev.Cookie), 1)[0], byte(i))
		}
		assert.NilError(t, s.SetLW(3))
		expect(t, b.ia.AsyncEVD(), udat.EventAsyncSRQLowWatermark)
		assert.ErrorIs(t, s.Resize(2), udat.ErrInvalidState)
		c := count(t, s)
		assert.Assert(t, c.MaxRecvDTOs >= room && c.LowWatermark == 3, "a refusal changes nothing: %+v", c)
		rule.Proves(t, "SRQ-RESIZE-01")
		assert.NilError(t, s.Resize(3))
		assert.Assert(t, count(t, s).MaxRecvDTOs >= 3)
		assert.NilError(t, s.PostRecv(nil, 1))
		rule.Proves(t, "SRQ-RESIZE-02")
		assert.ErrorIs(t, (*udat.SRQ)(nil).Resize(5), udat.ErrInvalidHandle)
	})
}

// TestSRQLowWatermark tests the event of the low watermark.
func TestSRQLowWatermark(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, _, b, _, s := twoWithSRQ(t, dev, 8, udat.EPAttr{})
		async := b.ia.AsyncEVD()
		low := func() {
			t.Helper()
			ev := expect(t, async, udat.EventAsyncSRQLowWatermark)
			empty(t, async)
			assert.Equal(t, ev.Object, udat.Handle(s))
			assert.Equal(t, ev.Reason, uint32(udat.ReasonSRQLowWatermark))
		}
		take := func() {
			t.Helper()
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
			expect(t, b.recv, udat.EventDTOCompletion)
		}
		for _, bad := range []int{-1, 9} {
			assert.ErrorIs(t, s.SetLW(bad), udat.ErrInvalidParameter)
		}
		atOnce := func(mark int) {
			t.Helper()
			assert.NilError(t, s.SetLW(mark))
			ev, err := async.Dequeue() // it is there when the call returns
			assert.NilError(t, err)
			assert.Assert(t, ev.Number == udat.EventAsyncSRQLowWatermark && ev.Object == udat.Handle(s), "%s", describe(ev))
		}
		refill := func() {
			t.Helper()
			for count(t, s).OutstandingDTOCount < 8 {
				assert.NilError(t, s.PostRecv(nil, 1))
			}
		}
		atOnce(8) // the queue is empty
		refill()
		assert.NilError(t, s.SetLW(6))
		assert.Equal(t, count(t, s).LowWatermark, 6)
		take()
		take()
		time.Sleep(20 * time.Millisecond)
		empty(t, async)
		take() // 5 left
		low()
		take()
		refill()
		for range 4 {
			take()
		}
		time.Sleep(20 * time.Millisecond)
		empty(t, async) // once for each setting, however often it falls below
		rule.Proves(t, "SRQ-SETLW-01", "EVT-02", "EVT-03")
		assert.NilError(t, s.SetLW(2)) // 4 left
		assert.NilError(t, s.SetLW(4)) // replaces
		take()
		low()
		assert.NilError(t, s.SetLW(2))
		atOnce(4) // 3 left
		atOnce(4) // the same value arms the watermark again
		rule.Proves(t, "SRQ-SETLW-02", "SRQ-SETLW-03")
		assert.NilError(t, s.SetLW(3))
		assert.NilError(t, s.SetLW(0))
		take()
		take()
		take()
		time.Sleep(20 * time.Millisecond)
		empty(t, async)
		rule.Proves(t, "SRQ-SETLW-04")
	})
}

// TestSRQLowWhileArming: if a receive is taken while SetLW arms the device, and the device does not
// report it, SetLW itself reports it.
func TestSRQLowWhileArming(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{script: &script})
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4})
		b.share(t, s, udat.EPAttr{})
		connect(t, a, b)
		for range 2 {
			assert.NilError(t, s.PostRecv(nil, 1))
		}
		script.On(faultfabric.Async).With(int(fabric.AsyncSRQLimit)).Drop()
		script.On(faultfabric.Limit, udat.FabricSRQ(s)).Times(1).Before(func() {
			udat.Elsewhere(func() {
				assert.NilError(t, a.ep.PostSend(nil, 1, 0))
				completion(t, a.request, 1)
			})
		})
		assert.NilError(t, s.SetLW(2))
		ev, err := b.ia.AsyncEVD().Dequeue()
		assert.NilError(t, err)
		assert.Assert(t, ev.Number == udat.EventAsyncSRQLowWatermark && ev.Object == udat.Handle(s), "%s", describe(ev))
		rule.Proves(t, "SRQ-SETLW-01", "SRQ-SETLW-03")
	})
}

// TestSRQEndpoint tests the properties of an endpoint with a shared queue.
func TestSRQEndpoint(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 2})
		assert.NilError(t, e.ep.Free())
		make := func(attr *udat.EPAttr) (*udat.EP, error) {
			return e.ia.CreateEPWithSRQ(e.pz, e.recv, e.request, e.conn, s, attr)
		}
		_, err := make(nil)
		refused(t, err, udat.InvalidParameter, udat.SubArg7)
		rule.Proves(t, "EP-CREATESRQ-02")
		_, err = e.ia.CreateEPWithSRQ(e.pz, e.recv, e.request, e.conn, nil, &udat.EPAttr{})
		refused(t, err, udat.InvalidHandle, udat.SubHandleSRQ)
		_, a, prov, err := e.ia.Query()
		assert.NilError(t, err)
		_, err = make(&udat.EPAttr{MaxRDMAReadIOV: a.MaxIOVSegmentsPerRDMARead + 1})
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		rule.Proves(t, "EP-CREATESRQ-06")
		want := udat.EPAttr{
			MaxMessageSize: 12345, MaxRDMASize: 54321, MaxRecvDTOs: 3, SRQSoftHW: 2, MaxRequestDTOs: 7, MaxRequestIOV: 2,
			MaxRecvIOV:    1 << 20,
			MaxRDMAReadIn: 1, MaxRDMAReadOut: 1, MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 2,
			RequestCompletionFlags: udat.CompletionEVDThreshold,
			RecvCompletionFlags:    udat.CompletionEVDThreshold,
		}
		ep, err := make(&want)
		assert.NilError(t, err)
		q, err := ep.Query()
		assert.NilError(t, err)
		assert.Equal(t, q.SRQ, s)
		assert.Equal(t, q.State, udat.EPUnconnected)
		assert.Assert(t, q.Attr.MaxRequestDTOs >= 7 && q.Attr.MaxRequestIOV >= 2)
		got := q.Attr
		got.MaxRequestDTOs, got.MaxRequestIOV, got.MaxRecvIOV = want.MaxRequestDTOs, want.MaxRequestIOV, want.MaxRecvIOV
		assert.DeepEqual(t, got, want)
		assert.NilError(t, ep.Free())
		d := udat.DeviceAttr(e.ia)
		for i, c := range []struct {
			spoil func(a *udat.EPAttr)
			err   error
		}{
			{func(a *udat.EPAttr) { a.MaxRequestDTOs = d.MaxQPWR + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxRequestIOV = d.MaxSGE + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxRecvDTOs = d.MaxQPWR + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.SRQSoftHW = d.MaxSRQWR + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxMessageSize = d.MaxMessage + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxRDMASize = d.MaxMessage + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxRDMAReadIn = d.MaxReadIn + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxRDMAReadOut = d.MaxReadOut + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.MaxRDMAWriteIOV = d.MaxSGE + 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.ServiceType = 1 }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.QoS = udat.QoSPremium }, udat.ErrModelNotSupported},
			{func(a *udat.EPAttr) { a.RequestCompletionFlags = udat.CompletionSolicitedWait }, udat.ErrInvalidParameter},
			{func(a *udat.EPAttr) { a.ProviderSpecific = []udat.NamedAttr{{}} }, udat.ErrInvalidParameter},
		} {
			bad := want
			c.spoil(&bad)
			_, err := make(&bad)
			assert.ErrorIs(t, err, c.err, "%d", i)
		}
		spare := e.evd(8, udat.EVDDTO)
		e.recv, spare = spare, e.recv
		assert.NilError(t, spare.Free(), "a refused call leaves nothing that uses its dispatchers")
		rule.Proves(t, "EP-CREATESRQ-04", "EPST-01")
		for _, s := range canBe(t, dev) {
			if s == udat.EPTentativeConnection {
				continue // the provider's endpoints have no shared queue
			}
			e, peer := newEnd(t, dev, setup{script: &faultfabric.Script{}}), newEnd(t, dev, setup{})
			e.share(t, e.shared(t, udat.SRQAttr{MaxRecvDTOs: 4}), udat.EPAttr{})
			e.enter(peer, s)
			assert.ErrorIs(t, e.ep.PostRecv(nil, 0, 0), udat.ErrInvalidState, "%v", s)
		}
		rule.Proves(t, "EP-CREATESRQ-03", "EPST-55", "EP-RECV-16")
		pz, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		_, err = e.ia.CreateEPWithSRQ(pz, e.evd(8, udat.EVDDTO), e.evd(8, udat.EVDDTO), e.conn, s, &udat.EPAttr{})
		if prov.SRQEPPZDifference {
			assert.NilError(t, err)
		} else {
			assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		}
		one := newEnd(t, dev, setup{script: &faultfabric.Script{Attr: func(d *fabric.Attr) { d.SRQOtherPD = false }}})
		only := one.shared(t, udat.SRQAttr{MaxRecvDTOs: 4})
		pz, err = one.ia.CreatePZ()
		assert.NilError(t, err)
		_, err = one.ia.CreateEPWithSRQ(pz, one.recv, one.request, one.conn, only, &udat.EPAttr{})
		refused(t, err, udat.InvalidParameter)
		one.share(t, only, udat.EPAttr{})
		rule.Proves(t, "EP-CREATESRQ-05")
		plain, err := e.ia.CreateEPWithSRQ(e.pz, nil, nil, nil, s, &udat.EPAttr{})
		assert.NilError(t, err)
		q, err = plain.Query()
		assert.NilError(t, err)
		assert.DeepEqual(t, []int{q.Attr.MaxRecvDTOs, q.Attr.SRQSoftHW}, []int{udat.HWDefault, udat.HWDefault})
		rule.Proves(t, "EP-CREATESRQ-08")
		assert.ErrorIs(t, plain.Modify(udat.EPFieldSRQ, udat.EPParam{}), udat.ErrInvalidParameter)
	})
}

// TestSRQDepthsDefault shows that endpoints with default read depths connect, whatever the read
// depths of the peer are.
func TestSRQDepthsDefault(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, depth := range []int{udat.None, 1, 0} {
			a, b := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: depth, MaxRDMAReadOut: depth}}),
				newEnd(t, dev, setup{})
			b.share(t, b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4}), udat.EPAttr{})
			connect(t, a, b)
		}
		rule.Proves(t, "EP-CREATESRQ-10")
	})
}

// TestSRQZones shows which zone, that of the queue or of the endpoint, applies to each operation.
func TestSRQZones(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		s := b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
		_, _, prov, err := b.ia.Query()
		assert.NilError(t, err)
		if !prov.SRQEPPZDifference {
			// There is only one zone, which both checks use.
			pz, err := b.ia.CreatePZ()
			assert.NilError(t, err)
			zoned, err := b.ia.AllocLMR(pz, 100, udat.PrivAll)
			assert.NilError(t, err)
			b.share(t, s, udat.EPAttr{})
			connect(t, a, b)
			assert.ErrorIs(t, s.PostRecv([]udat.LMRTriplet{zoned.Triplet(0, 1)}, 1), udat.ErrProtectionViolation)
			onlyOwnZone(t, b, a, zoned)
			rule.Proves(t, "OBJ-04")
			return
		}
		srqMem := b.mem // in the queue's zone
		b.pz, err = b.ia.CreatePZ()
		assert.NilError(t, err)
		b.mem = b.lmr(100, udat.PrivAll)
		b.share(t, s, udat.EPAttr{})
		connect(t, a, b)
		assert.ErrorIs(t, s.PostRecv(b.iov(0, 10), 1), udat.ErrProtectionViolation)
		assert.NilError(t, s.PostRecv([]udat.LMRTriplet{srqMem.Triplet(0, 10)}, 2))
		onlyOwnZone(t, b, a, srqMem)
		want := a.put(0, 10, 1)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 10), 5, 0))
		completion(t, b.recv, 2)
		completion(t, a.request, 5)
		assert.DeepEqual(t, srqMem.Bytes()[:10], want)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 6, b.mem.RMRTriplet(0, 10), 0))
		completion(t, a.request, 6)
		assert.DeepEqual(t, b.get(0, 10), want)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 7, srqMem.RMRTriplet(20, 10), 0))
		failed(t, a.request, 7, udat.DTOErrRemoteAccess)
		broken(t, a)
		targetOfFault(t, b)
		rule.Proves(t, "OBJ-04")
	})
}

// onlyOwnZone makes every request with memory of another zone, which is refused, and with memory of
// the endpoint's own zone.
func onlyOwnZone(t *testing.T, e, peer *end, foreign *udat.LMR) {
	t.Helper()
	for _, p := range posters {
		if p.recv {
			continue
		}
		refused(t, p.post(e, peer, []udat.LMRTriplet{foreign.Triplet(0, 8)}, 1, 0), udat.ProtectionViolation)
		if p.remote {
			assert.NilError(t, p.post(e, peer, e.iov(0, 8), 2, 0), p.name)
			completion(t, e.request, 2)
		}
	}
}

// TestSRQDisconnect shows that receives that no endpoint has taken stay on the queue, and serve the
// next connection.
func TestSRQDisconnect(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 8, udat.EPAttr{})
		for i := range 5 {
			assert.NilError(t, s.PostRecv(b1.iov(i, 1), udat.Cookie(i)))
		}
		assert.NilError(t, a1.ep.PostSend(nil, 1, 0))
		completion(t, a1.request, 1)
		assert.NilError(t, a1.ep.Disconnect(udat.CloseAbrupt))
		parted(t, a1, b1)
		ev := expect(t, b1.recv, udat.EventDTOCompletion)
		assert.Equal(t, ev.Status, udat.DTOSuccess)
		empty(t, b1.recv)
		available(t, s, 4)
		assert.Equal(t, count(t, s).OutstandingDTOCount, 4)
		rule.Proves(t, "EPST-41", "SRQ-POST-10")
		again(t, a1, b1)
		q, err := b1.ep.Query()
		assert.NilError(t, err)
		assert.Equal(t, q.SRQ, s)
		other := b1.shared(t, udat.SRQAttr{MaxRecvDTOs: 4})
		for _, replace := range []*udat.SRQ{nil, other} {
			refused(t, b1.ep.Modify(udat.EPFieldSRQ, udat.EPParam{SRQ: replace}), udat.InvalidParameter)
		}
		assert.NilError(t, other.Free(), "no endpoint uses it")
		for i, pair := range [][2]*end{{a1, b1}, {a2, b2}, {a1, b1}, {a2, b2}} {
			assert.NilError(t, pair[0].ep.PostSend(nil, udat.Cookie(i), 0))
			assert.Equal(t, expect(t, pair[1].recv, udat.EventDTOCompletion).EP, pair[1].ep)
		}
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
		rule.Proves(t, "OBJ-05", "EP-CREATESRQ-09")
		assert.ErrorIs(t, s.Free(), udat.ErrInvalidState)
		assert.NilError(t, b1.ep.Free())
		assert.NilError(t, b2.ep.Free())
		assert.NilError(t, s.Free())
	})
}

// TestSRQManyEndpoints makes so many endpoints on one large queue that no completion queue could
// have room for the whole queue once per endpoint.
func TestSRQManyEndpoints(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		_, a, _, err := e.ia.Query()
		assert.NilError(t, err)
		size := min(a.MaxRecvPerSRQ, a.MaxEVDQLen/4)
		s := e.shared(t, udat.SRQAttr{MaxRecvDTOs: size, MaxRecvIOV: 1})
		for range 12 {
			_, err := e.ia.CreateEPWithSRQ(e.pz, e.recv, e.request, e.conn, s, &udat.EPAttr{})
			if errors.Is(err, fabric.ErrNotSupported) {
				t.Skip(err) // the completion queue cannot be resized
			}
			assert.NilError(t, err)
		}
	})
}

// TestSRQFreeInFlight frees and resets endpoints while messages come in: no receive is lost.
func TestSRQFreeInFlight(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 16, udat.EPAttr{})
		for range 5 {
			for count(t, s).OutstandingDTOCount < 16 {
				assert.NilError(t, s.PostRecv(b1.iov(0, 8), 1))
			}
			for range 8 {
				assert.NilError(t, a1.ep.PostSend(a1.iov(0, 8), 1, udat.CompletionSuppress))
			}
			assert.NilError(t, b1.ep.Free())
			var err error
			b1.ep, err = b1.ia.CreateEPWithSRQ(b1.pz, b1.recv, b1.request, b1.conn, s, &udat.EPAttr{})
			assert.NilError(t, err)
			become(t, a1.ep, udat.EPDisconnected)
			assert.NilError(t, a1.ep.Reset())
			for _, evd := range []*udat.EVD{a1.request, a1.conn, b1.recv, b1.conn} {
				for err := error(nil); err == nil; {
					_, err = evd.Dequeue()
				}
			}
			connect(t, a1, b1)
		}
		for count(t, s).OutstandingDTOCount < 16 {
			assert.NilError(t, s.PostRecv(b1.iov(0, 8), 1))
		}
		for i := range 16 {
			assert.NilError(t, a2.ep.PostSend(a2.iov(0, 8), udat.Cookie(i), 0))
			completion(t, a2.request, udat.Cookie(i))
			expect(t, b2.recv, udat.EventDTOCompletion)
		}
		assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
	})
}
