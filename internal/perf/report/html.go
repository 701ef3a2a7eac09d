package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// pageData is the content of the page.
type pageData struct {
	Title, Started, Command, Version string
	Ends                             []pageEnd
	Plots                            []pagePlot
	Tables                           []pageTable
	Matrices                         []pageMatrix
	Colours                          [most]struct{}
}

type pageEnd struct {
	Who   string
	Facts [][2]string
}

type pagePlot struct {
	Title  string
	SVG    template.HTML
	Legend []string
}

type pageTable struct {
	Headline string
	Titles   []string
	Rows     [][]string
}

// HTML writes one self-contained page with tables and plots.
func HTML(w io.Writer, d *result.Document) error {
	data := pageData{
		Title: d.Title, Started: d.Started.Format("2006-01-02 15:04:05 MST"), Command: strings.Join(d.Command, " "),
		Version: d.Version, Ends: []pageEnd{{"Client", factList(&d.Client)}, {"Server", factList(&d.Server)}},
		Tables: tables(d), Matrices: matrices(d.Mesh),
	}
	if d.Mesh != nil {
		data.Ends = meshEnds(d.Mesh)
	}
	switch {
	case data.Title != "":
	case d.Mesh != nil:
		data.Title = fmt.Sprintf("datperf: a mesh of %d hosts", len(d.Mesh.Hosts))
	default:
		data.Title = "datperf: " + d.Client.Device
	}
	for _, p := range plots(d) {
		for _, part := range p.panels() {
			shown := pagePlot{Title: part.title, SVG: template.HTML(part.svg)}
			for _, s := range part.series {
				shown.Legend = append(shown.Legend, s.name)
			}
			data.Plots = append(data.Plots, shown)
		}
	}
	return page.Execute(w, data)
}

func factList(f *result.Facts) [][2]string {
	var all [][2]string
	add := func(name, value string) {
		if value != "" && value != "0" {
			all = append(all, [2]string{name, value})
		}
	}
	add("Device", f.Device+" ("+f.Fabric+"), because "+f.Chosen)
	add("About", f.Detail)
	add("Firmware", f.Firmware)
	add("MTU", fmt.Sprint(f.MTU))
	add("GID", strings.TrimSpace(f.GID+" "+f.GIDType))
	add("Kernel", f.Kernel)
	add("libibverbs", f.Libibverbs)
	add("Processors", fmt.Sprintf("%d x %s", f.CPUs, f.CPU))
	add("Governor", f.Governor)
	add("Pinned to", f.PinnedCPU)
	add("NUMA node", f.NUMANode)
	add("Go", fmt.Sprintf("%s, GOMAXPROCS %d", f.GoVersion, f.GOMAXPROCS))
	add("GODEBUG", f.GODEBUG)
	for _, w := range f.Warnings {
		add("Warning", w)
	}
	return all
}

func tables(d *result.Document) []pageTable {
	var all []pageTable
	last := ""
	for i := range d.Runs {
		r := &d.Runs[i]
		columns := columnsOf(r)
		if k := kindOf(r); k != last {
			last = k
			t := pageTable{Headline: headline(r)}
			for _, c := range columns {
				t.Titles = append(t.Titles, c.title)
			}
			all = append(all, t)
		}
		total := r.Total()
		var row []string
		for _, c := range columns {
			row = append(row, c.text(r, &total))
		}
		t := &all[len(all)-1]
		t.Rows = append(t.Rows, row)
	}
	return all
}

// label names a series within its plot: everything that varies except test and size.
func label(c *result.Case) string {
	parts := []string{c.Layer}
	if c.Lossy() {
		parts = append(parts, c.Transport)
	}
	if c.Poll != result.Busy {
		parts = append(parts, c.Poll)
	}
	if c.QPs > 1 {
		parts = append(parts, fmt.Sprintf("%d QPs", c.QPs))
	}
	if c.Batch > 1 {
		parts = append(parts, fmt.Sprintf("batch %d", c.Batch))
	}
	if c.SRQ {
		parts = append(parts, "SRQ")
	}
	if c.Direction != result.Out {
		parts = append(parts, c.Direction)
	}
	if c.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g/s", c.Rate))
	}
	return strings.Join(parts, " ")
}

// plots returns the plots of a document: curves of latency, latency and bandwidth over size,
// rate and CPU time over size, bandwidth over time.
func plots(d *result.Document) []*plot {
	var all []*plot
	index := map[string]*plot{}
	get := func(key string, p plot) *plot {
		if index[key] == nil {
			index[key] = &p
			all = append(all, &p)
		}
		return index[key]
	}
	for _, test := range result.Tests {
		sizes(d, test, get)
		for i := range d.Runs {
			r := &d.Runs[i]
			if r.Case.Test != test {
				continue
			}
			total := r.Total()
			if total.Latency != nil && len(total.Latency.Curve) > 1 {
				get("cdf "+test, plot{
					title: test + ": latency by percentile", xTitle: "percentile", yTitle: "latency", yUnits: timeUnits,
					yLog: true, xTicks: nines,
				}).add(curve(r, &total))
			}
			for _, f := range r.Flows() {
				if r.Case.Mode == result.Bandwidth && len(f.Initiator.Intervals) > 1 {
					get("time "+test, plot{title: test + ": bandwidth over time", xTitle: "seconds", yTitle: "bandwidth",
						yUnits: bitUnits}).add(timeline(r, f))
				}
			}
		}
	}
	return all
}

