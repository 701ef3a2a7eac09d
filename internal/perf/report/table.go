// Package report renders datperf's results: as tables, CSV, HTML, JSON lines, and in the columns of
// perftest. Command datperf and the benchmarks in lab/bench import this package.
package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Table prints a line for each run when Run is called, and a headline before each kind of run. No
// line is longer than 80 columns.
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
		return "Payload in 10^9 bits and 2^20 bytes per second; CPU of the initiator's process."
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
		add("open loop, %g/s; latency from when an operation fell due, in us:", r.Case.Rate)
		add("  p50 %s p99 %s p99.9 %s max %s; as posted p50 %s p99 %s", micros(l.At(50)), percentileText(l, 99),
			percentileText(l, 99.9), micros(l.Max), micros(raw.At(50)), percentileText(raw, 99))
	}
	if flows := r.Flows(); len(flows) > 1 {
		for _, f := range flows {
			add("%s: %s Gb/s, %s ops/s", f.Direction, number(f.Stream.GbitS, 3), number(f.Stream.OpsS, 0))
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

// Summary prints the medians of the cases that ran several times.
func (t *Table) Summary(summaries []result.Summary) {
	for _, s := range summaries {
		if s.Runs < 2 {
			continue
		}
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

// pageTable is a table of a page.
type pageTable struct {
	Headline string
	Titles   []string
	Rows     [][]string
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
		about := given(f.Host, f.Link, f.Detail, prefixed("firmware ", f.Firmware), prefixed("Linux ", f.Kernel), f.GoVersion)
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

// given returns the texts that are not empty.
func given(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// column is one column of a table.
type column struct {
	title string
	width int    // width in the table on a terminal
	usual string // if all cases have this text, the column is left out
	spare int    // if the line is too narrow, the columns with the largest spare are left out first; 0: never left out
	text  func(r *result.Run, s *result.Stream) string
}

func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

func micros(ns float64) string { return number(ns/1e3, 2) }

func percentile(p float64) func(*result.Run, *result.Stream) string {
	return func(_ *result.Run, s *result.Stream) string {
		return percentileText(s.Latency, p)
	}
}

// percentileText returns a percentile in microseconds, or "-" if there are too few samples for that
// percentile.
func percentileText(d *result.Distribution, p float64) string {
	if !d.Enough(p) {
		return "-"
	}
	return micros(d.At(p))
}

// caseColumns are the columns that describe the case. Every table begins with these columns.
var caseColumns = []column{
	{"test", 9, "", 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Test }},
	{"layer", 6, "", 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Layer }},
	{"size", 8, "", 0, func(r *result.Run, _ *result.Stream) string { return result.Bytes(r.Case.Size) }},
	{"QPs", 4, "1", 0, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.QPs) }},
	{"poll", 8, result.Busy, 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Poll }},
	{"dir", 4, result.Out, 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Direction }},
}

var operations = column{"ops", 8, "", 2, func(_ *result.Run, s *result.Stream) string {
	return strconv.FormatInt(s.Ops, 10)
}}

var latencyColumns = slices.Concat(caseColumns, []column{operations,
	{"min", 7, "", 3, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Min) }},
	{"p50", 7, "", 0, percentile(50)},
	{"p90", 7, "", 5, percentile(90)},
	{"p99", 7, "", 0, percentile(99)},
	{"p99.9", 7, "", 1, percentile(99.9)},
	{"p99.99", 7, "", 6, percentile(99.99)},
	{"max", 7, "", 0, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Max) }},
	{"mean", 7, "", 4, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Mean) }},
})

var bandwidthColumns = slices.Concat(caseColumns, []column{
	{"depth", 5, "128", 0, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.Depth) }},
	{"batch", 5, "1", 0, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.Batch) }},
	operations,
	{"time s", 8, "", 3, func(_ *result.Run, s *result.Stream) string {
		return number(time.Duration(s.Elapsed).Seconds(), 3)
	}},
	{"Gb/s", 8, "", 0, func(_ *result.Run, s *result.Stream) string { return number(s.GbitS, 3) }},
	{"MiB/s", 9, "", 4, func(_ *result.Run, s *result.Stream) string { return number(s.MiBS, 2) }},
	{"CPU us/op", 9, "", 1, func(r *result.Run, _ *result.Stream) string {
		return number(r.Flows()[0].Initiator.Cost.PerMillion, 3)
	}},
	{"ops/s", 8, "", 0, func(_ *result.Run, s *result.Stream) string { return number(s.OpsS, 0) }},
})

// columnsOf returns the columns of the table for a mode. It leaves out a column in which all cases
// have the usual value.
func columnsOf(cases []result.Case, mode string) (all []column) {
	columns := bandwidthColumns
	if mode == result.Latency {
		columns = latencyColumns
	}
	for _, c := range columns {
		if c.usual == "" || slices.ContainsFunc(cases, func(one result.Case) bool {
			return one.Mode == mode && c.text(&result.Run{Case: one}, nil) != c.usual
		}) {
			all = append(all, c)
		}
	}
	return all
}

// narrow removes columns until the others fit into a line. It begins with the column whose field
// spare is largest, and keeps the columns whose spare is 0.
func narrow(columns []column) []column {
	for {
		wide, least := -1, -1
		for i, c := range columns {
			wide += c.width + 1
			if c.spare > 0 && (least < 0 || c.spare > columns[least].spare) {
				least = i
			}
		}
		if wide <= maxColumns || least < 0 {
			return columns
		}
		columns = slices.Delete(slices.Clone(columns), least, least+1)
	}
}

// label returns the name of a case's series within its plot. The name contains the layer and the
// settings that differ from their defaults. It leaves out the test and the size.
func label(c *result.Case) string {
	return strings.Join(append([]string{c.Layer}, c.Unusual()...), " ")
}

// IntervalLine prints the figures of one interval, from the end that initiated the operations.
func IntervalLine(w io.Writer, iv *result.Interval) {
	from, to := time.Duration(iv.Start).Seconds(), time.Duration(iv.Stop).Seconds()
	fmt.Fprintf(w, "  %-6s %7s-%7s s", fit(iv.End, 6), fit(number(from, 3), 7), fit(number(to, 3), 7))
	if iv.P50 == 0 {
		fmt.Fprintf(w, " %8s Gb/s", fit(number(iv.GbitS, 3), 8))
	}
	fmt.Fprintf(w, " %8s ops/s", fit(number(float64(iv.Ops)/max(to-from, 1e-9), 0), 8))
	if iv.P50 > 0 {
		p99 := "-"
		if iv.Ops >= 100 {
			p99 = micros(iv.P99)
		}
		fmt.Fprintf(w, "  p50 %6s  p99 %6s  max %6s us", fit(micros(iv.P50), 6), fit(p99, 6), fit(micros(iv.Max), 6))
	}
	fmt.Fprintln(w)
}
