package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// TestEachIOVLimit: every kind of post has its own limit of segments.
func TestEachIOVLimit(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		attr := &udat.EPAttr{MaxRecvIOV: 4, MaxRequestIOV: 3, MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 2}
		a, b := pair(t, dev, setup{attr: attr})
		iov := func(n int) []udat.LMRTriplet {
			var list []udat.LMRTriplet
			for i := range n {
				list = append(list, a.mem.Triplet(i*8, 8))
			}
			return list
		}
		remote := func(n int) udat.RMRTriplet { return b.mem.RMRTriplet(0, 8*n) }
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 64), 1, 0))
		for name, c := range map[string]struct {
			limit int
			post  func(n int) error
		}{
			"recv":  {4, func(n int) error { return a.ep.PostRecv(iov(n), 1, 0) }},
			"send":  {3, func(n int) error { return a.ep.PostSend(iov(n), 1, 0) }},
			"read":  {1, func(n int) error { return a.ep.PostRDMARead(iov(n), 1, remote(n), 0) }},
			"write": {2, func(n int) error { return a.ep.PostRDMAWrite(iov(n), 1, remote(n), 0) }},
		} {
			refused(t, c.post(c.limit+1), udat.InvalidParameter, udat.SubArg2)
			assert.NilError(t, c.post(c.limit), name)
		}
		for range 3 {
			completion(t, a.request, 1)
		}
		rule.Proves(t, "EP-READ-09")
	})
}

// TestBatchLimit: what a batch has not posted yet takes places too.
func TestBatchLimit(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 6
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: limit, MaxRecvDTOs: limit}})
		needAcknowledged(t, a)
		ops := make([]udat.Op, 2*limit)
		for i := range ops {
			ops[i] = udat.Op{Kind: udat.OpSend, IOV: a.iov(0, 8), Cookie: udat.Cookie(i)}
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 99, 0)) // for which the peer has no receive
		n, err := a.ep.PostBatch(ops)
		assert.Equal(t, n, limit-1)
		refused(t, err, udat.InsufficientResources, udat.SubResourceCredits)
		for range limit {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
		}
		completion(t, a.request, 99)
		for i := range limit - 1 {
			completion(t, a.request, udat.Cookie(i))
		}
		empty(t, a.request)
		rule.Proves(t, "POST-10")
	})
}

// TestRecvBatchWatermark: receives of a batch count as others do.
func TestRecvBatchWatermark(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		assert.NilError(t, e.ep.SetWatermark(2, udat.WatermarkInfinite))
		n, err := e.ep.PostRecvBatch(make([]udat.Recv, 2))
		assert.NilError(t, err)
		assert.Equal(t, n, 2)
		empty(t, e.ia.AsyncEVD())
		_, err = e.ep.PostRecvBatch(make([]udat.Recv, 1))
		assert.NilError(t, err)
		expect(t, e.ia.AsyncEVD(), udat.EventAsyncEPSoftHighWatermark)
		rule.Proves(t, "EP-WMARK-02")
	})
}

// TestRecvBatchStops: a batch of receives ends before the first that is refused, and says why.
func TestRecvBatchStops(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit, most = 4, 512
		e := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRecvDTOs: limit, MaxMessageSize: most}})
		good, bad := udat.Recv{IOV: e.iov(0, most)}, udat.Recv{IOV: e.iov(0, most+1)}
		for _, c := range []struct {
			batch []udat.Recv
			n     int
			want  udat.ReturnType
		}{
			{[]udat.Recv{bad, good}, 0, udat.InvalidParameter},
			{[]udat.Recv{good, bad, good}, 1, udat.InvalidParameter},
			{[]udat.Recv{good, good, good, good, good}, limit - 1, udat.InsufficientResources},
		} {
			n, err := e.ep.PostRecvBatch(c.batch)
			assert.Equal(t, n, c.n)
			refused(t, err, c.want)
		}
		allocated, _, err := e.ep.RecvQuery()
		assert.NilError(t, err)
		assert.Equal(t, allocated, limit)
		rule.Proves(t, "EP-RECV-10", "POST-10")
	})
}

// TestRefusedPostEndsNothing: suppressed work is known to be done even if the post that would have told so was refused.
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

// TestHugeSegment: a device counts the bytes of a segment in 32 bits.
func TestHugeSegment(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxMessageSize: 64}})
		huge, err := e.ia.AllocLMR(e.pz, 1<<32, udat.PrivAll)
		if errorsIs(err, udat.ErrInsufficientResources) {
			t.Skip(err)
		}
		assert.NilError(t, err)
		refused(t, e.ep.PostRecv([]udat.LMRTriplet{huge.Triplet(0, 1<<32)}, 1, 0), udat.InvalidParameter, udat.SubArg3)
		refused(t, e.ep.PostRecv([]udat.LMRTriplet{huge.Triplet(0, 1<<32-1)}, 1, 0), udat.InvalidParameter, udat.SubArg2) // only more than a message
	})
}

