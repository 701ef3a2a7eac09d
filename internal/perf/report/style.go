package report

import (
	"fmt"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// lineStyle is how a line is drawn. The colour is that of the settings (layer, queue pairs, ...),
// in every plot of a page; the dashes tell the lines of one colour apart.
type lineStyle struct{ colour, dash int }

// most is the largest number of series in a panel, as there are colours and dashes.
const most = 6

// class names the style sheet's classes.
func (s lineStyle) class() string { return fmt.Sprintf("s%d d%d", s.colour, s.dash) }

// palette gives the lines of a document their styles.
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

// style returns the style of a case's line; variant counts the lines that a case has in a plot.
// With more than 6 settings the colours begin again.
func (p *palette) style(c *result.Case, variant int) lineStyle {
	n := max(slices.Index(p.labels, label(c)), 0)
	return lineStyle{n % most, variant % most}
}

// ofSize is style where each size has its line.
func (p *palette) ofSize(c *result.Case) lineStyle {
	return p.style(c, max(slices.Index(p.sizes, c.Size), 0))
}

// apart changes the dashes of lines that have the same style in a panel of at most 6 lines.
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
