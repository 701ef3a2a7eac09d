// Package report renders datperf's results as tables, CSV, Markdown, HTML, and in perftest's
// columns. Command datperf imports it.
package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// column is one column of a table: its title, and a run's text in it.
type column struct {
	title string
	width int
	text  func(r *result.Run, s *result.Stream) string
}

func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

func micros(ns float64) string { return number(ns/1e3, 2) }

func percentile(p float64) func(*result.Run, *result.Stream) string {
	return func(_ *result.Run, s *result.Stream) string {
		return percentileText(s.Latency, p)
	}
}

// percentileText returns a percentile in microseconds, "" if there are too few samples for it.
func percentileText(d *result.Distribution, p float64) string {
	if !d.Enough(p) {
		return "-"
	}
	return micros(d.At(p))
}

// what has the columns of the case, the same in every table.
var what = []column{
	{"test", 11, func(r *result.Run, _ *result.Stream) string { return r.Case.Test }},
	{"layer", 6, func(r *result.Run, _ *result.Stream) string { return r.Case.Layer }},
	{"size", 8, func(r *result.Run, _ *result.Stream) string { return result.Bytes(r.Case.Size) }},
	{"QPs", 4, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.QPs) }},
	{"poll", 8, func(r *result.Run, _ *result.Stream) string { return r.Case.Poll }},
	{"dir", 4, func(r *result.Run, _ *result.Stream) string { return r.Case.Direction }},
	{"ops", 9, func(_ *result.Run, s *result.Stream) string { return strconv.FormatInt(s.Ops, 10) }},
}

var latencyColumns = append(what[:len(what):len(what)],
	column{"min", 9, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Min) }},
	column{"p50", 9, percentile(50)},
	column{"p90", 9, percentile(90)},
	column{"p99", 9, percentile(99)},
	column{"p99.9", 9, percentile(99.9)},
	column{"p99.99", 9, percentile(99.99)},
	column{"max", 10, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Max) }},
	column{"mean", 9, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Mean) }},
)

var bandwidthColumns = append(what[:len(what):len(what)],
	column{"depth", 6, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.Depth) }},
	column{"batch", 6, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.Batch) }},
	column{"time s", 8, func(_ *result.Run,
		s *result.Stream) string {
		return number(time.Duration(s.Elapsed).Seconds(), 3)
	}},
	column{"Gb/s", 9, func(_ *result.Run, s *result.Stream) string { return number(s.GbitS, 3) }},
	column{"MiB/s", 10, func(_ *result.Run, s *result.Stream) string { return number(s.MiBS, 2) }},
	column{"CPU us/op", 10,
		func(r *result.Run, _ *result.Stream) string { return number(r.Flows()[0].Initiator.Cost.PerMillion, 3) }},
	column{"Mops/s", 9, func(_ *result.Run, s *result.Stream) string { return number(s.OpsS/1e6, 4) }},
)

// Table prints runs as they come, one line each, under a heading for each kind of run.
type Table struct {
	w    io.Writer
	last string
}

// NewTable makes a table on w.
func NewTable(w io.Writer) *Table { return &Table{w: w} }

func columnsOf(r *result.Run) []column {
	if r.Case.Mode == result.Latency {
		return latencyColumns
	}
	return bandwidthColumns
}

// kindOf returns a key for the runs that share a heading.
func kindOf(r *result.Run) string {
	if r.Case.Test == result.Transaction {
		return "lat of transactions"
	}
	if r.Case.Mode == result.Latency && !r.Case.PingPong() {
		return "lat of the whole operation"
	}
	return r.Case.Mode
}

// headline describes the figures of a run.
func headline(r *result.Run) string {
	switch {
	case r.Case.Mode == result.Bandwidth:
		return "Bandwidth of payload: Gb/s are 10^9 bits, MiB/s 2^20 bytes per second. CPU is of the initiator's process."
	case r.Case.Test == result.Transaction:
		return "Latency in us: of the whole transaction. The size is that of its largest step."
	case r.Case.PingPong():
		return "Latency in us: half of the round trip."
	}
	return "Latency in us: of the whole operation, from post to completion."
}

// Run prints one run.
func (t *Table) Run(r *result.Run) {
	columns := columnsOf(r)
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
	if total.Corrected != nil {
		l, raw := total.Corrected, total.Latency
		fmt.Fprintf(t.w, "  open loop, %g/s %s: latency from when an operation fell due (corrected for coordinated "+
			"omission) p50 %s p99 %s p99.9 %s max %s us; as posted p50 %s p99 %s us\n",
			r.Case.Rate, r.Case.Arrival, micros(l.At(50)), percentileText(l, 99), percentileText(l,
				99.9), micros(l.Max), micros(raw.At(50)), percentileText(raw, 99))
	}
	if flows := r.Flows(); len(flows) > 1 {
		for _, f := range flows {
			fmt.Fprintf(t.w, "  %s: %s Gb/s, %s Mops/s\n", f.Direction, number(f.Stream.GbitS, 3), number(f.Stream.OpsS/1e6, 4))
		}
	}
	if r.Case.Lossy() {
		fmt.Fprintf(t.w, "  transport: %s\n", r.Case.Transport)
	}
	if r.Case.Steps != "" {
		fmt.Fprintf(t.w, "  steps: %s\n", r.Case.Steps)
	}
	notes := r.Notes
	for _, e := range []*result.End{r.Client, r.Server} {
		if e != nil {
			notes = append(notes[:len(notes):len(notes)], e.Notes...)
		}
	}
	if total.Short() {
		fmt.Fprintf(t.w, "  %s ms: too short, measure for %v or more (-n, -D)\n",
			number(time.Duration(total.Elapsed).Seconds()*1e3, 1), time.Duration(result.TooShort))
	}
	for _, n := range notes {
		fmt.Fprintf(t.w, "  note: %s\n", n)
	}
}

// Summary prints the medians of a repeated case.
func (t *Table) Summary(summaries []result.Summary) {
	for _, s := range summaries {
		fmt.Fprintf(t.w, "  %d runs, %s: median %s, from %s to %s, spread %.1f%%", s.Runs, s.Metric,
			metricText(s.Metric, s.Median), metricText(s.Metric, s.Min), metricText(s.Metric, s.Max), s.Spread)
		if s.High > 0 {
			fmt.Fprintf(t.w, "; 95%% confidence: %s to %s", metricText(s.Metric, s.Low), metricText(s.Metric, s.High))
		}
		fmt.Fprintln(t.w)
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
			fmt.Fprintf(&b, "%-*s ", c.width, text(c))
		} else {
			fmt.Fprintf(&b, "%*s ", c.width, text(c))
		}
	}
	fmt.Fprintln(t.w, strings.TrimRight(b.String(), " "))
}

// Ends prints the devices of the two ends, and why they were chosen.
func Ends(w io.Writer, client, server *result.Facts) {
	for _, e := range []struct {
		who string
		f   *result.Facts
	}{{"client", client}, {"server", server}} {
		f := e.f
		fmt.Fprintf(w, "%s: %s on the %s fabric, because %s\n", e.who, f.Device, f.Fabric, f.Chosen)
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
		if f.NUMANode != "" {
			about = append(about, "device on NUMA node "+f.NUMANode)
		}
		fmt.Fprintf(w, "        %s\n", strings.Join(about, ", "))
		for _, text := range f.Warnings {
			fmt.Fprintf(w, "        warning: %s\n", text)
		}
	}
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
