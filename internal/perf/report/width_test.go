package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// large returns a run in which every figure and text is as large as possible.
func large(c result.Case, v float64) result.Run {
	s := &result.Stream{Ops: 1 << 62, Bytes: 1 << 62, Elapsed: 1 << 62, GbitS: v, MiBS: v, OpsS: v * 1e6}
	if c.Mode == result.Latency {
		d := &result.Distribution{Count: 1 << 60, Min: v, Mean: v, Max: v}
		for _, p := range []float64{50, 90, 99, 99.9, 99.99, 99.999} {
			d.Percentiles = append(d.Percentiles, result.Percentile{P: p, Value: v})
		}
		s.Latency, s.Corrected = d, d
	}
	end := &result.End{Initiated: s, Cost: result.Cost{PerMillion: v}, Counters: result.Counters{
		"port_xmit_data": 1 << 60, "port_rcv_packets": 1 << 62, "retry_exceeded_err": 1 << 62, "port_xmit_wait": 1 << 62,
		"ethtool_rx_prio3_pause": 1 << 62}, Notes: result.Notes{strings.Repeat("words and ", 30), strings.Repeat("ü", 300)}}
	return result.Run{Case: c, Client: end, Server: end}
}

// No line of a table, or below one, is longer than 80 columns, whatever the figures and the
// settings that a document may contain.
func TestWidth(t *testing.T) {
	var b bytes.Buffer
	for _, v := range []float64{0, 0.001, 999999.994, 12345678.9, 1e15, 1e300} {
		for _, mode := range result.Modes {
			for _, test := range append(result.Tests, strings.Repeat("x", 200)) {
				c := result.Default()
				c.Test, c.Mode, c.Size, c.QPs, c.Layer = test, mode, 1<<30-1, 4096, result.Cverbs
				c.Poll, c.Direction, c.Depth, c.Batch = result.Adaptive, result.Both, 16384, 16383
				c.Rate, c.Transport = 1e9, result.UC
				usual := result.Default()
				usual.Mode, usual.Depth, usual.Batch = mode, 128, 1
				for _, cases := range [][]result.Case{{c}, {usual}, {usual, c}} {
					table := NewTable(&b, cases)
					var runs []result.Run
					for _, one := range cases {
						for range 6 {
							runs = append(runs, large(one, v))
						}
					}
					for i := range runs {
						table.Run(&runs[i])
					}
					table.Summary(result.Summarize(runs))
					table.Close()
				}
			}
		}
		IntervalLine(&b, &result.Interval{End: "client", Start: 0, Stop: 1 << 62, Ops: 1 << 62, GbitS: v, P50: v, P99: v,
			Max: v})
		IntervalLine(&b, &result.Interval{End: "server", Stop: result.Seconds(time.Second), Ops: 1 << 62, P50: 1, GbitS: v})
		figure := result.Estimate{Median: v}
		Comparison(&b, &result.Comparison{Unlike: []string{strings.Repeat("a long text ", 20)}, Outcome: result.Undecided,
			Threshold: 1e-9, Missing: []string{strings.Repeat("n", 250)}, Added: []string{strings.Repeat("n ", 250)},
			Changes: []result.Change{{Name: strings.Repeat("case ", 30), Metric: "latency_p99.99_ns", Percent: v, Least: -v,
				Most: v, Why: strings.Repeat("why not ", 20), Verdict: result.Undecided, Old: figure, New: figure},
				{Metric: "ops_s", Verdict: result.Worse, Old: figure, New: figure}}})
	}
	facts := &result.Facts{Device: strings.Repeat("d", 120), Fabric: "verbs", Chosen: strings.Repeat("because ", 40),
		Detail: strings.Repeat("detail ", 40), MTU: 4096, BoundNode: "1", Warnings: []string{strings.Repeat("warn ", 50)}}
	Ends(&b, facts, facts)
	lines := 0
	for line := range strings.Lines(b.String()) {
		lines++
		line = strings.TrimSuffix(line, "\n")
		assert.Assert(t, utf8.RuneCountInString(line) <= 80, "%d columns: %s", utf8.RuneCountInString(line), line)
	}
	assert.Assert(t, lines > 5000, lines)
}

// Columns with the usual value are left out. Each setting that differs between cases has a column,
// and the most important figures are always there.
func TestColumns(t *testing.T) {
	titles := func(mode string, cases ...result.Case) string {
		var all []string
		for _, c := range narrow(columnsOf(cases, mode)) {
			all = append(all, c.title)
		}
		return strings.Join(all, " ")
	}
	usual := result.Default()
	usual.Complete()
	assert.Equal(t, titles(result.Latency, usual), "test layer size ops min p50 p99 p99.9 max")
	many := usual
	many.QPs = 2
	assert.Equal(t, titles(result.Latency, usual, many), "test layer size QPs ops min p50 p99 p99.9 max")
	many.Poll, many.Direction = result.Event, result.In
	assert.Equal(t, titles(result.Latency, many), "test layer size QPs poll dir p50 p99 p99.9 max")
	assert.Equal(t, titles(result.Bandwidth, many), "test layer size ops time s Gb/s CPU us/op ops/s")
	many.Mode, many.Depth, many.Batch = result.Bandwidth, 16, 4
	assert.Equal(t, titles(result.Bandwidth, usual, many),
		"test layer size QPs poll dir depth batch Gb/s ops/s")
}

func TestFold(t *testing.T) {
	assert.Equal(t, fold("  short", "    "), "  short\n")
	assert.Equal(t, fold("", "  "), "\n")
	word := strings.Repeat("w", 60)
	assert.Equal(t, fold(word+" "+word+" end", "  "), word+"\n  "+word+" end\n")
	assert.Equal(t, fold(strings.Repeat("ü", 150), " "), strings.Repeat("ü", 80)+"\n "+strings.Repeat("ü", 70)+"\n")
}

func TestFit(t *testing.T) {
	for text, want := range map[string]string{"1234.56": "1234.56", "12345.67": "12345.7", "1234567.89": "1234568",
		"12345678.9": "1.2e+07", "-12345678.9": "-1e+07", "something": "someth~", "-": "-", "99999999": "1.0e+08"} {
		assert.Equal(t, fit(text, 7), want)
	}
}
