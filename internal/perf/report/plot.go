package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a line chart.
type plot struct {
	title, xTitle, yTitle string
	yUnits                []unit // units of the y axis, ascending
	yLog                  bool   // the y axis is logarithmic; if false, only if the values span two decades or more
	xTicks                []tick // nil: computed from the data
	rows                  []valueRow
	series                []series
}

// unit is a unit of an axis. It is used for values that are not less than the field from.
type unit struct {
	from float64
	name string
}

// Units of the axes. The timeUnits are for values in us, the bitUnits are for Gb/s, and the
// rateUnits are for operations per second.
var (
	timeUnits = []unit{{1e-3, "ns"}, {1, "us"}, {1e3, "ms"}, {1e6, "s"}}
	bitUnits  = []unit{{1e-6, "kb/s"}, {1e-3, "Mb/s"}, {1, "Gb/s"}, {1e3, "Tb/s"}}
	rateUnits = []unit{{1, "/s"}, {1e3, "k/s"}, {1e6, "M/s"}}
)

// inUnit formats a value in the largest unit in which the value is at least 1.
func inUnit(v float64, units []unit, format func(float64) string) string {
	if v == 0 || len(units) == 0 {
		return format(v)
	}
	best := units[0]
	for _, u := range units {
		if v >= u.from*(1-1e-9) {
			best = u
		}
	}
	return format(v/best.from) + " " + best.name
}

func threeDigits(v float64) string {
	if v <= 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(v)))), 64)
}

type series struct {
	name   string
	style  lineStyle
	points []point
}

type point struct {
	x, y float64
	at   string // text for x
}

type tick struct {
	at   float64
	text string
}

// add adds a series, unless it is empty.
func (p *plot) add(s series) {
	if len(s.points) > 0 {
		p.series = append(p.series, s)
	}
}

const (
	plotWidth, plotHeight         = 480, 290
	edgeLeft, edgeRight           = 88, 24
	edgeTop, edgeBottom           = 32, 48
	insideWidth, insideHeight     = plotWidth - edgeLeft - edgeRight, plotHeight - edgeTop - edgeBottom
	ticksWanted               int = 6
	hits                          = 40 // largest number of points of a line that show their value
)

// scale maps values to coordinates.
type scale struct {
	low, high float64
	log       bool
	from, to  float64
}

func (s *scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log10(max(v, low)), math.Log10(low), math.Log10(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// panel is a part of a plot. It is drawn with the scales of the whole plot.
type panel struct {
	title, svg string
	series     []series
}

// panels divides the plot into panels of at most 6 series each.
func (p *plot) panels() (all []panel) {
	x, y := p.scales()
	for part := range slices.Chunk(p.series, most) {
		part = apart(part)
		all = append(all, panel{p.title, p.svg(part, x, y), part})
	}
	for i := range all {
		if len(all) > 1 {
			all[i].title = fmt.Sprintf("%s (%d of %d)", p.title, i+1, len(all))
		}
	}
	return all
}

// svg draws a panel.
func (p *plot) svg(lines []series, x, y scale) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight,
		html.EscapeString(p.title))
	for _, t := range y.ticks() {
		at := y.at(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, edgeLeft, plotWidth-edgeRight, at, at)
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, edgeLeft-8, at+4,
			html.EscapeString(inUnit(t.at, p.yUnits, func(v float64) string { return shortNumber(v) })))
	}
	ticks := p.xTicks
	if ticks == nil {
		ticks = x.ticks()
	}
	for _, t := range ticks {
		if t.at < x.low || t.at > x.high {
			continue
		}
		at := x.at(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at, at, edgeTop, plotHeight-edgeBottom)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`, at, plotHeight-edgeBottom+22,
			html.EscapeString(t.text))
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d" text-anchor="middle">%s</text>`, edgeLeft+insideWidth/2,
		plotHeight-6, html.EscapeString(p.xTitle))
	fmt.Fprintf(&b, `<text class="axis" x="4" y="14">%s</text>`, html.EscapeString(p.yTitle))
	for _, s := range lines {
		p.line(&b, s, x, y)
	}
	for _, s := range lines { // drawn last, above all lines
		p.values(&b, s, x, y)
	}
	b.WriteString("</svg>")
	return b.String()
}

