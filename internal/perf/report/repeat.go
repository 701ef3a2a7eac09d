package report

import (
	"cmp"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// medianRuns returns one run of each case, in the order of the document. If a case was repeated, it
// returns the run with the median figure. If the number of repeats is even, it returns the lower of
// the two runs in the middle.
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

// figureOf returns the figure by which the runs of a case are sorted: the median latency if latency
// was measured, otherwise the bandwidth.
func figureOf(r *result.Run) float64 {
	total := r.Total()
	if total.Latency != nil {
		return total.Latency.At(50)
	}
	return total.GbitS
}
