package report

import (
	"fmt"
	"io"

	"github.com/godat/godat/internal/perf/result"
)

// Comparison prints the changes between two documents, the facts in which they differ, and the
// cases that only one of them has.
func Comparison(w io.Writer, c *result.Comparison) {
	for _, f := range c.Unlike {
		fmt.Fprint(w, fold("not alike: "+f, "  "))
	}
	fmt.Fprintf(w, "%-14s %12s %12s %7s  %-20s %s\n", "metric", "old", "new", "change", "95% between", "verdict")
	last := ""
	for i := range c.Changes {
		ch := &c.Changes[i]
		if ch.Name != last {
			last = ch.Name
			fmt.Fprint(w, fold(last+":", "  "))
		}
		between, verdict, percent, now := "", ch.Verdict, "-", "-"
		if ch.Known() {
			percent = fmt.Sprintf("%+.1f%%", ch.Percent)
		}
		if ch.New.Runs > 0 {
			now = metricText(ch.Metric, ch.New.Median)
		}
		if ch.Least != 0 || ch.Most != 0 {
			between = fmt.Sprintf("%+.1f%% and %+.1f%%", ch.Least, ch.Most)
		}
		if verdict == result.Worse {
			verdict = "WORSE"
		}
		fmt.Fprintf(w, "%-14s %12s %12s %7s  %-20s %s\n", fit(ch.Metric, 14), fit(metricText(ch.Metric, ch.Old.Median), 12),
			fit(now, 12), fit(percent, 7), fit(between, 20), verdict)
		if ch.Why != "" {
			fmt.Fprint(w, fold(fmt.Sprintf("%15s%s", "", ch.Why), fmt.Sprintf("%17s", "")))
		}
	}
	for _, name := range c.Missing {
		fmt.Fprint(w, fold("missing in the new document: "+name, "  "))
	}
	for _, name := range c.Added {
		fmt.Fprint(w, fold("missing in the old document: "+name, "  "))
	}
	fmt.Fprint(w, fold(fmt.Sprintf("%s: %d worse by more than %g%%, %d better, %d same, %d undecided, "+
		"%s missing", c.Outcome, c.Count(result.Worse), c.Threshold, c.Count(result.Better),
		c.Count(result.Same), c.Count(result.Undecided), result.Count(len(c.Missing), "case")), "  "))
}

// Differences returns one text for each fact in which the two documents differ. Such differences
// make figures hard to compare.
func Differences(before, after *result.Document) []string {
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
	if a, b := before.Mesh, after.Mesh; a != nil && b != nil && a.Pattern != b.Pattern {
		all = append(all, fmt.Sprintf("the mesh's pattern was %q, is %q", a.Pattern, b.Pattern))
	}
	return all
}
