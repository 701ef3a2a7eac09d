package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// meshOf returns a mesh of n hosts. figure returns the figure of each pair, in microseconds or
// Gb/s. A negative figure means that the pair failed.
func meshOf(n int, mode, pattern string, figure func(from, to int) float64) *result.Mesh {
	c := result.Default()
	c.Mode = mode
	c.Complete()
	m := &result.Mesh{Pattern: pattern, Steps: n - 1, Matrices: []result.Matrix{{Case: c}}}
	for i := range n {
		m.Hosts = append(m.Hosts, result.MeshHost{Address: fmt.Sprintf("host%d:1", i+1)})
	}
	for from := range n {
		for to := range n {
			if from == to {
				continue
			}
			p := result.Pair{From: m.Hosts[from].Address, To: m.Hosts[to].Address}
			if v := figure(from+1, to+1); v < 0 {
				p.Error = "broken"
			} else {
				s := &result.Stream{GbitS: v}
				if mode == result.Latency {
					s.Latency = &result.Distribution{Count: 100, Percentiles: []result.Percentile{{P: 50, Value: v * 1e3}}}
				}
				p.Run = &result.Run{Case: c, Client: &result.End{Initiated: s}, Server: &result.End{}}
			}
			m.Matrices[0].Pairs = append(m.Matrices[0].Pairs, p)
		}
	}
	return m
}

// An outlier does not change the shades of other figures, however far it is from them, and it is
// named. This is also true if it is too good.
func TestOutliers(t *testing.T) {
	for _, mode := range result.Modes {
		shades := func(odd float64) (all []string, lines string) {
			m := meshOf(8, mode, "", func(from, to int) float64 {
				if from == 3 && to == 5 {
					return odd
				}
				return 10 + float64(from+to)/16
			})
			p := matrices(m)[0]
			for i, row := range p.Cells {
				for j, c := range row {
					if i != 2 || j != 4 {
						all = append(all, c.Class)
					}
				}
			}
			assert.Assert(t, strings.HasPrefix(p.Cells[2][4].Class, "heat"))
			return all, strings.Join(p.Lines, "\n")
		}
		usual, lines := shades(10.5)
		assert.Assert(t, !strings.Contains(lines, "much"), lines)
		assert.Assert(t, len(slices.Compact(slices.Sorted(slices.Values(usual)))) >= 3, "%v", usual)
		for _, odd := range []float64{0.001, 1000} {
			all, lines := shades(odd)
			assert.DeepEqual(t, all, usual)
			what := "worse"
			if (mode == result.Latency) == (odd < 1) {
				what = "better"
			}
			assert.Assert(t, strings.Contains(lines, "much "+what+" than the median: 3 -> 5 ("), lines)
		}
	}
}

// A host whose pairs are all bad is named once, with its address. Other pairs keep their shades.
func TestBadHost(t *testing.T) {
	m := meshOf(12, result.Latency, "", func(from, to int) float64 {
		if from == 7 || to == 7 {
			return 50
		}
		return 10
	})
	p := matrices(m)[0]
	assert.Equal(t, p.Lines[1], "much worse than the median: host 7 (host7:1) in 22 of its 22 pairs")
	for i, row := range p.Cells {
		for j, c := range row {
			want := "heat0"
			switch {
			case i == j:
				want = ""
			case i == 6 || j == 6:
				want = "heat4 outlier"
			}
			assert.Equal(t, c.Class, want)
		}
	}
	var page bytes.Buffer
	assert.NilError(t, HTML(&page, &result.Document{Mesh: m}))
	for _, text := range []string{`<li><span class="heat0"></span>up to `, `<span class="heat4"></span>more than `,
		`<span class="outlier"></span>outlier: more than `} {
		assert.Assert(t, strings.Contains(page.String(), text), text)
	}
}

// A matrix that does not fit into a line is left out: the lines below it stay, and the page has it.
func TestManyHosts(t *testing.T) {
	m := meshOf(64, result.Bandwidth, "", func(from, to int) float64 {
		if from == 9 || to == 9 {
			return -1
		}
		return float64(from)
	})
	var out bytes.Buffer
	Mesh(&out, m)
	for line := range strings.Lines(out.String()) {
		assert.Assert(t, len(line) <= maxColumns+1, "%q", line)
	}
	for _, want := range []string{"64 hosts do not fit into a line: --html and --csv have all pairs\n",
		"best 64.0 Gb/s (64 -> 1)",
		"1 -> 9, 2 -> 9, 3 -> 9, 4 -> 9, 5 -> 9, 6 -> 9 and 120 more: broken\n"} {
		assert.Assert(t, strings.Contains(out.String(), want), "%s", out.String())
	}
	out.Reset()
	assert.NilError(t, HTML(&out, &result.Document{Mesh: m}))
	const row = "<tr><th>2 host2:1</th><td class=\"heat4\" title=\"host2:1 -&gt; host1:1: 2.00 Gb/s\">2.00</td>"
	assert.Assert(t, strings.Contains(out.String(), row), "%s", out.String())
}

// Pairs that measured at the same time are summed: into each host.
func TestTotals(t *testing.T) {
	m := meshOf(4, result.Bandwidth, result.Incast, func(_, to int) float64 { return float64(to) })
	p := matrices(m)[0]
	assert.Equal(t, p.Lines[1], "into one host from all others: best 12.0 Gb/s (host 4), median 7.50 Gb/s, "+
		"worst 3.00 Gb/s (host 1)")
	assert.Assert(t, strings.HasSuffix(p.Headline, ", incast"))
}

// The median of an even number of figures is the mean of the two in the middle, wherever it is
// printed.
func TestMeshMedians(t *testing.T) {
	for _, mode := range result.Modes {
		m := meshOf(3, mode, "", func(from, to int) float64 { return float64(10*from + to) })
		p := matrices(m)[0] // 12 13 21 23 31 32
		assert.Assert(t, strings.Contains(p.Lines[0], "median 22.0"), p.Lines[0])
		assert.Equal(t, shadesOf(&m.Matrices[0].Case, []float64{12, 13, 21, 23, 31, 32}).median, 22.0)
	}
}

// A step of many pairs is printed as one line, and one more for each pair that failed, up to
// mostNamed.
func TestMeshStep(t *testing.T) {
	m := meshOf(8, result.Latency, "", func(from, to int) float64 {
		if from < 3 {
			return -1
		}
		return float64(to)
	})
	var out bytes.Buffer
	MeshStep(&out, 2, 9, &m.Matrices[0].Case, m.Matrices[0].Pairs)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, lines[0], "[2/9] udat send lat, 2B: 42 of 56 pairs")
	assert.Equal(t, lines[1], "    host1:1 -> host2:1: broken")
	assert.Equal(t, len(lines), 1+mostNamed+1)
	assert.Equal(t, lines[len(lines)-1], "    and 8 more")
}
