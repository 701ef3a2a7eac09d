package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// document has runs of every kind, with times of zero, as a coarse clock gives them, and texts that
// HTML must not take literally.
func document() *result.Document {
	d := &result.Document{Schema: result.Schema, Title: "<b>title</b>", Started: time.Unix(0, 0).UTC()}
	d.Client.Device, d.Client.Detail = "<i>dev</i>", "a | b"
	for _, test := range result.Tests {
		for _, size := range []int{8, 1000, 4096} {
			for _, mode := range result.Modes {
				c := result.Default()
				c.Test, c.Mode, c.Size = test, mode, size
				c.Complete()
				s := &result.Stream{Ops: 10, Bytes: int64(10 * c.Size), Elapsed: result.Seconds(time.Millisecond)}
				s.Fill()
				if mode == result.Latency {
					s.Latency = &result.Distribution{Count: 10, Max: 5e6, Mean: 5e5}
					for _, p := range []float64{50, 90, 99, 99.9, 99.99} {
						s.Latency.Percentiles = append(s.Latency.Percentiles, result.Percentile{P: p})
					}
					s.Latency.Curve = []result.Percentile{{P: 0}, {P: 50}, {P: 90, Value: 5e6}, {P: 100, Value: 5e6}}
				}
				end := &result.End{Initiated: s,
					Intervals: []result.Interval{{Stop: result.Seconds(1e9)}, {Stop: result.Seconds(2e9), GbitS: 3}}}
				d.Runs = append(d.Runs, result.Run{Case: c, Client: end, Server: &result.End{}})
			}
		}
	}
	return d
}

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	assert.NilError(t, HTML(&b, document()))
	text := b.String()
	for _, bad := range []string{"NaN", "Inf", "<b>title", "<i>dev", "http://", "https://"} {
		assert.Assert(t, !strings.Contains(text, bad), bad)
	}
	assert.Equal(t, strings.Count(text, "<svg"), 24) // latencies of zero have no place in a plot over size
	// Every plot is well-formed.
	for _, part := range strings.Split(text, "<svg")[1:] {
		svg, _, ok := strings.Cut("<svg"+part, "</svg>")
		assert.Assert(t, ok)
		dec := xml.NewDecoder(strings.NewReader(svg + "</svg>"))
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A document with nothing in it, and one with a single run, can be shown too.
func TestSmallDocuments(t *testing.T) {
	d := document()
	for _, n := range []int{0, 1, 2} {
		small := *d
		small.Runs = d.Runs[:n]
		for _, write := range []func(io.Writer, *result.Document) error{HTML, CSV, Markdown} {
			var b bytes.Buffer
			assert.NilError(t, write(&b, &small))
			assert.Assert(t, b.Len() > 0 && !strings.Contains(b.String(), "NaN"))
		}
	}
}

// A plot has at most 6 lines; more are in further panels with the same scales. Bandwidth that spans
// two decades is on a logarithm, and every value can be read with its unit.
func TestPanels(t *testing.T) {
	p := plot{title: "bw", yUnits: bitUnits}
	for n := range 13 {
		p.add(series{fmt.Sprintf("line %d", n), []point{{0, 0.5, "1K"}, {float64(n + 1), 100, "1M"}}})
	}
	all := p.panels()
	assert.Equal(t, len(all), 3)
	assert.Equal(t, all[2].title, "bw (3 of 3)")
	grids := map[string]bool{}
	for i, part := range all {
		assert.Equal(t, strings.Count(part.svg, "<polyline"), []int{6, 6, 1}[i])
		assert.Equal(t, strings.Count(part.svg, `class="hit"`), []int{12, 12, 2}[i])
		grids[part.svg[:strings.Index(part.svg, "<polyline")]] = true
	}
	assert.Equal(t, len(grids), 1)
	assert.Assert(t, strings.Contains(all[0].svg, ">line 0, 1K: 500 Mb/s<"), all[0].svg)
	assert.Assert(t, strings.Contains(all[0].svg, ">10 Gb/s<"), "no logarithm")

	p = plot{yUnits: bitUnits, series: []series{{"flat", []point{{0, 90, ""}, {1, 100, ""}}}}}
	assert.Assert(t, strings.Contains(p.panels()[0].svg, ">60 Gb/s<"), "a logarithm")
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		v     float64
		units []unit
		want  string
	}{
		{0.25, timeUnits, "250 ns"}, {7.125, timeUnits, "7.12 us"}, {1000, timeUnits, "1.00 ms"},
		{2.5e6, timeUnits, "2.50 s"},
		{0, timeUnits, "0"}, {97.3, bitUnits, "97.3 Gb/s"}, {0.004, bitUnits, "4.00 Mb/s"}, {1.25e6, rateUnits, "1.25 M/s"},
	} {
		assert.Equal(t, inUnit(c.v, c.units, threeDigits), c.want)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		s    scale
		want string
	}{
		{scale{low: 0, high: 10}, "0 2 4 6 8 10"},
		{scale{low: 0, high: 0.3}, "0 0.05 0.1 0.15 0.2 0.25 0.3"},
		{scale{low: 0, high: 0.65}, "0 0.2 0.4 0.6"},
		{scale{low: 0.9, high: 30, log: true}, "1 2 5 10 20"},
		{scale{low: 0.5, high: 2e4, log: true}, "1 10 100 1000 10000"},
	} {
		var got []string
		for _, x := range c.s.ticks() {
			got = append(got, x.text)
		}
		assert.Equal(t, strings.Join(got, " "), c.want)
	}
}

