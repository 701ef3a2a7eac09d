package report

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// Line is one line of a picture. It has one value for each message size.
type Line struct {
	Name   string
	Sizes  []int     // bytes
	Values []float64 // ns, or operations per second
}

// style is the style sheet of a picture that is not part of a page. Its colors are the same as the
// page's.
const style = `<style>
svg { --ink: #1b1f24; --dim: #57606a; --line: #d8dee4; --back: #fff; font: 13px system-ui, sans-serif;
  --c0: #0969da; --c1: #cf5b00; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #0a7b83; background: var(--back); }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --dim: #9da7b1; --line: #30363d; --back: #0d1117;
  --c0: #58a6ff; --c1: #ff9e4a; --c2: #56d364; --c3: #bc8cff; --c4: #ff7bc0; --c5: #39d3dd; } }
.grid { stroke: var(--line); } text { fill: var(--dim); } text.axis { fill: var(--ink); }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; } .hit, .value text { display: none; }
`

// legendLine is the height of one line of the legend, in pixels.
const legendLine = 20

// Picture returns an SVG file that plots the lines over message size, with a legend. If rate is
// true, the values are operations per second, otherwise times in ns. The number of lines must be
// from 1 to 6, or Picture returns an error.
func Picture(title string, rate bool, lines []Line) (string, error) {
	p := &plot{title: title, xTitle: "bytes of a message", yTitle: title, yUnits: timeUnits, yLog: true}
	if rate {
		p.yUnits = rateUnits
	}
	if len(lines) == 0 || len(lines) > most {
		return "", fmt.Errorf("a picture has 1 to %d lines, not %d", most, len(lines))
	}
	distinct := map[int]bool{}
	for _, l := range lines {
		s := series{name: l.Name}
		for i, size := range l.Sizes {
			v := l.Values[i]
			if !rate {
				v /= 1e3
			}
			distinct[size] = true
			s.points = append(s.points, point{math.Log2(float64(size)), v, result.Bytes(size)})
		}
		p.add(s)
	}
	p.xTicks = sizeTicks(distinct)
	x, y := p.scales()
	svg := p.svg(p.series, x, y)
	var b strings.Builder
	height := plotHeight + legendLine*((len(p.series)+2)/3) + 8
	open := fmt.Sprintf(`viewBox="0 0 %d %d"`, plotWidth, plotHeight)
	b.WriteString(strings.Replace(strings.TrimSuffix(svg, "</svg>"), open,
		fmt.Sprintf(`xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"`, plotWidth, height), 1))
	b.WriteString(style)
	for i := range p.series {
		fmt.Fprintf(&b, "polyline.s%d { stroke: var(--c%d); } circle.s%d, rect.s%d { fill: var(--c%d); }\n", i, i, i, i, i)
	}
	b.WriteString("</style>")
	for i, s := range p.series {
		left, top := 24+i%3*(plotWidth-24)/3, plotHeight+4+i/3*legendLine
		fmt.Fprintf(&b, `<rect class="s%d" x="%d" y="%d" width="10" height="10" rx="2"/><text x="%d" y="%d">%s</text>`, i,
			left, top, left+16, top+10, html.EscapeString(s.name))
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}
