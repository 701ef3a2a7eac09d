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
