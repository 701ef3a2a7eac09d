package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// swept returns a document with two layers, several sizes and both modes.
func swept(sizes ...int) *result.Document {
	d := &result.Document{Schema: result.Schema,
		Command: []string{"datperf", "local", "-s", "64,4K", "--title", "it's $HOME"}}
	for _, test := range []string{result.Send, result.Read} {
		for _, mode := range result.Modes {
			for _, size := range sizes {
				for _, layer := range result.Layers {
					c := result.Default()
					c.Test, c.Mode, c.Layer, c.Size = test, mode, layer, size
					c.Complete()
					s := &result.Stream{Ops: 1e6, Bytes: 1e6 * int64(size), Elapsed: 1e9}
					s.Fill()
					if mode == result.Latency {
						s.Latency = &result.Distribution{Count: 1e6, Min: 1000, Max: 9000, Mean: 2000}
						for i, p := range []float64{50, 90, 99, 99.9} {
							s.Latency.Percentiles = append(s.Latency.Percentiles, result.Percentile{P: p, Value: 1000 + float64(i*size)})
							s.Latency.Histogram = append(s.Latency.Histogram, result.Bucket{UpTo: 1000 + float64(i*size),
								Count: int64(4 - i)})
						}
					}
					d.Runs = append(d.Runs, result.Run{Case: c, Client: &result.End{Initiated: s}, Server: &result.End{}})
				}
			}
		}
	}
	return d
}

