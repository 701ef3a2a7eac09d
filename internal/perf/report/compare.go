package report

import (
	"fmt"
	"io"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Comparison prints the changes between two documents, and what cannot be compared.
func Comparison(w io.Writer, c *result.Comparison, before, after *result.Document, threshold float64) {
	for _, f := range differences(before, after) {
		fmt.Fprintf(w, "not alike: %s\n", f)
	}
	fmt.Fprintf(w, "%-44s %-15s %14s %14s %9s\n", "case", "metric", "old", "new", "change")
	for i := range c.Changes {
		ch := &c.Changes[i]
		verdict := ""
		switch {
		case ch.Worse:
			verdict = "  WORSE"
		case ch.Improved:
			verdict = "  better"
		case ch.Short:
			verdict = fmt.Sprintf("  too short to tell: measured for less than %v", time.Duration(result.TooShort))
		}
		fmt.Fprintf(w, "%-44s %-15s %14s %14s %+8.1f%%%s\n", ch.Case.Name(), ch.Metric.Name,
			metricText(ch.Metric.Name, ch.Old), metricText(ch.Metric.Name, ch.New), ch.Percent, verdict)
	}
	for i := range c.OnlyOld {
		fmt.Fprintf(w, "only in the old: %s\n", c.OnlyOld[i].Name())
	}
	for i := range c.OnlyNew {
		fmt.Fprintf(w, "only in the new: %s\n", c.OnlyNew[i].Name())
	}
	if n := c.Worse(); n > 0 {
		fmt.Fprintf(w, "%d of %d figures are worse by more than %g%%\n", n, len(c.Changes), threshold)
	} else {
		fmt.Fprintf(w, "none of %d figures is worse by more than %g%%\n", len(c.Changes), threshold)
	}
}

// differences returns the facts in which the two documents differ, so that their figures are hard
// to compare.
func differences(before, after *result.Document) []string {
	var all []string
	for _, end := range []struct {
		who      string
		old, new *result.Facts
	}{{"client", &before.Client, &after.Client}, {"server", &before.Server, &after.Server}} {
		for _, f := range []struct{ name, old, new string }{
			{"device", end.old.Device, end.new.Device}, {"fabric", end.old.Fabric, end.new.Fabric},
			{"kernel", end.old.Kernel, end.new.Kernel},
			{"CPU", end.old.CPU, end.new.CPU}, {"firmware", end.old.Firmware, end.new.Firmware},
			{"Go", end.old.GoVersion, end.new.GoVersion},
			{"MTU", fmt.Sprint(end.old.MTU), fmt.Sprint(end.new.MTU)},
			{"GOMAXPROCS", fmt.Sprint(end.old.GOMAXPROCS), fmt.Sprint(end.new.GOMAXPROCS)},
		} {
			if f.old != f.new {
				all = append(all, fmt.Sprintf("the %s's %s was %q, is %q", end.who, f.name, f.old, f.new))
			}
		}
	}
	return all
}
