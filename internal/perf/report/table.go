// Package report renders datperf's results: as tables, CSV, Markdown, HTML, JSON lines, and in
// the columns of perftest. Command datperf and the benchmarks in lab/bench import this package.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Table prints a line for each run when Run is called, and a headline before each kind of run. No
// line is longer than 100 columns.
type Table struct {
	w       io.Writer
	columns map[string][]column // by mode
	last    string
	ports   ports
}

// NewTable returns a Table that prints runs of the given cases to w. If a setting has its usual
// value in all cases, the table has no column for that setting.
func NewTable(w io.Writer, cases []result.Case) *Table {
	t := &Table{w: w, columns: map[string][]column{}}
	for _, mode := range result.Modes {
		t.columns[mode] = narrow(columnsOf(cases, mode))
	}
	return t
}

// kindOf returns a key that is the same for runs under the same headline.
func kindOf(r *result.Run) string {
	if r.Case.Mode == result.Latency && !r.Case.PingPong() {
		return "lat of the whole operation"
	}
	return r.Case.Mode
}

// headline describes the figures of a run.
func headline(r *result.Run) string {
	switch {
	case r.Case.Mode == result.Bandwidth:
		return "Bandwidth of payload: Gb/s are 10^9 bits, MiB/s 2^20 bytes per second. CPU: initiator's process."
	case r.Case.PingPong():
		return "Latency in us: half of the round trip."
	}
	return "Latency in us: of the whole operation, from post to completion."
}

// Run prints one run.
func (t *Table) Run(r *result.Run) {
	columns := t.columns[r.Case.Mode]
	if k := kindOf(r); k != t.last {
		if t.last != "" {
			fmt.Fprintln(t.w)
		}
		t.last = k
		fmt.Fprintln(t.w, headline(r))
		t.line(columns, func(c column) string { return c.title })
	}
	total := r.Total()
	t.line(columns, func(c column) string { return c.text(r, &total) })
	t.ports.add(r)
	for _, text := range t.remarks(r, &total) {
		fmt.Fprint(t.w, fold("  "+text, "    "))
	}
}

// remarks returns the lines to print below a run.
func (t *Table) remarks(r *result.Run, total *result.Stream) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if l, raw := total.Corrected, total.Latency; l != nil {
		add("open loop, %g/s %s; latency from when an operation fell due, in us:", r.Case.Rate, r.Case.Arrival)
		add("  p50 %s p99 %s p99.9 %s max %s; as posted p50 %s p99 %s", micros(l.At(50)), percentileText(l, 99),
			percentileText(l, 99.9), micros(l.Max), micros(raw.At(50)), percentileText(raw, 99))
	}
	if flows := r.Flows(); len(flows) > 1 {
		for _, f := range flows {
			add("%s: %s Gb/s, %s Mops/s", f.Direction, number(f.Stream.GbitS, 3), number(f.Stream.OpsS/1e6, 4))
		}
	}
	if r.Case.Lossy() {
		add("transport: %s", r.Case.Transport)
	}
	if total.Short() {
		add("%s ms: too short, measure for %v or more (-n, -D)", number(time.Duration(total.Elapsed).Seconds()*1e3, 1),
			time.Duration(result.TooShort))
	}
	notes := slices.Clone(r.Notes)
	for _, e := range []*result.End{r.Client, r.Server} {
		if e != nil {
			notes = append(notes, e.Notes...)
		}
	}
	for _, n := range notes {
		add("note: %s", n)
	}
	return append(all, troubleLines(r)...)
}

// Close prints the sums of the ports' counters over all runs, if there are any.
func (t *Table) Close() {
	rows := t.ports.rows()
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(t.w, "\n%s\n", portHeadline)
	for _, row := range append([][]string{portTitles}, rows...) {
		for i := range row {
			row[i] = fit(row[i], portWidths[i])
		}
		fmt.Fprintf(t.w, "%-*s", portWidths[0], row[0])
		for i, text := range row[1:] {
			fmt.Fprintf(t.w, " %*s", portWidths[i+1], text)
		}
		fmt.Fprintln(t.w)
	}
}

// Summary prints the medians of a repeated case.
func (t *Table) Summary(summaries []result.Summary) {
	for _, s := range summaries {
		text := fold(fmt.Sprintf("  %d runs, %s: median %s, from %s to %s, spread %.1f%%", s.Runs, s.Metric,
			metricText(s.Metric, s.Median), metricText(s.Metric, s.Min), metricText(s.Metric, s.Max), s.Spread), "    ")
		if s.High > 0 {
			text += fold(fmt.Sprintf("    95%% confidence: %s to %s", metricText(s.Metric, s.Low),
				metricText(s.Metric, s.High)), "    ")
		}
		fmt.Fprint(t.w, text)
	}
}

// metricText returns a metric's value with its unit.
func metricText(metric string, v float64) string {
	switch {
	case strings.HasSuffix(metric, "_ns"):
		return result.Nanos(v)
	case metric == "gbit_s":
		return number(v, 3) + " Gb/s"
	}
	return number(v, 0) + "/s"
}

func (t *Table) line(columns []column, text func(column) string) {
	var b strings.Builder
	for i, c := range columns {
		if i < 2 { // names
			fmt.Fprintf(&b, "%-*s ", c.width, fit(text(c), c.width))
		} else {
			fmt.Fprintf(&b, "%*s ", c.width, fit(text(c), c.width))
		}
	}
	fmt.Fprintln(t.w, strings.TrimRight(b.String(), " "))
}

// indent is the indentation of the lines below the name of an end.
const indent = "        "

// Ends prints the device of each end, why it was chosen, and facts about the end.
func Ends(w io.Writer, client, server *result.Facts) {
	for _, e := range []struct {
		who string
		f   *result.Facts
	}{{"client", client}, {"server", server}} {
		f := e.f
		fmt.Fprint(w, fold(fmt.Sprintf("%s: %s on the %s fabric, because %s", e.who, f.Device, f.Fabric, f.Chosen), indent))
		var about []string
		for _, s := range []string{f.Detail, prefixed("firmware ", f.Firmware), prefixed("Linux ", f.Kernel), f.GoVersion} {
			if s != "" {
				about = append(about, s)
			}
		}
		if f.MTU > 0 {
			about = append(about, fmt.Sprintf("MTU %d", f.MTU))
		}
		if f.PinnedCPU != "" {
			about = append(about, "loop pinned to processor "+f.PinnedCPU)
		}
		switch {
		case f.BoundNode != "":
			about = append(about, "loop and device on NUMA node "+f.BoundNode)
		case f.NUMANode != "":
			about = append(about, "device on NUMA node "+f.NUMANode)
		}
		fmt.Fprint(w, foldList(about, indent))
		for _, text := range f.Warnings {
			fmt.Fprint(w, fold(indent+"warning: "+text, indent+"  "))
		}
	}
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
