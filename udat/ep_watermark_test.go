package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

func TestSoftWatermark(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		async := b.ia.AsyncEVD()
		fires := func() {
			t.Helper()
			ev, err := async.Dequeue() // it is there when the call returns
			assert.NilError(t, err)
			assert.Equal(t, ev.Number, udat.EventAsyncEPSoftHighWatermark)
			assert.Equal(t, ev.Object, udat.Handle(b.ep))
			assert.Equal(t, ev.Reason, uint32(udat.ReasonEPSoftHighWatermark))
			empty(t, async)
		}
		post := func(n int) {
			for range n {
				assert.NilError(t, b.ep.PostRecv(nil, 0, 0))
			}
		}
		post(3)
		empty(t, async)
		assert.NilError(t, b.ep.SetWatermark(3, udat.WatermarkInfinite))
		empty(t, async)
		post(1)
		fires()
		post(2)
		empty(t, async) // once for each setting
		for range 2 {   // the same value arms the watermark again
			assert.NilError(t, b.ep.SetWatermark(5, udat.WatermarkInfinite))
			fires() // 6 are above
		}
		assert.NilError(t, b.ep.SetWatermark(7, udat.WatermarkInfinite))
		assert.NilError(t, b.ep.SetWatermark(8, udat.WatermarkInfinite)) // replaces it
		post(2)
		empty(t, async)
		connect(t, a, b)
		for range 4 { // a completed receive is no longer held, whether its event is dequeued or not
			assert.NilError(t, a.ep.PostSend(nil, 1, 0))
			completion(t, a.request, 1)
		}
		eventually(t, func() bool { n, _, _ := b.ep.RecvQuery(); return n == 4 }, "receives are left")
		post(4)
		empty(t, async)
		post(1)
		fires()
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, udat.WatermarkInfinite))
		post(3)
		empty(t, async)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		rule.Proves(t, "EP-WMARK-01", "EP-WMARK-02", "EP-WMARK-04", "EP-WMARK-05", "EP-WMARK-06", "EVT-02", "EVT-03")

		refused(t, b.ep.SetWatermark(-2, 1), udat.InvalidParameter)
		refused(t, b.ep.SetWatermark(1, -2), udat.InvalidParameter)
		assert.NilError(t, b.ep.Free())
		refused(t, b.ep.SetWatermark(1, 1), udat.InvalidHandle, udat.SubHandleEP)
		rule.Proves(t, "EP-WMARK-08")
	})
}

func TestHardWatermark(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		broken := func(n int) {
			t.Helper()
			become(t, b.ep, udat.EPDisconnected)
			expect(t, b.conn, udat.EventConnectionBroken)
			assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
			parted(t, a) // whose own work has not failed
			for i := range n {
				flushed(t, b.recv, udat.Cookie(i))
			}
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			empty(t, b.conn)
			empty(t, b.ia.AsyncEVD())
		}
		post := func(from, n int) {
			for i := range n {
				assert.NilError(t, b.ep.PostRecv(nil, udat.Cookie(from+i), 0))
			}
		}
		// By a post.
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 3))
		connect(t, a, b)
		post(0, 3)
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		post(3, 1)
		assert.Equal(t, state(t, b.ep), udat.EPDisconnected, "at once")
		broken(4)
		rule.Proves(t, "EP-WMARK-03", "EPST-34")
		// As soon as the connection is established.
		post(0, 4)
		assert.Equal(t, state(t, b.ep), udat.EPUnconnected)
		connect(t, a, b)
		broken(4)
		post(0, 4)
		connect(t, b, a) // whoever connects
		broken(4)
		rule.Proves(t, "EP-WMARK-07")
		// By the call.
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, udat.WatermarkInfinite))
		post(0, 5)
		connect(t, a, b)
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 5))
		assert.Equal(t, state(t, b.ep), udat.EPConnected)
		assert.NilError(t, b.ep.SetWatermark(udat.WatermarkInfinite, 4))
		assert.Equal(t, state(t, b.ep), udat.EPDisconnected, "at once")
		broken(5)
		rule.Proves(t, "EP-WMARK-04", "V-35")
		// Together with a soft watermark, above or below it: neither watermark hides or replaces
		// the other.
		for _, soft := range []int{2, 5} {
			assert.NilError(t, b.ep.SetWatermark(soft, 3))
			connect(t, a, b)
			post(0, 3)
			if soft < 3 {
				expect(t, b.ia.AsyncEVD(), udat.EventAsyncEPSoftHighWatermark)
			}
			empty(t, b.ia.AsyncEVD())
			assert.Equal(t, state(t, b.ep), udat.EPConnected)
			post(3, 1)
			broken(4)
		}
		rule.Proves(t, "EP-WMARK-01")
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
