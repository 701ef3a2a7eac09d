package report

import (
	"fmt"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// lineStyle is the style of a line. Lines with the same settings (layer, queue pairs, ...) have the
// same color in all plots of a page, and different dashes within a plot.
type lineStyle struct{ colour, dash int }

// most is the number of colors and the number of dash patterns. So a panel has at most this many
// series.
const most = 6

// class returns the names of the style's classes in the style sheet.
func (s lineStyle) class() string { return fmt.Sprintf("s%d d%d", s.colour, s.dash) }

// palette assigns styles to the lines of a document.
type palette struct {
	labels []string // in the order of the runs
	sizes  []int    // ascending
}

func paletteOf(d *result.Document) *palette {
	p := &palette{}
	for i := range d.Runs {
		c := &d.Runs[i].Case
		if name := label(c); !slices.Contains(p.labels, name) {
			p.labels = append(p.labels, name)
		}
		if !slices.Contains(p.sizes, c.Size) {
			p.sizes = append(p.sizes, c.Size)
		}
	}
	slices.Sort(p.sizes)
	return p
}

// style returns the style of a line. If a plot has several lines for the case c, the parameter
// variant is the line's number among them, from 0. With more than 6 different settings, colors are
// used twice.
func (p *palette) style(c *result.Case, variant int) lineStyle {
	n := max(slices.Index(p.labels, label(c)), 0)
	return lineStyle{n % most, variant % most}
}

// ofSize returns the style of a case's line in a plot that has a line for each size.
func (p *palette) ofSize(c *result.Case) lineStyle {
	return p.style(c, max(slices.Index(p.sizes, c.Size), 0))
}

// apart returns copies of the lines with styles that all differ. If two lines have the same style,
// it changes the dashes of the second. There must be at most 6 lines.
func apart(lines []series) []series {
	lines = slices.Clone(lines)
	seen := map[lineStyle]bool{}
	for i := range lines {
		as := &lines[i].style
		for seen[*as] {
			as.dash = (as.dash + 1) % most
		}
		seen[*as] = true
	}
	return lines
}
