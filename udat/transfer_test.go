package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestSend shows that the segments of a Send arrive in order as one message that consumes one
// receive.
func TestSend(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv([]udat.LMRTriplet{b.mem.Triplet(0, 100), b.mem.Triplet(1000, 200),
			b.mem.Triplet(2000, 50)}, 7, 0))
		want := a.put(0, 150, 1)
		assert.NilError(t, a.ep.PostSend([]udat.LMRTriplet{a.mem.Triplet(0, 30), a.mem.Triplet(30, 120)}, 8, 0))
		ev := completion(t, b.recv, 7)
		assert.Equal(t, ev.Length, uint64(150))
		assert.Equal(t, ev.EP, b.ep)
		assert.DeepEqual(t, b.get(0, 100), want[:100])
		assert.DeepEqual(t, b.get(1000, 50), want[100:])
		assert.DeepEqual(t, b.get(1050, 150), make([]byte, 150))
		assert.DeepEqual(t, b.get(2000, 50), make([]byte, 50))
		rule.Proves(t, "EP-SEND-01", "EP-RECV-01", "EP-RECV-02")
		ev = completion(t, a.request, 8)
		assert.Equal(t, ev.EP, a.ep)
		empty(t, a.request)
		empty(t, b.recv)
		rule.Proves(t, "EP-SEND-09", "POST-03")
	})
}

// TestWriteAndRead tests RDMA in both directions.
func TestWriteAndRead(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		want := a.put(0, 5000, 3)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 5000), 1, b.mem.RMRTriplet(100, 6000), 0))
		completion(t, a.request, 1)
		assert.DeepEqual(t, b.get(100, 5000), want)
		rule.Proves(t, "EP-WRITE-01")
		want = b.put(20000, 3000, 9)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(30000, 4000), 2, b.mem.RMRTriplet(20000, 3000), 0))
		ev := completion(t, a.request, 2)
		assert.Equal(t, ev.Length, uint64(3000))
		assert.DeepEqual(t, a.get(30000, 3000), want)
		assert.DeepEqual(t, a.get(33000, 1000), make([]byte, 1000))
		rule.Proves(t, "EP-READ-01")
	})
}