// The browser loads and runs nothing, and applies only the page's own style sheet, whose hash is in
// the policy. No element has a style or event attribute, which the policy would ignore.
func TestPolicy(t *testing.T) {
	var b bytes.Buffer
	assert.NilError(t, HTML(&b, swept(64, 4096)))
	text := b.String()
	_, style, _ := strings.Cut(text, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	found := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
	assert.Assert(t, found != nil)
	hash := strings.NewReplacer("&#43;", "+", "&#39;", "'").Replace(found[1])
	assert.Equal(t, hash, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; base-uri 'none'; form-action 'none'")
	for _, bad := range []string{"<script", " style=", " src=", " href=", "url(", "@import", "onload", "javascript:"} {
		assert.Assert(t, !strings.Contains(text, bad), bad)
	}
}

// If a case ran several times, the plots and their tables show the run with the median figure, and
// the page says so.
func TestPlotsOfRepeatedRuns(t *testing.T) {
	const note = "drawn as its median run"
	page := func(d *result.Document) string {
		var b bytes.Buffer
		assert.NilError(t, HTML(&b, d))
		return b.String()
	}
	d := swept(64, 4096)
	assert.Assert(t, !strings.Contains(page(d), note))
	once := plots(d, medianRuns(d))
	for i := range len(d.Runs) {
		for _, factor := range []float64{0.5, 3} { // a better and a worse run
			r := d.Runs[i]
			end := *r.Client
			s := *end.Initiated
			if s.Latency != nil {
				l := *s.Latency
				l.Percentiles, l.Histogram = slices.Clone(l.Percentiles), slices.Clone(l.Histogram)
				for j := range l.Percentiles {
					l.Percentiles[j].Value *= factor
					l.Histogram[j].UpTo *= factor
				}
				s.Latency = &l
			}
			s.GbitS *= factor
			end.Initiated, r.Client = &s, &end
			d.Runs = append(d.Runs, r)
		}
	}
	assert.Assert(t, strings.Contains(page(d), note))
	again := plots(d, medianRuns(d))
	assert.Equal(t, len(again), len(once))
	for i, p := range again {
		assert.Equal(t, fmt.Sprint(p.series), fmt.Sprint(once[i].series), p.title)
	}
}

// Runs that differ in one setting have different lines.
func TestLabels(t *testing.T) {
	labels := map[string]string{}
	for what, set := range map[string]func(*result.Case){
		"usual": func(*result.Case) {}, "layer": func(c *result.Case) { c.Layer = result.Cverbs },
		"transport": func(c *result.Case) { c.Transport = result.UC },
		"connect":   func(c *result.Case) { c.Connect = result.Exchange },
		"direction": func(c *result.Case) { c.Direction = result.In }, "poll": func(c *result.Case) { c.Poll = result.Event },
		"qps": func(c *result.Case) { c.QPs = 2 }, "threads": func(c *result.Case) { c.Threads = 2 },
		"depth": func(c *result.Case) { c.Depth = 16 }, "batch": func(c *result.Case) { c.Batch = 8 },
		"srq": func(c *result.Case) { c.SRQ = true }, "rate": func(c *result.Case) { c.Rate = 10 },
	} {
		c := result.Default()
		c.Mode = result.Bandwidth
		set(&c)
		c.Complete()
		other, seen := labels[label(&c)]
		assert.Assert(t, !seen, "%s and %s: %s", what, other, label(&c))
		labels[label(&c)] = what
	}
}

// A setting has the same color in every plot of the page. Lines of the same color in a panel have
// different dashes, even if there are more settings and sizes than colors.
func TestStyles(t *testing.T) {
	d := swept(8, 64, 512, 4096, 32768, 262144, 1<<21, 1<<24)
	for i := range len(d.Runs) {
		for qps := 2; qps <= 8; qps++ {
			r := d.Runs[i]
			r.Case.QPs = qps
			d.Runs = append(d.Runs, r)
		}
	}
	colours := map[string]int{}
	panels := 0
	for _, p := range plots(d, medianRuns(d)) {
		for _, part := range p.panels() {
			panels++
			seen := map[lineStyle]string{}
			for _, s := range part.series {
				assert.Equal(t, seen[s.style], "", "%s: %s", part.title, s.name)
				seen[s.style] = s.name
				setting := regexp.MustCompile(` (p50|p99|client|server|[0-9]+[KM]?i?B)$`).ReplaceAllString(s.name, "")
				if was, known := colours[setting]; known {
					assert.Equal(t, s.style.colour, was, "%s: %s", part.title, s.name)
				}
				colours[setting] = s.style.colour
			}
		}
	}
	assert.Assert(t, panels > 20 && len(colours) == 16, "%d panels, %v", panels, colours)
	assert.Assert(t, colours["udat"] != colours["cverbs"])
}

// The page begins with the best figures and the command line, quoted for a shell. The values of
// each plot are in a table.
func TestHeadOfPage(t *testing.T) {
	var b bytes.Buffer
	d := swept(64, 4096)
	d.Runs[0].Client.Initiated.Latency.Percentiles[0].Value = 777
	d.Runs[0].Client.Initiated.Elapsed = 1e6 // too short to count
	d.Runs[1].Client.Initiated.Latency.Percentiles[0].Value = 888
	assert.NilError(t, HTML(&b, d))
	text := b.String()
	head, rest, _ := strings.Cut(text, "<svg")
	for _, want := range []string{
		"<span>least median latency</span><strong>888 ns</strong><span>send of 64B, cverbs</span>",
		"<p class=\"dim\">The best figures are those of runs of 10ms or more; the plots show all runs.</p>",
		"<strong>32.8 Gb/s</strong><span>send of 4KiB, udat</span>", "<strong>1.00 M/s</strong>",
		"datperf</span> <span>local</span> <span>-s</span> <span>64,4K</span> <span>--title</span> " +
			"<span>&#39;it&#39;\\&#39;&#39;s $HOME&#39;</span></code>"} {
		assert.Assert(t, strings.Contains(head, want), "%s is not in\n%s", want, head)
	}
	assert.Equal(t, strings.Count(rest, `<table class="values">`), strings.Count(text, `role="img"`))
	for _, row := range []string{"<tr><td>cverbs</td><td>512 Mb/s</td><td>32.8 Gb/s</td></tr>",
		"<tr><th>percentile</th><th>udat 64B</th><th>cverbs 64B</th><th>udat 4KiB</th><th>cverbs 4KiB</th></tr>",
		"<tr><td>99%</td><td>1.13 us</td><td>1.13 us</td><td>9.19 us</td><td>9.19 us</td></tr>"} {
		assert.Assert(t, strings.Contains(rest, row), "%s is not in\n%s", row, rest)
	}
	assert.Assert(t, !strings.Contains(rest, "A dot without a line"))

	d.Runs[3].Client.Initiated.Latency.Count = 50 // p99 of cverbs has one value left
	b.Reset()
	assert.NilError(t, HTML(&b, d))
	assert.Assert(t, strings.Contains(b.String(),
		"A dot without a line is a series with one value: cverbs p99 (at 64B)."))
	assert.Assert(t, strings.Contains(b.String(), "<tr><td>cverbs p99</td><td>1.13 us</td><td>-</td></tr>"))
}

// The values below a curve are the percentiles of the run, even if the curve has no point at a
// percentile. A percentile with too few samples has no value.
func TestValuesOfCurves(t *testing.T) {
	d := swept(64)
	l := d.Runs[0].Client.Initiated.Latency
	l.Count = 5000
	l.Histogram = []result.Bucket{{UpTo: 1000, Count: 500}, {UpTo: 1100, Count: 4445}, {UpTo: 7000, Count: 30},
		{UpTo: 8000, Count: 25}}
	l.Percentiles = []result.Percentile{{P: 50, Value: 1050}, {P: 90, Value: 1060}, {P: 99, Value: 1110},
		{P: 99.9, Value: 7500}, {P: 99.99, Value: 8000}}
	for _, p := range plots(d, medianRuns(d)) {
		if p.title != "send: latency by percentile" {
			continue
		}
		one := p.series[:1]
		assert.DeepEqual(t, p.table(one).Rows, [][]string{{"50%", "1.05 us"}, {"90%", "1.06 us"}, {"99%", "1.11 us"},
			{"99.9%", "7.50 us"}, {"99.99%", "-"}})
		assert.Assert(t, slices.IsSortedFunc(one[0].points, func(a, b point) int { return cmp.Compare(a.x, b.x) }))
		return
	}
	t.Fatal("there is no such plot")
}

func TestQuoted(t *testing.T) {
	assert.DeepEqual(t, quoted([]string{"datperf", "client", "fd00::1", "-s", "2-8M", "", "a b", "x;y", "é"}),
		strings.Split("datperf|client|fd00::1|-s|2-8M|''|'a b'|'x;y'|'é'", "|"))
}

// at and ranked return the right values.
func TestValueRows(t *testing.T) {
	points := []point{{1, 30, ""}, {2, 10, ""}, {3, 20, ""}}
	value := func(r valueRow) string {
		y, known := r.of(points)
		return fmt.Sprint(y, known)
	}
	assert.Equal(t, value(at(2, "")), "10 true")
	assert.Equal(t, value(at(2.5, "")), "0 false")
	assert.Equal(t, value(ranked(0, "")), "10 true")
	assert.Equal(t, value(ranked(0.5, "")), "20 true")
	assert.Equal(t, value(ranked(1, "")), "30 true")
	points = slices.Clip(points[:0])
	assert.Equal(t, value(ranked(1, "")), "0 false")
}

// If lines of a panel would look alike, all but the first get other dashes and keep their color.
func TestApart(t *testing.T) {
	lines := make([]series, most)
	for i := range lines {
		lines[i].style = lineStyle{3, 4}
	}
	seen := map[lineStyle]bool{}
	for i, s := range apart(lines) {
		assert.Assert(t, s.style.colour == 3 && s.style.dash < most && (i > 0 || s.style.dash == 4))
		seen[s.style] = true
	}
	assert.Equal(t, len(seen), most)
	assert.Equal(t, lines[5].style, lineStyle{3, 4}, "the caller's lines are changed")
}