// TestRecvNotPosted: a receive that the device does not take is told, and counts for nothing.
func TestRecvNotPosted(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		assert.NilError(t, e.ep.PostRecv(e.iov(0, 8), 1, 0))
		e.faults().Remove()
		assert.Assert(t, e.ep.PostRecv(e.iov(0, 8), 2, 0) != nil)
		n, err := e.ep.PostRecvBatch(make([]udat.Recv, 3))
		assert.Equal(t, n, 0)
		assert.Assert(t, err != nil)
		n, _, err = e.ep.RecvQuery()
		assert.NilError(t, err)
		assert.Assert(t, n <= 1, "%d receives, 1 has been posted", n)
		rule.Proves(t, "EP-RECVQ-02")
	})
}

// TestRequestNotPosted: neither is a request, alone or in a batch.
func TestRequestNotPosted(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, _ := pair(t, dev, setup{})
		a.faults().Remove()
		become(t, a.ep, udat.EPDisconnected)
		assert.Assert(t, a.ep.PostSend(a.iov(0, 8), 1, 0) != nil)
		n, err := a.ep.PostBatch([]udat.Op{{IOV: a.iov(0, 8)}, {IOV: a.iov(0, 8)}})
		assert.Equal(t, n, 0)
		assert.Assert(t, err != nil)
		_, _, idle, err := a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, idle)
		empty(t, a.request)
		rule.Proves(t, "EP-STATUS-02")
	})
}

// TestConnectRefusedHoldsNothing: receives complete as ever after a connect that has failed at once.
func TestConnectRefusedHoldsNothing(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		e.faults().Exhaust(memfabric.Conns, 1)
		refused(t, e.ep.Connect(e.ia.Addr(), 4711, patience, nil, 0, 0), udat.InsufficientResources)
		assert.Equal(t, state(t, e.ep), udat.EPUnconnected)
		assert.NilError(t, e.ep.PostRecv(e.iov(0, 8), 7, 0))
		e.faults().Remove()
		flushed(t, e.recv, 7)
		rule.Proves(t, "EP-CONNECT-14")
	})
}

// TestPortOfQualifier: a qualifier that is a port is that port; the rest share ports as OpenFabrics DAPL has them.
func TestPortOfQualifier(t *testing.T) {
	for qual, want := range map[udat.ConnQual]uint16{
		1: 1, 45248: 45248, 65535: 65535, 65536: 65536%32001 + 33534, 96003: 33534, 96002: 65534, 1<<64 - 1: uint16((1<<64-1)%uint64(32001)) + 33534,
	} {
		port, err := qual.Port()
		assert.NilError(t, err, "%d", qual)
		assert.Equal(t, port, want, "%d", qual)
	}
	_, err := udat.ConnQual(0).Port()
	refused(t, err, udat.InvalidParameter, udat.SubArg3)
	e := newEnd(t, "mem0", setup{})
	for _, qual := range []udat.ConnQual{65535, 65535%32001 + 33534, 65536} {
		psp, err := e.ia.CreatePSP(qual, e.cr, udat.PSPConsumer)
		assert.NilError(t, err, "%d", qual)
		assert.Equal(t, psp.Qual(), qual)
	}
}

// TestExtensionPrivileges: the operations beyond DAT 1.2 need what those of DAT 1.2 need.
func TestExtensionPrivileges(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		readable, writable := a.lmr(64, udat.PrivLocalRead), a.lmr(64, udat.PrivLocalWrite)
		remote := b.mem.RMRTriplet(0, 8)
		for kind, source := range map[udat.OpKind]bool{
			udat.OpSendImmediate: true, udat.OpSendInvalidate: true, udat.OpRDMAWriteImmediate: true, udat.OpFetchAdd: false, udat.OpCmpSwap: false,
		} {
			wrong := writable
			if !source {
				wrong = readable
			}
			o := udat.Op{Kind: kind, IOV: []udat.LMRTriplet{wrong.Triplet(0, 8)}, Remote: remote}
			_, err := a.ep.PostBatch([]udat.Op{o})
			if errorsIs(err, udat.ErrModelNotSupported) {
				continue
			}
			refused(t, err, udat.PrivilegesViolation)
			o.Flags = udat.CompletionSolicitedWait // which those take that use up a receive
			_, err = a.ep.PostBatch([]udat.Op{o})
			if source {
				refused(t, err, udat.PrivilegesViolation)
			} else {
				refused(t, err, udat.InvalidParameter, udat.SubArg5)
			}
		}
		rule.Proves(t, "F-06")
	})
}
