package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// document returns a document with runs of every kind. Some times are zero, as from a coarse clock,
// and some texts must be escaped in HTML.
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
					s.Latency.Histogram = []result.Bucket{{UpTo: 1, Count: 5}, {UpTo: 4e6, Count: 4}, {UpTo: 5e6, Count: 1}}
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
	assert.Equal(t, strings.Count(text, `role="img"`), 24) // latencies of zero have no place in a plot over size
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

// An empty document, and one with a single run, can be shown too.
func TestSmallDocuments(t *testing.T) {
	d := document()
	for _, n := range []int{0, 1, 2} {
		small := *d
		small.Runs = d.Runs[:n]
		for _, write := range []func(io.Writer, *result.Document) error{HTML, CSV} {
			var b bytes.Buffer
			assert.NilError(t, write(&b, &small))
			assert.Assert(t, b.Len() > 0 && !strings.Contains(b.String(), "NaN"))
		}
	}
}

// A panel has at most 6 lines. More lines are in further panels with the same scales. Bandwidths
// that span two decades get a logarithmic axis, and every value has its unit.
func TestPanels(t *testing.T) {
	p := plot{title: "bw", yUnits: bitUnits}
	for n := range 13 {
		p.add(series{fmt.Sprintf("line %d", n), lineStyle{n % most, 0}, []point{{0, 0.5, "1K"}, {float64(n + 1), 100, "1M"}}})
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

	p = plot{yUnits: bitUnits, series: []series{{"flat", lineStyle{}, []point{{0, 90, ""}, {1, 100, ""}}}}}
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

// The table ends with the sums of both ends' port counters over all runs. Below a run are its
// counters of errors, congestion and pauses. Every form of a document has them.
func TestPorts(t *testing.T) {
	d := document()
	d.Runs = d.Runs[:2]
	for i := range d.Runs {
		d.Runs[i].Client.Counters = result.Counters{"port_xmit_data": 1000, "port_xmit_packets": 50, "port_rcv_data": 1,
			"packet_seq_err": int64(i)}
		d.Runs[i].Server.Counters = result.Counters{"netdev_rx_bytes": 7, "rcvd_pkts": 3, "np_cnp_sent": 2,
			"ethtool_tx_prio3_pause": 9}
	}
	var b strings.Builder
	table := NewTable(&b, d.Cases())
	for i := range d.Runs {
		table.Run(&d.Runs[i])
	}
	table.Close()
	text := b.String()
	for _, want := range []string{"\n  the client's port has counted packet_seq_err 1\n",
		"\n  the server's port has counted np_cnp_sent 2, ethtool_tx_prio3_pause 9\n", "\n" + portHeadline + "\nend  "} {
		assert.Assert(t, strings.Contains(text, want), "%q is not in\n%s", want, text)
	}
	var rows []string
	for _, line := range strings.Split(text, "\n") {
		if fields := strings.Fields(line); len(fields) == 8 && (fields[0] == "client" || fields[0] == "server") {
			rows = append(rows, strings.Join(fields, " "))
		}
	}
	assert.DeepEqual(t, rows, []string{"client 8000 100 8 - 1 - -", "server - - - 6 - 4 18"})
	b.Reset()
	assert.NilError(t, HTML(&b, d))
	const row = "<td>client</td><td>8000</td><td>100</td><td>8</td><td>-</td><td>1</td><td>-</td><td>-</td>"
	assert.Assert(t, strings.Contains(b.String(), row), b.String())
}

// A percentile with too few samples is not printed. A run that is too short for its figure is
// marked.
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
		NewTable(&b, doc.Cases()).Run(&doc.Runs[0])
		for _, form := range []func(io.Writer, *result.Document) error{CSV, HTML} {
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

// A comparison prints the change of a figure even if it is undecided, but not if one of the figures
// is missing.
func TestComparisonOfOneFigure(t *testing.T) {
	had := result.Estimate{Median: 1000, Runs: 1}
	for _, c := range []struct {
		change result.Change
		want   string
	}{
		{result.Change{Old: had, New: result.Estimate{Median: 1500, Runs: 1}, Percent: 50}, "1.00us 1.50us +50.0% undecided"},
		{result.Change{Old: had, Percent: -100}, "1.00us - - undecided"},
		{result.Change{Old: result.Estimate{Runs: 1}, New: had}, "0.00us 1.00us - undecided"},
	} {
		c.change.Metric, c.change.Verdict = "latency_p50_ns", result.Undecided
		var b strings.Builder
		Comparison(&b, &result.Comparison{Changes: []result.Change{c.change}})
		assert.Assert(t, strings.Contains(strings.Join(strings.Fields(b.String()), " "), c.want), b.String())
	}
}

func TestCPUOfShortEnds(t *testing.T) {
	end := &result.End{Cost: result.Cost{CPU: result.Seconds(time.Microsecond), Wall: result.Seconds(time.Millisecond)}}
	assert.Equal(t, cpuOf(end, &result.Stream{Ops: 10}), 0.0)
	end.Cost.Wall = result.TooShort
	assert.Equal(t, cpuOf(end, &result.Stream{Ops: 10}), 0.1)
}

// Picture returns an SVG file with all lines, their names and the sizes.
func TestPicture(t *testing.T) {
	lines := []Line{{"C & co", []int{64, 4096}, []float64{1100, 2200}}, {"udat", []int{64}, []float64{1200}}}
	text, err := Picture("half of a round trip", false, lines)
	assert.NilError(t, err)
	names := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		assert.NilError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			names[e.Name.Local]++
			assert.Equal(t, e.Name.Space, "http://www.w3.org/2000/svg")
		}
	}
	assert.Equal(t, names["polyline"], 2)
	assert.Equal(t, names["rect"], 2)
	for _, want := range []string{"C &amp; co", ">udat<", ">64B<", ">4K<", "1.10 us", "2.20 us"} {
		assert.Assert(t, strings.Contains(text, want), "%q is not in\n%s", want, text)
	}
	text, err = Picture("messages", true, lines[1:])
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(text, "1.20 k/s"), text)
	_, err = Picture("x", true, make([]Line, 7))
	assert.ErrorContains(t, err, "1 to 6 lines")
}