// sizePlot is a plot over size, of the runs of a mode.
type sizePlot struct {
	mode, what string
	units      []unit
	yLog       bool
	lines      []sizeLine
}

type sizeLine struct {
	suffix string
	value  func(*result.Run, *result.Stream) float64 // nothing to show if 0
}

func latencyAt(p float64) func(*result.Run, *result.Stream) float64 {
	return func(_ *result.Run, s *result.Stream) float64 {
		if !s.Latency.Enough(p) && p > 50 {
			return 0
		}
		return s.Latency.At(p) / 1e3
	}
}

// cpuOf returns the processor time of an end in us per operation, 0 for an end that ran for less
// than the kernel accounts exactly.
func cpuOf(end *result.End, s *result.Stream) float64 {
	if end == nil || s.Ops == 0 || end.Cost.Wall > 0 && end.Cost.Wall < result.TooShort {
		return 0
	}
	return float64(end.Cost.CPU) / 1e3 / float64(s.Ops)
}

var sizePlots = []sizePlot{
	{result.Latency, "latency", timeUnits, true, []sizeLine{{" p50", latencyAt(50)}, {" p99", latencyAt(99)}}},
	{result.Bandwidth, "bandwidth", bitUnits, false, []sizeLine{
		{"", func(_ *result.Run, s *result.Stream) float64 { return s.GbitS }}}},
	{result.Bandwidth, "message rate", rateUnits, false, []sizeLine{
		{"", func(_ *result.Run, s *result.Stream) float64 { return s.OpsS }}}},
	{result.Bandwidth, "CPU time per operation", timeUnits, false, []sizeLine{
		{" client", func(r *result.Run, s *result.Stream) float64 { return cpuOf(r.Client, s) }},
		{" server", func(r *result.Run, s *result.Stream) float64 { return cpuOf(r.Server, s) }}}},
}

// sizes adds the plots over size of a test that was measured with more than one size.
func sizes(d *result.Document, test string, get func(string, plot) *plot) {
	for _, kind := range sizePlots {
		var order []string
		points := map[string][]point{}
		distinct := map[int]bool{}
		for i := range d.Runs {
			r := &d.Runs[i]
			if r.Case.Test != test || r.Case.Mode != kind.mode {
				continue
			}
			distinct[r.Case.Size] = true
			total := r.Total()
			for _, line := range kind.lines {
				y, name := line.value(r, &total), label(&r.Case)+line.suffix
				if y <= 0 {
					continue
				}
				if points[name] == nil {
					order = append(order, name)
				}
				points[name] = append(points[name], point{math.Log2(float64(r.Case.Size)), y, result.Bytes(r.Case.Size)})
			}
		}
		if len(distinct) < 2 {
			continue
		}
		p := get(kind.what+" sizes "+test, plot{title: test + ": " + kind.what + " over size", xTitle: "message size",
			yTitle: kind.what, yUnits: kind.units, yLog: kind.yLog, xTicks: sizeTicks(distinct)})
		for _, name := range order {
			p.add(series{name, points[name]})
		}
	}
}

// sizeTicks returns the sizes themselves, thinned out if there are more than 8.
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
			all = append(all, tick{math.Log2(float64(n)), result.Bytes(n)})
		}
	}
	return all
}

// nines is the axis of percentiles; 90 to 99 is as wide as 99 to 99.9.
var nines = []tick{{0, "0"}, {-math.Log10(0.5), "50"}, {1, "90"}, {2, "99"}, {3, "99.9"}, {4, "99.99"},
	{5, "99.999"}}

func curve(r *result.Run, s *result.Stream) series {
	out := series{name: label(&r.Case) + " " + result.Bytes(r.Case.Size)}
	for _, p := range s.Latency.Curve {
		if p.P >= 100 {
			break
		}
		x := -math.Log10(1 - p.P/100)
		out.points = append(out.points, point{min(x, 5), p.Value / 1e3, fmt.Sprintf("%.5g%%", p.P)})
	}
	return out
}

func timeline(r *result.Run, f result.Flow) series {
	s := series{name: r.Case.Test + " " + label(&r.Case) + " " + result.Bytes(r.Case.Size)}
	for _, iv := range f.Initiator.Intervals {
		at := time.Duration(iv.Stop).Seconds()
		s.points = append(s.points, point{at, iv.GbitS, fmt.Sprintf("%.1f s", at)})
	}
	return s
}
