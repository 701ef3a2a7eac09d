package report

import (
	"cmp"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// medianRuns returns one run of each case, in the order of the document: of several (--repeat) the
// one with the median latency or bandwidth, the lower one of two.
func medianRuns(d *result.Document) (runs []*result.Run) {
	var order []result.Case
	of := map[result.Case][]*result.Run{}
	for i := range d.Runs {
		r := &d.Runs[i]
		key := r.Case.Key()
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], r)
	}
	for _, key := range order {
		same := of[key]
		slices.SortStableFunc(same, func(a, b *result.Run) int { return cmp.Compare(figureOf(a), figureOf(b)) })
		runs = append(runs, same[(len(same)-1)/2])
	}
	return runs
}

// figureOf is what orders the runs of a case: the median latency, else the bandwidth.
func figureOf(r *result.Run) float64 {
	total := r.Total()
	if total.Latency != nil {
		return total.Latency.At(50)
	}
	return total.GbitS
}