// The last interval of a run may be short: it is neither a peak nor a point of the plot over time.
func TestShortLastInterval(t *testing.T) {
	d := document()
	r := &d.Runs[0]
	r.Case.Mode = result.Bandwidth
	r.Client.Initiated.GbitS = 2
	r.Client.Intervals = append(r.Client.Intervals,
		result.Interval{Start: result.Seconds(2e9), Stop: result.Seconds(2.1e9), GbitS: 9})
	assert.Equal(t, peakGbit(r), 3.0)
	assert.Equal(t, len(timeline(r, r.Flows()[0], lineStyle{}).points), 2)
}

// Who was measured, when, and with which labels stands at the top of the page and in CSV. So
// does an incomplete plan, where there is a top.
func TestAbout(t *testing.T) {
	d := document()
	d.Client.Host, d.Client.Link, d.Server.Host, d.Server.Device = "left", "100 Gb/s (eth0)", "right", "mlx5_0"
	d.Labels = map[string]string{"rack": "7", "cable": "dac"}
	d.Runs[0].Started = time.Unix(1e9, 5e6)
	d.Incomplete = &result.Incomplete{Planned: 99, Why: "the server has gone"}
	for _, write := range []func(io.Writer, *result.Document) error{HTML, CSV} {
		var b bytes.Buffer
		assert.NilError(t, write(&b, d))
		top, rest, _ := strings.Cut(b.String(), "Latency in us")
		for _, want := range []string{"left", "100 Gb/s (eth0)", "right", "mlx5_0", "cable=dac, rack=7"} {
			assert.Assert(t, strings.Contains(top, want), "%s: %.2000s", want, top)
		}
		if rest != "" {
			assert.Assert(t, strings.Contains(top, "the plan of 99 runs is incomplete: the server has gone"), top)
			assert.Assert(t, strings.Contains(top, "1970-01-01T00:00:00.000Z"), top)
		} else {
			assert.Assert(t, strings.Contains(top, ",2001-09-09T01:46:40.005Z,"), top)
		}
	}
}

// repeated returns a document with three runs of one case. The median of p50 is 2 us; the median of
// p99 is in another run.
func repeated() *result.Document {
	d := document()
	d.Runs = nil
	for i, us := range [][2]float64{{1, 90}, {2, 10}, {3, 50}} {
		c := result.Default()
		c.Complete()
		s := &result.Stream{Ops: 1000, Elapsed: result.Seconds(time.Second), OpsS: 1000, Latency: &result.Distribution{
			Count: 1000, Percentiles: []result.Percentile{{P: 50, Value: us[0] * 1e3}, {P: 99, Value: us[1] * 1e3}}}}
		d.Runs = append(d.Runs, result.Run{Case: c, Repeat: i + 1, Client: &result.End{Initiated: s}, Server: &result.End{}})
	}
	return d
}

// The head of the page has the median of the runs of the best case, not its luckiest run.
func TestHeadline(t *testing.T) {
	assert.DeepEqual(t, figures(repeated()), []pageFigure{
		{"2.00 us", "least median latency", "send of 2B, udat, median of 3 runs"},
		{"50.0 us", "least 99th percentile", "send of 2B, udat, median of 3 runs"}})
}

// Every format has the medians of repeated cases; none has them for cases that ran once.
func TestSummaries(t *testing.T) {
	d := repeated()
	write := map[string]func(io.Writer, *result.Document){
		"text": func(w io.Writer, d *result.Document) { NewTable(w, d.Cases()).Summary(result.Summarize(d.Runs)) },
		"html": func(w io.Writer, d *result.Document) { HTML(w, d) },
		"csv":  func(w io.Writer, d *result.Document) { CSV(w, d) },
		"ndjson": func(w io.Writer, d *result.Document) {
			if d.Summary = nil; len(d.Runs) > 1 {
				d.Summary = result.Summarize(d.Runs)
			}
			NewStream(w).End(d)
		},
	}
	for name, want := range map[string]string{
		"text": "  3 runs, latency_p99_ns: median 50.00us, from 10.00us to 90.00us, spread 160.0%\n",
		"html": "<td>latency_p99_ns</td><td>3</td><td>50.00us</td><td>10.00us</td><td>90.00us</td><td>160.0%</td>",
		"csv":  ",rc,median,,,,,,,,,,,,50000,", "ndjson": `"metric":"latency_p99_ns","runs":3,"median":50000,`,
	} {
		var b bytes.Buffer
		write[name](&b, d)
		assert.Assert(t, strings.Contains(b.String(), want), "%s: %s", name, b.String())
		b.Reset()
		once := *d
		once.Runs = d.Runs[:1]
		write[name](&b, &once)
		assert.Assert(t, !strings.Contains(b.String(), "median,") && !strings.Contains(b.String(), "latency_p99_ns"),
			"%s: %s", name, b.String())
	}
}
