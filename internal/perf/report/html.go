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
	Colours                          [most]struct{}
}

type pageEnd struct {
	Who   string
	Facts [][2]string
}

type pagePlot struct {
	Title, Note string
	SVG         template.HTML
	Legend      []string
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
		Tables: tables(d),
	}
	if data.Title == "" {
		data.Title = "datperf: " + d.Client.Device
	}
	for _, p := range plots(d) {
		if len(p.series) == 0 {
			continue
		}
		shown := pagePlot{Title: p.title, SVG: p.svg()}
		for _, s := range p.series {
			shown.Legend = append(shown.Legend, s.name)
		}
		if p.left > 0 {
			shown.Note = fmt.Sprintf("%d more are only in the tables.", p.left)
		}
		data.Plots = append(data.Plots, shown)
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
// bandwidth over time.
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
					title: test + ": latency by percentile", xTitle: "percentile", yTitle: "us", yLog: true, xTicks: nines,
				}).add(curve(r, &total))
			}
			for _, f := range r.Flows() {
				if r.Case.Mode == result.Bandwidth && len(f.Initiator.Intervals) > 1 {
					get("time "+test, plot{title: test + ": bandwidth over time", xTitle: "seconds", yTitle: "Gb/s"}).add(timeline(r,
						f))
				}
			}
		}
	}
	return all
}

// sizes adds the plots over size of a test that was measured with more than one size.
func sizes(d *result.Document, test string, get func(string, plot) *plot) {
	type line struct{ mode, name string }
	var order []line
	points := map[line][]point{}
	distinct := map[string]map[int]bool{}
	for i := range d.Runs {
		r := &d.Runs[i]
		c := &r.Case
		if c.Test != test {
			continue
		}
		if distinct[c.Mode] == nil {
			distinct[c.Mode] = map[int]bool{}
		}
		distinct[c.Mode][c.Size] = true
		total := r.Total()
		add := func(suffix string, y float64, unit string) {
			k := line{c.Mode, label(c) + suffix}
			if points[k] == nil {
				order = append(order, k)
			}
			if y > 0 {
				points[k] = append(points[k],
					point{math.Log2(float64(c.Size)), y, fmt.Sprintf("%s: %.4g %s", result.Bytes(c.Size), y, unit)})
			}
		}
		if c.Mode == result.Latency {
			add(" p50", total.Latency.At(50)/1e3, "us")
			if total.Latency.Enough(99) {
				add(" p99", total.Latency.At(99)/1e3, "us")
			}
		} else {
			add("", total.GbitS, "Gb/s")
		}
	}
	for _, k := range order {
		if len(distinct[k.mode]) < 2 {
			continue
		}
		p := plot{title: test + ": latency over size", xTitle: "message size", yTitle: "us", yLog: true}
		if k.mode == result.Bandwidth {
			p = plot{title: test + ": bandwidth over size", xTitle: "message size", yTitle: "Gb/s"}
		}
		p.xTicks = sizeTicks(distinct[k.mode])
		get(k.mode+" sizes "+test, p).add(series{k.name, points[k]})
	}
}

// sizeTicks returns the sizes themselves, thinned out if there are many.
func sizeTicks(sizes map[int]bool) []tick {
	var all []tick
	for n := 0; n < 31; n++ {
		if sizes[1<<n] && (len(sizes) <= 12 || n%2 == 0) {
			all = append(all, tick{float64(n), strings.TrimSuffix(result.Bytes(1<<n), "iB")})
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
var nines = []tick{{0, "0"}, {-math.Log10(0.5), "50%"}, {1, "90%"}, {2, "99%"}, {3, "99.9%"}, {4, "99.99%"},
	{5, "99.999%"}}

func curve(r *result.Run, s *result.Stream) series {
	out := series{name: label(&r.Case) + " " + result.Bytes(r.Case.Size)}
	for _, p := range s.Latency.Curve {
		if p.P >= 100 {
			break
		}
		x := -math.Log10(1 - p.P/100)
		out.points = append(out.points, point{min(x, 5), p.Value / 1e3, fmt.Sprintf("%.5g%%: %.4g us", p.P, p.Value/1e3)})
	}
	return out
}

func timeline(r *result.Run, f result.Flow) series {
	s := series{name: r.Case.Test + " " + label(&r.Case) + " " + result.Bytes(r.Case.Size)}
	for _, iv := range f.Initiator.Intervals {
		at := time.Duration(iv.Stop).Seconds()
		s.points = append(s.points, point{at, iv.GbitS, fmt.Sprintf("%.1f s: %.4g Gb/s", at, iv.GbitS)})
	}
	return s
}
