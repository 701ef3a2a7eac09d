package report

import (
	"fmt"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// pageFigure is a figure at the head of the page.
type pageFigure struct{ Value, What, Case string }

// figures returns the best figures of a document. It ignores runs that were too short.
func figures(d *result.Document) (all []pageFigure) {
	best := func(what, mode string, units []unit, least bool, value func(*result.Stream) float64) {
		var found *result.Case
		figure := 0.0
		for i := range d.Runs {
			r := &d.Runs[i]
			total := r.Total()
			if r.Case.Mode != mode || total.Short() || value(&total) <= 0 {
				continue
			}
			if v := value(&total); found == nil || least == (v < figure) && v != figure {
				found, figure = &r.Case, v
			}
		}
		if found != nil {
			all = append(all, pageFigure{inUnit(figure, units, threeDigits), what,
				fmt.Sprintf("%s of %s, %s", found.Test, result.Bytes(found.Size), label(found))})
		}
	}
	percentile := func(p float64) func(*result.Stream) float64 {
		return func(s *result.Stream) float64 {
			if !s.Latency.Enough(p) && p > 50 {
				return 0
			}
			return s.Latency.At(p) / 1e3
		}
	}
	best("least median latency", result.Latency, timeUnits, true, percentile(50))
	best("least 99th percentile", result.Latency, timeUnits, true, percentile(99))
	best("most bandwidth", result.Bandwidth, bitUnits, false, func(s *result.Stream) float64 { return s.GbitS })
	best("most messages", result.Bandwidth, rateUnits, false, func(s *result.Stream) float64 { return s.OpsS })
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
