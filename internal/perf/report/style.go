package report

import (
	"fmt"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// lineStyle is the style of a line. Lines with the same settings (layer, queue pairs, ...) have the
// same color in all plots of a page. The dashes distinguish the lines of one color.
type lineStyle struct{ colour, dash int }

// most is the number of colors, the number of dashes, and the largest number of series in a panel.
const most = 6

// class returns the style's classes in the style sheet.
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

// style returns the style of a case's line; variant is the number of the line among those of the
// case in a plot, from 0. With more than 6 different settings, colors are reused.
func (p *palette) style(c *result.Case, variant int) lineStyle {
	n := max(slices.Index(p.labels, label(c)), 0)
	return lineStyle{n % most, variant % most}
}

// ofSize returns the style of a case's line in a plot with a line for each size.
func (p *palette) ofSize(c *result.Case) lineStyle {
	return p.style(c, max(slices.Index(p.sizes, c.Size), 0))
}

// apart returns the lines with different styles. Of lines with the same style it changes the
// dashes. There must be at most 6 lines.
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
