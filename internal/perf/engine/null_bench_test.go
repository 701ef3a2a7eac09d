//go:build linux && cgo && nulldev

package engine

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// BenchmarkNullStream is what the loop of a bandwidth measurement costs by itself: RDMA writes
// posted and reaped one at a time, and in batches of 32, on the device that does nothing
// (cverbs/nulldev.c). BenchmarkNullCverbs of package udat is the same without datperf.
func BenchmarkNullStream(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			c := result.Case{
				Test: result.Write, Mode: result.Bandwidth, Layer: result.Cverbs, Poll: result.Busy, Size: 64, QPs: 1,
				Depth: batch, Batch: batch, Signal: 1, Iters: int64(b.N),
			}
			lay, err := layoutOf(&c)
			assert.NilError(b, err)
			cq := cverbs.NullCQ()
			defer cverbs.NullCloseCQ(cq)
			qp := cverbs.NullQP(cq, cq)
			defer cverbs.NullCloseQP(qp)
			l := &cverbsLink{
				c: &c, lay: lay, signals: newSignals(&c), cq: cq, qps: []*cverbs.QP{qp}, mr: &cverbs.MR{},
				wrs: make([]cverbs.SendWR, c.Batch), sges: make([]cverbs.SGE, c.Batch), wcs: make([]cverbs.WC, pollBatch),
			}
			l.setRemote(remote{})
			w := newWorker(&c, lay, l, newShared(), true, fabricVerbs, func(result.Interval) {}, func([]uint64) {})
			b.ReportAllocs()
			b.ResetTimer()
			assert.NilError(b, w.stream())
			assert.Equal(b, w.rec.ops, int64(b.N))
		})
	}
}
