//go:build linux && cgo

package cverbs

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkThreadDomain measures the post of one write of 8 bytes and the poll for its completion.
// The kinds of queues take turns of 2000 operations. The results are medians over all turns:
// nanoseconds, and percent of the first kind.
//
//	go test -exec $PWD/lab/loopdev/loop.sh ./cverbs -run '^$' -bench ThreadDomain -benchtime 1000x
func BenchmarkThreadDomain(b *testing.B) {
	const ops = 2000
	ctx := openDevice(b)
	ordinary := func(*PD) (*CQ, error) { return createCQ(ctx) }
	kinds := []struct {
		name string
		make func() (x, y *end)
		took []time.Duration
	}{
		{name: "ordinary", make: func() (x, y *end) { return newPair(b, ctx) }},
		{name: "domain", make: func() (x, y *end) { return inDomainsWith(b, ctx, ordinary) }},
		{name: "extended", make: func() (x, y *end) { return extendedPair(b, ctx, CQInit{}) }},
		{name: "single", make: func() (x, y *end) { return extendedPair(b, ctx, CQInit{Flags: CQSingleThreaded}) }},
		{name: "both", make: func() (x, y *end) { return inDomains(b, ctx) }},
	}
	turns := make([]func(), len(kinds))
	for i := range kinds {
		x, y := kinds[i].make()
		wrs := []SendWR{{Opcode: OpRDMAWrite, Flags: SendSignaled, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(), NumSGE: 1}}
		sges, wc := []SGE{x.sge(0, 8)}, make([]WC, 1)
		turns[i] = func() {
			for range ops {
				if _, err := x.qp.PostSend(wrs, sges); err != nil {
					b.Fatal(err)
				}
				for n := 0; n == 0; {
					var err error
					if n, err = x.scq.PollSpin(wc, 100); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		turns[i]()
	}
	for b.Loop() {
		for i := range kinds {
			begun := time.Now()
			turns[i]()
			kinds[i].took = append(kinds[i].took, time.Since(begun))
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(0, "ns/op")
	for i := range kinds {
		var each, share []float64
		for k, d := range kinds[i].took {
			each = append(each, float64(d.Nanoseconds())/ops)
			share = append(share, 100*float64(d)/float64(kinds[0].took[k]))
		}
		b.ReportMetric(median(each), kinds[i].name+"-ns")
		b.ReportMetric(median(share), kinds[i].name+"-%")
	}
}
