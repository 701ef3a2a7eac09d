package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// plot is a chart of lines.
type plot struct {
	title, xTitle, yTitle string
	yLog                  bool
	xTicks                []tick // none: made from the data
	series                []series
	left                  int // series that there was no room for
}

type series struct {
	name   string
	points []point
}

type point struct {
	x, y float64
	text string // what it is, shown by the browser
}

type tick struct {
	at   float64
	text string
}

// most is the largest number of series in a plot; each has its own colour.
const most = 8

// add adds a series, unless it is empty or the plot is full.
func (p *plot) add(s series) {
	switch {
	case len(s.points) == 0:
	case len(p.series) == most:
		p.left++
	default:
		p.series = append(p.series, s)
	}
}

const (
	plotWidth, plotHeight         = 720, 340
	edgeLeft, edgeRight           = 64, 16
	edgeTop, edgeBottom           = 12, 46
	insideWidth, insideHeight     = plotWidth - edgeLeft - edgeRight, plotHeight - edgeTop - edgeBottom
	ticksWanted               int = 6
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

// svg draws the plot.
func (p *plot) svg() template.HTML {
	x, y := p.scales()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight,
		html.EscapeString(p.title))
	for _, t := range y.ticks() {
		at := y.at(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, edgeLeft, plotWidth-edgeRight, at, at)
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`, edgeLeft-8, at+4,
			html.EscapeString(t.text))
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
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`, at, plotHeight-edgeBottom+18,
			html.EscapeString(t.text))
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d" text-anchor="middle">%s</text>`, edgeLeft+insideWidth/2,
		plotHeight-6, html.EscapeString(p.xTitle))
	fmt.Fprintf(&b, `<text class="axis" transform="translate(14,%d) rotate(-90)" text-anchor="middle">%s</text>`,
		edgeTop+insideHeight/2, html.EscapeString(p.yTitle))
	for i, s := range p.series {
		p.line(&b, i, s, x, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

func (p *plot) line(b *strings.Builder, i int, s series, x, y scale) {
	fmt.Fprintf(b, `<polyline class="s%d" points="`, i)
	for _, pt := range s.points {
		fmt.Fprintf(b, "%.1f,%.1f ", x.at(pt.x), y.at(pt.y))
	}
	b.WriteString(`"/>`)
	if len(s.points) > 60 { // a curve: its points would hide it
		return
	}
	for _, pt := range s.points {
		fmt.Fprintf(b, `<circle class="s%d" cx="%.1f" cy="%.1f" r="3.2"><title>%s</title></circle>`, i, x.at(pt.x),
			y.at(pt.y), html.EscapeString(s.name+": "+pt.text))
	}
}

func (p *plot) scales() (x, y scale) {
	x = scale{low: math.Inf(1), high: math.Inf(-1), from: edgeLeft, to: plotWidth - edgeRight}
	y = scale{low: math.Inf(1), high: math.Inf(-1), from: plotHeight - edgeBottom, to: edgeTop, log: p.yLog}
	for _, s := range p.series {
		for _, pt := range s.points {
			x.low, x.high = min(x.low, pt.x), max(x.high, pt.x)
			y.low, y.high = min(y.low, pt.y), max(y.high, pt.y)
		}
	}
	if x.high == x.low {
		x.low, x.high = x.low-0.5, x.high+0.5
	}
	if p.yLog { // a logarithm has no room for zero
		y.high = max(y.high, 1e-3)
		y.low = max(y.low, y.high/1e7)
		y.low, y.high = y.low/1.15, y.high*1.15
	} else {
		y.low, y.high = 0, max(y.high*1.08, 1e-9)
	}
	return x, y
}

// tickForm avoids exponents for short numbers.
func tickForm(v float64) byte {
	if v >= 1e6 || v > 0 && v < 1e-4 {
		return 'g'
	}
	return 'f'
}

// ticks returns round values on a scale: 1, 2 and 5 times powers of ten.
func (s *scale) ticks() []tick {
	var all []tick
	add := func(v float64) {
		if v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
			shown, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64) // 0.6, not 0.6000000000000001
			all = append(all, tick{v, strconv.FormatFloat(shown, tickForm(v), -1, 64)})
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
