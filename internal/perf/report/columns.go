package report

import (
	"slices"
	"strconv"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

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
	{"test", 11, "", 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Test }},
	{"layer", 6, "", 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Layer }},
	{"size", 8, "", 0, func(r *result.Run, _ *result.Stream) string { return result.Bytes(r.Case.Size) }},
	{"QPs", 4, "1", 0, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.QPs) }},
	{"poll", 8, result.Busy, 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Poll }},
	{"dir", 4, result.Out, 0, func(r *result.Run, _ *result.Stream) string { return r.Case.Direction }},
}

var operations = column{"ops", 8, "", 0, func(_ *result.Run, s *result.Stream) string {
	return strconv.FormatInt(s.Ops, 10)
}}

var latencyColumns = slices.Concat(caseColumns, []column{operations,
	{"min", 7, "", 0, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Min) }},
	{"p50", 7, "", 0, percentile(50)},
	{"p90", 7, "", 2, percentile(90)},
	{"p99", 7, "", 0, percentile(99)},
	{"p99.9", 7, "", 0, percentile(99.9)},
	{"p99.99", 7, "", 3, percentile(99.99)},
	{"max", 7, "", 0, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Max) }},
	{"mean", 7, "", 1, func(_ *result.Run, s *result.Stream) string { return micros(s.Latency.Mean) }},
})

var bandwidthColumns = slices.Concat(caseColumns, []column{
	{"depth", 5, "128", 0, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.Depth) }},
	{"batch", 5, "1", 0, func(r *result.Run, _ *result.Stream) string { return strconv.Itoa(r.Case.Batch) }},
	operations,
	{"time s", 8, "", 1, func(_ *result.Run, s *result.Stream) string {
		return number(time.Duration(s.Elapsed).Seconds(), 3)
	}},
	{"Gb/s", 8, "", 0, func(_ *result.Run, s *result.Stream) string { return number(s.GbitS, 3) }},
	{"MiB/s", 9, "", 2, func(_ *result.Run, s *result.Stream) string { return number(s.MiBS, 2) }},
	{"CPU us/op", 9, "", 0, func(r *result.Run, _ *result.Stream) string {
		return number(r.Flows()[0].Initiator.Cost.PerMillion, 3)
	}},
	{"Mops/s", 8, "", 0, func(_ *result.Run, s *result.Stream) string { return number(s.OpsS/1e6, 4) }},
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
