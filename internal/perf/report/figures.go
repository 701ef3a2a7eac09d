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

// figures returns the best figures of a document: of each case the median of its runs. It ignores
// cases with a run that was too short.
func figures(d *result.Document) (all []pageFigure) {
	summaries := result.Summarize(d.Runs)
	for _, f := range []struct {
		what, metric string
		units        []unit
		scale        float64 // of the unit in the document
		least        bool
	}{
		{"least median latency", "latency_p50_ns", timeUnits, 1e-3, true},
		{"least 99th percentile", "latency_p99_ns", timeUnits, 1e-3, true},
		{"most bandwidth", "gbit_s", bitUnits, 1, false}, {"most messages", "ops_s", rateUnits, 1, false},
	} {
		var best *result.Summary
		for _, s := range summaries {
			if s.Metric == f.metric && !s.Short && s.Median > 0 && (f.least || s.Case.Mode == result.Bandwidth) &&
				(best == nil || f.least == (s.Median < best.Median) && s.Median != best.Median) {
				best = &s
			}
		}
		if best == nil {
			continue
		}
		text := fmt.Sprintf("%s of %s, %s", best.Case.Test, result.Bytes(best.Case.Size), label(&best.Case))
		if best.Runs > 1 {
			text += fmt.Sprintf(", median of %d runs", best.Runs)
		}
		all = append(all, pageFigure{inUnit(best.Median*f.scale, f.units, threeDigits), f.what, text})
	}
	return all
}

// summaryHeadline is the headline of the table of repeated cases.
const summaryHeadline = "Repeated cases: the median of the runs, its 95% confidence interval, and the spread " +
	"(largest minus least, in percent of the median)."

// summaryTable returns a row for each metric of each case that ran several times.
func summaryTable(d *result.Document) pageTable {
	t := pageTable{Headline: summaryHeadline, Titles: []string{"case", "metric", "runs", "median", "least", "largest",
		"spread", "95% between"}}
	for _, s := range result.Summarize(d.Runs) {
		if s.Runs < 2 {
			continue
		}
		between := "-"
		if s.High > 0 {
			between = metricText(s.Metric, s.Low) + " and " + metricText(s.Metric, s.High)
		}
		t.Rows = append(t.Rows, []string{s.Case.Name(), s.Metric, fmt.Sprint(s.Runs), metricText(s.Metric, s.Median),
			metricText(s.Metric, s.Min), metricText(s.Metric, s.Max), fmt.Sprintf("%.1f%%", s.Spread), between})
	}
	return t
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
