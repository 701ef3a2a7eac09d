package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// plots returns the plots of a document: latency by percentile; latency, bandwidth, message rate
// and CPU time over size; and bandwidth over time. The plots show only the runs in the parameter
// runs, which medianRuns has returned.
func plots(d *result.Document, runs []*result.Run) []*plot {
	var all []*plot
	index := map[string]*plot{}
	colours := paletteOf(d)
	get := func(key string, p plot) *plot {
		if index[key] == nil {
			index[key] = &p
			all = append(all, &p)
		}
		return index[key]
	}
	for _, test := range result.Tests {
		sizes(runs, test, colours, get)
		for _, r := range runs {
			if r.Case.Test != test {
				continue
			}
			total := r.Total()
			if total.Latency != nil && len(total.Latency.Histogram) > 1 {
				get("cdf "+test, plot{
					title: test + ": latency by percentile", xTitle: "percentile", yTitle: latencyTitle(&r.Case), yUnits: timeUnits,
					yLog: true, xTicks: nines, rows: percentileRows(),
				}).add(curve(r, &total, colours.ofSize(&r.Case)))
			}
			for _, f := range r.Flows() {
				if r.Case.Mode != result.Bandwidth {
					continue
				}
				if line := timeline(r, f, colours.ofSize(&r.Case)); len(line.points) > 1 {
					get("time "+test, plot{title: test + ": bandwidth over time", xTitle: "seconds", yTitle: "bandwidth",
						yUnits: bitUnits, rows: timeRows}).add(line)
				}
			}
		}
	}
	return all
}

// sizePlot describes a plot over message size, of runs of one mode.
type sizePlot struct {
	mode, what string
	units      []unit
	yLog       bool
	lines      []sizeLine
}

type sizeLine struct {
	suffix string
	value  func(*result.Run, *result.Stream) float64 // 0: no point
}

func latencyAt(p float64) func(*result.Run, *result.Stream) float64 {
	return func(_ *result.Run, s *result.Stream) float64 {
		if !s.Latency.Enough(p) && p > 50 {
			return 0
		}
		return s.Latency.At(p) / 1e3
	}
}

func bandwidth(_ *result.Run, s *result.Stream) float64 { return s.GbitS }

func messageRate(_ *result.Run, s *result.Stream) float64 { return s.OpsS }

// cpuOf returns the processor time that an end used per operation, in us. It returns 0 if the run
// was shorter than result.TooShort, because the kernel's accounting is too coarse for such a run.
func cpuOf(end *result.End, s *result.Stream) float64 {
	if end == nil || s.Ops == 0 || end.Cost.Wall > 0 && end.Cost.Wall < result.TooShort {
		return 0
	}
	return float64(end.Cost.CPU) / 1e3 / float64(s.Ops)
}

var sizePlots = []sizePlot{
	{result.Latency, "latency", timeUnits, true, []sizeLine{{" p50", latencyAt(50)}, {" p99", latencyAt(99)}}},
	{result.Bandwidth, "bandwidth", bitUnits, false, []sizeLine{{"", bandwidth}}},
	{result.Bandwidth, "message rate", rateUnits, false, []sizeLine{{"", messageRate}}},
	{result.Bandwidth, "CPU time per operation", timeUnits, false, []sizeLine{
		{" client", func(r *result.Run, s *result.Stream) float64 { return cpuOf(r.Client, s) }},
		{" server", func(r *result.Run, s *result.Stream) float64 { return cpuOf(r.Server, s) }}}},
}

// latencyTitle returns what the latency of a case is, for the axis of a plot.
func latencyTitle(c *result.Case) string {
	if c.PingPong() {
		return "latency: half of the round trip"
	}
	return "latency: the whole operation"
}

// sizes adds the plots over size for a test. It skips a mode that was measured with only one size.
func sizes(runs []*result.Run, test string, colours *palette, get func(string, plot) *plot) {
	for _, kind := range sizePlots {
		var order []string
		points := map[string][]point{}
		styles := map[string]lineStyle{}
		distinct := map[int]bool{}
		for _, r := range runs {
			if r.Case.Test != test || r.Case.Mode != kind.mode {
				continue
			}
			distinct[r.Case.Size] = true
			total := r.Total()
			for variant, line := range kind.lines {
				y, name := line.value(r, &total), label(&r.Case)+line.suffix
				if y <= 0 {
					continue
				}
				if points[name] == nil {
					order = append(order, name)
					styles[name] = colours.style(&r.Case, variant)
				}
				points[name] = append(points[name], point{sizeAt(r.Case.Size), y, result.Bytes(r.Case.Size)})
			}
		}
		if len(distinct) < 2 {
			continue
		}
		axis := kind.what
		if kind.mode == result.Latency {
			axis = latencyTitle(&result.Case{Test: test, Mode: kind.mode})
		}
		p := get(kind.what+" sizes "+test, plot{title: test + ": " + kind.what + " over size", xTitle: "message size",
			yTitle: axis, yUnits: kind.units, yLog: kind.yLog, xTicks: sizeTicks(distinct),
			rows: sizeRows(distinct)})
		for _, name := range order {
			p.add(series{name, styles[name], points[name]})
		}
	}
}

// sizeAt returns the x value of a message size.
func sizeAt(size int) float64 { return math.Log2(float64(size)) }

