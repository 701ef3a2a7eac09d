package report

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/godat/godat/internal/perf/result"
)

// lineWidth is the largest width of a matrix on a terminal, in characters. Instead of a wider
// matrix, Mesh prints a table with one row per host.
const lineWidth = 100

// Mesh prints the matrices of a mesh.
func Mesh(w io.Writer, m *result.Mesh) {
	for _, p := range matrices(m) {
		fmt.Fprintf(w, "\n%s\n", p.Title)
		titles, rows := p.matrix("from \\ to", "-")
		if width(titles, rows) > lineWidth {
			titles, rows = hostTitles, p.hostTable()
		}
		aligned(w, titles, rows)
		for _, text := range p.Lines {
			fmt.Fprintln(w, text)
		}
	}
}

// matrix returns the cells of a matrix, with the hosts in the first column.
func (p *pageMatrix) matrix(corner, self string) (titles []string, rows [][]string) {
	titles = []string{corner}
	for i, row := range p.Rows {
		titles = append(titles, fmt.Sprint(p.Hosts[i].Number))
		cells := []string{row.label()}
		for j, c := range row.Cells {
			if i == j {
				c.Text = self
			}
			cells = append(cells, c.Text)
		}
		rows = append(rows, cells)
	}
	return titles, rows
}

// widths returns the width of the first column, and the largest width of the other columns.
func widths(titles []string, rows [][]string) (first, other int) {
	for _, row := range append(rows, titles) {
		for i, text := range row {
			if n := utf8.RuneCountInString(text); i == 0 {
				first = max(first, n)
			} else {
				other = max(other, n)
			}
		}
	}
	return first, other
}

func width(titles []string, rows [][]string) int {
	first, other := widths(titles, rows)
	return first + (len(titles)-1)*(other+2)
}

// aligned prints a table. The first column is aligned to the left, the others to the right.
func aligned(w io.Writer, titles []string, rows [][]string) {
	first, other := widths(titles, rows)
	for _, row := range append([][]string{titles}, rows...) {
		fmt.Fprintf(w, "%-*s", first, row[0])
		for _, text := range row[1:] {
			fmt.Fprintf(w, "  %*s", other, text)
		}
		fmt.Fprintln(w)
	}
}

// MeshLost prints that a host is left out of a mesh from now on, and why.
func MeshLost(w io.Writer, h *result.MeshHost) {
	fmt.Fprintf(w, "left out: %s: %s\n", h.Address, h.Error)
}

// MeshStep prints the result of a step of a mesh. For one pair it prints the pair's figure or
// error. For several pairs it prints a summary and the errors.
func MeshStep(w io.Writer, n, of int, c *result.Case, pairs []result.Pair, left time.Duration) {
	if len(pairs) == 0 {
		return
	}
	eta := ""
	if left >= time.Second {
		eta = fmt.Sprintf("; %v left", left.Round(time.Second))
	}
	head := fmt.Sprintf("[%d/%d]", n, of)
	if len(pairs) == 1 {
		fmt.Fprintf(w, "%s %s -> %s: %s%s\n", head, pairs[0].From, pairs[0].To, pairText(c, &pairs[0]), eta)
		return
	}
	one := result.Matrix{Case: *c, Pairs: pairs}
	sorted := one.Sorted()
	text := fmt.Sprintf("%d of %d pairs", len(sorted), len(pairs))
	if n := len(sorted); n > 0 {
		var figures []float64
		for _, p := range sorted {
			v, _ := p.Figure()
			figures = append(figures, v)
		}
		text += fmt.Sprintf(": median %s, worst %s %s, %s -> %s", figureText(c, result.Median(figures)),
			figureText(c, figures[n-1]), figureUnit(c), sorted[n-1].From, sorted[n-1].To)
	}
	fmt.Fprintf(w, "%s %s, %s%s\n", head, c.Name(), text, eta)
	more := 0
	for i := range pairs {
		switch p := &pairs[i]; {
		case p.Run != nil:
		case more >= mostNamed:
			more++
		default:
			more++
			fmt.Fprintf(w, "    %s -> %s: %s\n", p.From, p.To, p.Error)
		}
	}
	if more > mostNamed {
		fmt.Fprintf(w, "    and %d more\n", more-mostNamed)
	}
}

func pairText(c *result.Case, p *result.Pair) string {
	if v, ok := p.Figure(); ok {
		return fmt.Sprintf("%s: %s %s", c.Name(), figureText(c, v), figureUnit(c))
	}
	return p.Error
}

func (p *pageMatrix) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n\n", p.Title)
	titles, rows := p.matrix("from, to", "")
	if len(rows) > wideMesh {
		titles, rows = hostTitles, p.hostTable()
	}
	for i := range rows {
		rows[i][0] = Escape(rows[i][0])
	}
	MarkdownTable(b, titles, 1, len(titles), rows)
	for _, text := range p.Lines {
		fmt.Fprintf(b, "\n%s\n", Escape(text))
	}
}
