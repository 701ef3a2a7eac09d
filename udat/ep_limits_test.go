package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestEachIOVLimit: every kind of post has its own limit of segments.
func TestEachIOVLimit(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		attr := &udat.EPAttr{MaxRDMAReadIn: 4, MaxRecvIOV: 4, MaxRequestIOV: 3, MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 2}
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

// TestBatchLimit: the operations of a batch that are not posted yet count against the limit too.
func TestBatchLimit(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 6
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: limit, MaxRecvDTOs: limit}})
		needAcknowledged(t, a)
		ops := make([]udat.Op, 2*limit)
		for i := range ops {
			ops[i] = udat.Op{Kind: udat.OpSend, IOV: a.iov(0, 8), Cookie: udat.Cookie(i)}
		}
		for _, before := range []int{1, 4} {
			for range before {
				assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 99, 0)) // for which the peer has no receive
			}
			n, err := a.ep.PostBatch(ops)
			assert.Equal(t, n, limit-before)
			refused(t, err, udat.InsufficientResources, udat.SubResourceCredits)
			for range limit {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
			}
			for range before {
				completion(t, a.request, 99)
			}
			for i := range limit - before {
				completion(t, a.request, udat.Cookie(i))
			}
			for range limit {
				completion(t, b.recv, 1)
			}
			empty(t, a.request)
		}
		rule.Proves(t, "POST-10")
	})
}

// TestRecvBatchStops: a batch of receives ends before the first one that is refused, and returns
// the error.
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
		rule.Proves(t, "POST-10")
	})
}

// TestHugeRequest: a request whose length needs more than 32 bits is refused, whatever the lower 32
// bits are.
func TestHugeRequest(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		huge, err := a.ia.AllocLMR(a.pz, 1<<32+64, udat.PrivAll)
		if errorsIs(err, udat.ErrInsufficientResources) {
			t.Skip(err)
		}
		assert.NilError(t, err)
		iov := []udat.LMRTriplet{huge.Triplet(0, 1<<32+64)}
		refused(t, a.ep.PostSend(iov, 1, 0), udat.InvalidParameter)
		refused(t, a.ep.PostRDMAWrite(iov, 1, b.mem.RMRTriplet(0, 64), 0), udat.InvalidParameter)
		refused(t, a.ep.PostRDMAWrite(iov, 1, udat.RMRTriplet{SegmentLength: 1<<32 + 64}, 0), udat.InvalidParameter)
		empty(t, a.request)
	})
}

// TestNoRDMAWrites: an endpoint that is made for no RDMA writes refuses them.
func TestNoRDMAWrites(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAWriteIOV: udat.None}})
		refused(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), 0), udat.InvalidParameter)
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 1, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 2, 0))
		completion(t, a.request, 2)
	})
}

// TestWideValues: cookies and the operands of atomics have 64 bits.
func TestWideValues(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		const cookie, wide = udat.Cookie(0xfedcba9876543210), uint64(0x0123456789abcdef)
		a, b := pair(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), cookie, 0))
		assert.NilError(t, a.ep.PostSendImmediate(a.iov(0, 8), cookie, 7, 0))
		completion(t, a.request, cookie)
		completion(t, b.recv, cookie)
		words := b.lmr(64, udat.PrivAll|udat.PrivRemoteAtomic)
		for i, o := range []udat.Op{
			{Kind: udat.OpFetchAdd, CompareAdd: wide},
			{Kind: udat.OpCmpSwap, CompareAdd: wide, Swap: ^wide},
		} {
			o.IOV, o.Cookie, o.Remote = a.iov(0, 8), cookie, words.RMRTriplet(8, 8)
			_, err := a.ep.PostBatch([]udat.Op{o})
			assert.NilError(t, err)
			completion(t, a.request, cookie)
			got, err := words.LoadUint64(8)
			assert.NilError(t, err)
			assert.Equal(t, got, []uint64{wide, ^wide}[i])
		}
	})
}

// TestHugeSegment: segments of 4 GiB or more are refused, because devices use 32 bits for the
// length of a segment.
func TestHugeSegment(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxMessageSize: 64}})
		huge, err := e.ia.AllocLMR(e.pz, 1<<32, udat.PrivAll)
		if errorsIs(err, udat.ErrInsufficientResources) {
			t.Skip(err)
		}
		assert.NilError(t, err)
		err = e.ep.PostRecv([]udat.LMRTriplet{huge.Triplet(0, 1<<32)}, 1, 0)
		refused(t, err, udat.InvalidParameter, udat.SubArg3)
		assert.ErrorContains(t, err, "4294967296 bytes, the limit is 4294967295")
		// only more than a message
		refused(t, e.ep.PostRecv([]udat.LMRTriplet{huge.Triplet(0, 1<<32-1)}, 1, 0), udat.InvalidParameter, udat.SubArg2)
	})
}
