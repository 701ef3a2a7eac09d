package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// pageFigure is a figure at the head of the page.
type pageFigure struct{ Value, What, Case string }

// figures returns the best figures of a document. It ignores runs that were too short.
func figures(d *result.Document) (all []pageFigure) {
	best := func(what, mode string, units []unit, least bool,
		value func(*result.Run, *result.Stream) float64) {
		var found *result.Case
		figure := 0.0
		for i := range d.Runs {
			r := &d.Runs[i]
			total := r.Total()
			v := value(r, &total)
			if r.Case.Mode != mode || total.Short() || v <= 0 {
				continue
			}
			if found == nil || least == (v < figure) && v != figure {
				found, figure = &r.Case, v
			}
		}
		if found != nil {
			all = append(all, pageFigure{inUnit(figure, units, threeDigits), what,
				fmt.Sprintf("%s of %s, %s", found.Test, result.Bytes(found.Size), label(found))})
		}
	}
	best("least median latency", result.Latency, timeUnits, true, latencyAt(50))
	best("least 99th percentile", result.Latency, timeUnits, true, latencyAt(99))
	best("most bandwidth", result.Bandwidth, bitUnits, false, bandwidth)
	best("most messages", result.Bandwidth, rateUnits, false, messageRate)
	return all
}

// quoted returns the words of a command line, quoted for a shell.
func quoted(args []string) []string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	var all []string
	for _, arg := range args {
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		all = append(all, arg)
	}
	return all
}

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