func sizeRows(sizes map[int]bool) (all []valueRow) {
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		all = append(all, at(sizeAt(size), result.Bytes(size)))
	}
	return all
}

// percentileRows returns a row for each percentile of the axis, except for 0 and for 99.999, which
// few curves reach.
func percentileRows() (all []valueRow) {
	for _, n := range nines[1 : len(nines)-1] {
		all = append(all, at(n.at, n.text+"%"))
	}
	return all
}

var timeRows = []valueRow{ranked(0, "least"), ranked(0.5, "median"), ranked(1, "greatest")}

// sizeTicks returns ticks at those sizes that are powers of two, at most 8 ticks. If no size is a
// power of two, it returns a tick for each size.
func sizeTicks(sizes map[int]bool) []tick {
	var all []tick
	n, step := 0, (len(sizes)+7)/8
	for e := range 31 {
		if sizes[1<<e] {
			if n%step == 0 {
				all = append(all, tick{float64(e), strings.TrimSuffix(result.Bytes(1<<e), "iB")})
			}
			n++
		}
	}
	if all == nil {
		for n := range sizes {
			all = append(all, tick{sizeAt(n), result.Bytes(n)})
		}
	}
	return all
}

// nines lists the ticks of the percentile axis. The axis is logarithmic: the part from 90 to 99 is
// as wide as the part from 99 to 99.9.
var nines = []tick{{0, "0"}, {-math.Log10(0.5), "50"}, {1, "90"}, {2, "99"}, {3, "99.9"}, {4, "99.99"},
	{5, "99.999"}}

func curve(r *result.Run, s *result.Stream, as lineStyle) series {
	out := series{name: label(&r.Case) + " " + result.Bytes(r.Case.Size), style: as}
	below, all := int64(0), int64(0)
	for _, b := range s.Latency.Histogram {
		all += b.Count
	}
	for _, b := range s.Latency.Histogram {
		if below += b.Count; below < all {
			share := float64(below) / float64(all)
			out.points = append(out.points, point{min(-math.Log10(1-share), 5), b.UpTo / 1e3, fmt.Sprintf("%.5g%%", share*100)})
		}
	}
	for _, n := range nines[1:] { // the percentiles of the table, which the curve may lack
		if p, _ := strconv.ParseFloat(n.text, 64); s.Latency.Enough(p) && s.Latency.At(p) > 0 {
			out.points = append(out.points, point{n.at, s.Latency.At(p) / 1e3, n.text + "%"})
		}
	}
	slices.SortStableFunc(out.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	return out
}

// timeline returns the bandwidth of each whole interval.
func timeline(r *result.Run, f result.Flow, as lineStyle) series {
	s := series{name: label(&r.Case) + " " + result.Bytes(r.Case.Size), style: as}
	for _, iv := range f.Initiator.Intervals {
		if iv.Whole(&r.Case) {
			at := time.Duration(iv.Stop).Seconds()
			s.points = append(s.points, point{at, iv.GbitS, fmt.Sprintf("%.1f s", at)})
		}
	}
	return s
}

// valueRow is a row of the table below a plot.
type valueRow struct {
	title string
	of    func(points []point) (y float64, known bool)
}

// The function at returns a row that contains the value of each series at the position x.
func at(x float64, title string) valueRow {
	return valueRow{title, func(points []point) (float64, bool) {
		for _, pt := range points {
			if pt.x == x {
				return pt.y, true
			}
		}
		return 0, false
	}}
}

// ranked returns a row with the value at a place among the sorted values of a series. Place 0 is
// the least value, and place 1 is the greatest.
func ranked(place float64, title string) valueRow {
	return valueRow{title, func(points []point) (float64, bool) {
		var all []float64
		for _, pt := range points {
			all = append(all, pt.y)
		}
		slices.Sort(all)
		if len(all) == 0 {
			return 0, false
		}
		return all[int(place*float64(len(all)-1))], true
	}}
}

// table returns a table of the values of some of the plot's series. Each series is a row, unless
// the table is narrower with a column for each series.
func (p *plot) table(part []series) pageTable {
	down := []string{} // titles of the rows
	for _, s := range part {
		down = append(down, s.name)
	}
	across := []string{}
	for _, r := range p.rows {
		across = append(across, r.title)
	}
	value := func(s, r int) string {
		if y, known := p.rows[r].of(part[s].points); known {
			return inUnit(y, p.yUnits, threeDigits)
		}
		return "-"
	}
	corner := ""
	if len(across) > len(down) {
		down, across, corner = across, down, p.xTitle
		bySeries := value
		value = func(r, s int) string { return bySeries(s, r) }
	}
	t := pageTable{Titles: append([]string{corner}, across...)}
	for i, name := range down {
		row := []string{name}
		for j := range across {
			row = append(row, value(i, j))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// note returns an explanation of the series that appear as a dot without a line, or "" if there are
// no such series.
func (p *plot) note(part []series) string {
	var alone []string
	for _, s := range part {
		if len(s.points) == 1 {
			alone = append(alone, fmt.Sprintf("%s (at %s)", s.name, s.points[0].at))
		}
	}
	if alone == nil {
		return ""
	}
	return "A dot without a line is a series with one value: " + strings.Join(alone, ", ") +
		". Its other values were not measured, or there were too few operations for them."
}
