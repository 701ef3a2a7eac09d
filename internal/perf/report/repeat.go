package report

import (
	"cmp"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// medianRuns returns one run of each case, in the order of the document. Of repeated runs it
// returns the one with the median figure, of an even number the lower of the two in the middle.
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

// figureOf returns the figure that orders the runs of a case: the median latency if it was
// measured, else the bandwidth.
func figureOf(r *result.Run) float64 {
	total := r.Total()
	if total.Latency != nil {
		return total.Latency.At(50)
	}
	return total.GbitS
}