func (p *plot) line(b *strings.Builder, s series, x, y scale) {
	fmt.Fprintf(b, `<polyline class="%s" points="`, s.style.class())
	for _, pt := range s.points {
		fmt.Fprintf(b, "%.1f,%.1f ", x.at(pt.x), y.at(pt.y))
	}
	b.WriteString(`"/>`)
}

// values draws the points of a line, each with the text of its value. The style sheet shows the
// text while the pointer is on the point. If the number of points is larger than the constant hits,
// the method leaves out some of them.
func (p *plot) values(b *strings.Builder, s series, x, y scale) {
	step := (len(s.points) + hits - 1) / hits
	for n := 0; n < len(s.points); n += step {
		pt := s.points[n]
		px, py, anchor := x.at(pt.x), y.at(pt.y), "start"
		if px > plotWidth/2 {
			anchor = "end"
		}
		dot := ""
		if step == 1 && len(s.points) <= hits/2 {
			radius := 3
			if len(s.points) == 1 {
				radius = 5
			}
			dot = fmt.Sprintf(`<circle class="%s" cx="%.1f" cy="%.1f" r="%d"/>`, s.style.class(), px, py, radius)
		}
		fmt.Fprintf(b, `<g class="value">%s<circle class="hit" cx="%.1f" cy="%.1f" r="9"/>`+
			`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text></g>`, dot, px, py, px, max(py-12, 14), anchor,
			html.EscapeString(fmt.Sprintf("%s, %s: %s", s.name, pt.at, inUnit(pt.y, p.yUnits, threeDigits))))
	}
}

func (p *plot) scales() (x, y scale) {
	x = scale{low: math.Inf(1), high: math.Inf(-1), from: edgeLeft, to: plotWidth - edgeRight}
	y = scale{low: math.Inf(1), high: math.Inf(-1), from: plotHeight - edgeBottom, to: edgeTop}
	least := math.Inf(1) // least value above zero
	for _, s := range p.series {
		for _, pt := range s.points {
			x.low, x.high = min(x.low, pt.x), max(x.high, pt.x)
			y.low, y.high = min(y.low, pt.y), max(y.high, pt.y)
			if pt.y > 0 {
				least = min(least, pt.y)
			}
		}
	}
	if x.high == x.low {
		x.low, x.high = x.low-0.5, x.high+0.5
	}
	y.log = p.yLog || p.yUnits != nil && y.low > 0 && y.high >= 100*least
	if y.log { // zero has no logarithm
		y.high = max(y.high, 1e-3)
		y.low = max(y.low, y.high/1e7)
		y.low, y.high = y.low/1.15, y.high*1.15
	} else {
		y.low, y.high = 0, max(y.high*1.08, 1e-9)
	}
	return x, y
}

// shortNumber formats a number with at most 6 significant digits: 0.6000000000000001 as 0.6.
func shortNumber(v float64) string {
	shown, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return strconv.FormatFloat(shown, tickForm(v), -1, 64)
}

// tickForm returns the format for strconv.FormatFloat. The format has an exponent only if there
// would otherwise be many digits.
func tickForm(v float64) byte {
	if v >= 1e6 || v > 0 && v < 1e-4 {
		return 'g'
	}
	return 'f'
}

// ticks returns ticks at round values on a scale: 1, 2 and 5 times powers of ten.
func (s *scale) ticks() []tick {
	var all []tick
	add := func(v float64) {
		if v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
			all = append(all, tick{v, shortNumber(v)})
		}
	}
	if s.log {
		steps := []float64{1, 2, 5}
		if math.Log10(s.high/s.low) > 3 {
			steps = steps[:1]
		}
		for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
			for _, m := range steps {
				add(m * math.Pow(10, e))
			}
		}
		return all
	}
	raw := (s.high - s.low) / float64(ticksWanted)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := unit
	for _, m := range []float64{2, 5, 10} {
		if step < raw {
			step = m * unit
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high; v += step {
		add(math.Round(v/step) * step)
	}
	return all
}