// The counters that Prometheus sees only grow, and add up to what the runs did.
func TestPrometheus(t *testing.T) {
	p := NewPrometheus()
	text := func() string {
		var b strings.Builder
		assert.NilError(t, p.WriteText(&b))
		return b.String()
	}
	assert.Assert(t, strings.Contains(text(), "datperf_runs_total 0\n"))
	for n := range 2 {
		p.Case(&result.Case{Test: result.Send, Size: 10})
		p.Interval(&result.Interval{End: "client", Ops: 30, Bytes: 300, GbitS: 2, P50: 1500, P99: 2500, Max: 9000})
		assert.Assert(t, strings.Contains(text(), fmt.Sprintf("datperf_operations_total{end=\"client\"} %d\n", 100*n+30)))
		assert.Assert(t, strings.Contains(text(), `datperf_latency_seconds{end="client",quantile="0.5"} 1.5e-06`))
		p.Run(&result.Run{Client: &result.End{Initiated: &result.Stream{Ops: 100, Bytes: 1000}}})
		assert.Assert(t, strings.Contains(text(),
			fmt.Sprintf("datperf_payload_bytes_total{end=\"client\"} %d\n", 1000*(n+1))))
	}
	assert.Assert(t, strings.Contains(text(), "datperf_runs_total 2\n"))
}

// A percentile for which there are too few samples is not printed, and a run too short for its
// figure says so.
func TestTooFewTooShort(t *testing.T) {
	run := func(count int64, elapsed time.Duration) string {
		c := result.Default()
		c.Rate = 1
		c.Complete()
		d := &result.Distribution{Count: count, Min: 1, Max: 9e3, Mean: 3e3}
		for _, p := range []float64{50, 90, 99, 99.9, 99.99} {
			d.Percentiles = append(d.Percentiles, result.Percentile{P: p, Value: p * 3e3})
		}
		s := &result.Stream{Ops: count, Elapsed: result.Seconds(elapsed), Latency: d, Corrected: d}
		doc := &result.Document{Runs: []result.Run{{Case: c, Client: &result.End{Initiated: s}, Server: &result.End{}}}}
		var b bytes.Buffer
		NewTable(&b).Run(&doc.Runs[0])
		for _, form := range []func(io.Writer, *result.Document) error{CSV, Markdown, HTML} {
			assert.NilError(t, form(&b, doc))
		}
		IntervalLine(&b, &result.Interval{Stop: result.Seconds(time.Second), Ops: count, P50: 1, P99: 297e3})
		return b.String()
	}
	for value, least := range map[string]int64{"270.00": 10, "297.00": 100, "299.70": 1000, "299.97": 10000} {
		few, enough := run(least-1, time.Second), run(least, time.Second)
		assert.Assert(t, !strings.Contains(few, value) && !strings.Contains(few, strings.Replace(value, ".", "", 1)+"0"),
			"%s of %d:\n%s", value, least-1, few)
		assert.Assert(t, strings.Contains(enough, value) && strings.Contains(enough, strings.Replace(value, ".", "", 1)+"0"),
			"%s of %d:\n%s", value, least, enough)
	}
	assert.Assert(t, strings.Contains(run(10, 2*time.Millisecond), "2.0 ms: too short, measure for 10ms or more (-n, -D)"))
	assert.Assert(t, !strings.Contains(run(10, 10*time.Millisecond), "too short"))
}

func TestCPUOfShortEnds(t *testing.T) {
	end := &result.End{Cost: result.Cost{CPU: result.Seconds(time.Microsecond), Wall: result.Seconds(time.Millisecond)}}
	assert.Equal(t, cpuOf(end, &result.Stream{Ops: 10}), 0.0)
	end.Cost.Wall = result.TooShort
	assert.Equal(t, cpuOf(end, &result.Stream{Ops: 10}), 0.1)
}

func TestSections(t *testing.T) {
	x := &result.Table{Title: "Latency", Unit: "ns", Series: []string{"perftest", "udat"}, How: []string{"ib_x -s $SIZE"}}
	for _, v := range []float64{3000, 1000, 2000} {
		x.Add("2 B", "perftest", "ib_x -s 2", v)
	}
	x.Add("2 B", "udat", "datperf", 2110)
	x.Mark("udat", "<=", 1.1, "perftest")
	x.Mark("udat", "<=", 1.05, "perftest")
	x.Fail("4 KiB", "perftest", errors.New("no | route"))
	d := &result.Document{
		Schema: result.Schema, Command: []string{"make", "bench"}, Started: time.Unix(0, 0).UTC(),
		Labels: map[string]string{"Go": "go1"},
		Sections: []*result.Section{{
			Title: "Beside others", Elapsed: result.Seconds(time.Second), LoadStart: "0.1", LoadEnd: "1",
			Errors: []string{"ended"}, Tables: []*result.Table{x},
		}},
	}
	var b strings.Builder
	assert.NilError(t, Markdown(&b, d))
	text := b.String()
	for _, want := range []string{
		"Written by `make bench` on 1970-01-01 00:00 UTC",
		"**1 of 2 marks met.**",
		"| Where |  |\n|---|---|\n| Go | go1 |\n",
		"| Beside others (**failed**) | 1 | 0.1 | 1 | 1 of 2 |",
		"## Beside others\n\n**Failed:** ended\n",
		"ib_x -s $SIZE",
		"| us | perftest | udat | marks |\n|---|--:|--:|---|\n",
		"| 2 B | 2 ±50% | 2.11, 1.05x | met: udat <= 1.1 x perftest (1.05)<br>**missed**: udat <= 1.05 x perftest (1.05) |",
		`**Failed**, 4 KiB: perftest: no \| route`,
	} {
		assert.Assert(t, strings.Contains(text, want), "%q is not in\n%s", want, text)
	}
}

func TestShort(t *testing.T) {
	for want, v := range map[string]float64{
		"12346": 12345.6, "123.4": 123.44, "12.35": 12.349, "0.1": 0.1, "-3.5": -3.5, "0": 0, "1000": 999.99,
		"100": 100, "1200": 1200,
	} {
		assert.Equal(t, short(v), want)
	}
}
