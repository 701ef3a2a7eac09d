package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/godat/godat/internal/perf/result"
)

// matrix is a matrix of a mesh: a table for all formats, and the classes of its cells for the page.
type matrix struct {
	pageTable
	Cells [][]meshCell
	Key   []keyEntry
	Wide  bool     // more than wideMesh hosts: the page uses small letters
	Lines []string // best and worst pair, totals, outliers, failures
}

// meshCell is a cell of the page. Title appears while the pointer is on the cell.
type meshCell struct{ Text, Class, Title string }

// wideMesh is the largest number of hosts for which a page shows a matrix in normal letters.
const wideMesh = 16

// failedText is the text of the cell of a failed pair. It is also the class of that cell.
const failedText = "failed"

// mostNamed is the largest number of pairs that a line names.
const mostNamed = 6

// measured is a pair and the numbers of its hosts, from 1. If the field ok is true, it also
// contains the pair's figure.
type measured struct {
	pair     *result.Pair
	from, to int
	figure   float64
	ok       bool
}

func (p *measured) names() string { return fmt.Sprintf("%d -> %d", p.from, p.to) }

// view contains the data for one matrix.
type view struct {
	mesh   *result.Mesh
	c      *result.Case
	pairs  []measured // all pairs
	sorted []measured // pairs with a figure, the best one first
	shades *shades    // nil if there are no figures
}

func (v *view) text(figure float64) string { return figureText(v.c, figure) + " " + figureUnit(v.c) }

// matrices returns the matrices of a mesh. It returns nil if m is nil.
func matrices(m *result.Mesh) (all []matrix) {
	if m == nil {
		return nil
	}
	numbers := map[string]int{}
	for i, h := range m.Hosts {
		numbers[h.Address] = i + 1
	}
	for i := range m.Matrices {
		mx := &m.Matrices[i]
		v := &view{mesh: m, c: &mx.Case}
		of := func(p *result.Pair) measured {
			figure, ok := p.Figure()
			return measured{p, numbers[p.From], numbers[p.To], figure, ok}
		}
		for j := range mx.Pairs {
			v.pairs = append(v.pairs, of(&mx.Pairs[j]))
		}
		var figures []float64
		for _, p := range mx.Sorted() {
			one := of(p)
			v.sorted, figures = append(v.sorted, one), append(figures, one.figure)
		}
		if len(figures) > 0 {
			v.shades = shadesOf(v.c, figures)
		}
		all = append(all, v.matrix())
	}
	return all
}

func (v *view) matrix() matrix {
	what := "bandwidth in Gb/s"
	if v.c.Mode == result.Latency {
		what = "median latency in us"
	}
	m := matrix{Wide: len(v.mesh.Hosts) > wideMesh}
	m.Headline, m.Titles = fmt.Sprintf("%s: %s", v.c.Name(), what), []string{"from \\ to"}
	if v.mesh.Pattern == result.Incast {
		m.Headline += ", " + v.mesh.Pattern
	}
	for i, h := range v.mesh.Hosts {
		m.Titles = append(m.Titles, fmt.Sprint(i+1))
		row := make([]string, len(v.mesh.Hosts)+1)
		row[0], row[i+1] = fmt.Sprintf("%d %s", i+1, h.Address), "-"
		m.Rows = append(m.Rows, row)
		m.Cells = append(m.Cells, make([]meshCell, len(v.mesh.Hosts)))
	}
	outliers, failed := false, false
	for i := range v.pairs {
		p := &v.pairs[i]
		cell := v.cell(p)
		m.Cells[p.from-1][p.to-1], m.Rows[p.from-1][p.to] = cell, cell.Text
		outliers = outliers || p.ok && v.shades.outlier(p.figure) != 0
		failed = failed || !p.ok
	}
	if n := len(v.sorted); n > 0 {
		best, worst := &v.sorted[0], &v.sorted[n-1]
		m.Key = v.shades.key(outliers, failed)
		m.Lines = append(m.Lines, fmt.Sprintf("best %s (%s), median %s, worst %s (%s)", v.text(best.figure), best.names(),
			v.text(v.shades.median), v.text(worst.figure), worst.names()))
		m.Lines = append(m.Lines, v.total()...)
		m.Lines = append(m.Lines, v.outliers()...)
	}
	m.Lines = append(m.Lines, v.failures()...)
	return m
}

func (v *view) cell(p *measured) meshCell {
	title := p.pair.From + " -> " + p.pair.To + ": "
	if !p.ok {
		return meshCell{failedText, failedText, title + p.pair.Error}
	}
	class := fmt.Sprintf("heat%d", v.shades.shade(p.figure))
	if v.shades.outlier(p.figure) != 0 {
		class += " outlier"
	}
	return meshCell{figureText(v.c, p.figure), class, title + v.text(p.figure)}
}

// total returns a line with the sums of the bandwidths into each host, if all pairs of a sum have
// measured at the same time.
func (v *view) total() (lines []string) {
	if v.c.Mode != result.Bandwidth || v.mesh.Pattern != result.Incast {
		return nil
	}
	sums := map[int]float64{} // by host
	for _, p := range v.sorted {
		sums[p.to] += p.figure
	}
	hosts := slices.SortedFunc(maps.Keys(sums), func(a, b int) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), a-b)
	})
	best, worst := hosts[0], hosts[len(hosts)-1]
	return []string{fmt.Sprintf("into one host from all others: best %s (host %d), median %s, worst %s (host %d)",
		v.text(sums[best]), best, v.text(result.Median(slices.Sorted(maps.Values(sums)))), v.text(sums[worst]), worst)}
}

// outliers returns lines that name the outliers. If at least 3 of a host's pairs and at least half
// of its pairs are outliers, a line names the host. Other outliers are named by pair.
func (v *view) outliers() (lines []string) {
	for _, kind := range []struct {
		sign int
		text string
	}{{1, "worse"}, {-1, "better"}} {
		var found []measured
		count, all := map[int]int{}, map[int]int{}
		for _, p := range v.sorted {
			all[p.from]++
			all[p.to]++
			if v.shades.outlier(p.figure) == kind.sign {
				found = append(found, p)
				count[p.from]++
				count[p.to]++
			}
		}
		if kind.sign > 0 {
			slices.Reverse(found) // the worst one first
		}
		var named []string
		bad := map[int]bool{}
		for i, h := range v.mesh.Hosts {
			if n := count[i+1]; n >= 3 && 2*n >= all[i+1] {
				bad[i+1] = true
				named = append(named, fmt.Sprintf("host %d (%s) in %d of its %d pairs", i+1, h.Address, n, all[i+1]))
			}
		}
		for _, p := range found {
			if !bad[p.from] && !bad[p.to] {
				named = append(named, fmt.Sprintf("%s (%s)", p.names(), v.text(p.figure)))
			}
		}
		if len(named) > 0 {
			lines = append(lines, fmt.Sprintf("much %s than the median: %s", kind.text, list(named)))
		}
	}
	return lines
}

// failures returns one line for each error, with the pairs that failed with this error.
func (v *view) failures() (lines []string) {
	var reasons []string
	failed := map[string][]string{}
	for _, p := range v.pairs {
		if p.ok {
			continue
		}
		if failed[p.pair.Error] == nil {
			reasons = append(reasons, p.pair.Error)
		}
		failed[p.pair.Error] = append(failed[p.pair.Error], p.names())
	}
	for _, reason := range reasons {
		lines = append(lines, list(failed[reason])+": "+reason)
	}
	return lines
}

// list joins at most mostNamed texts with commas. If there are more texts, it adds how many it has
// left out.
func list(all []string) string {
	if more := len(all) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], ", "), more)
	}
	return strings.Join(all, ", ")
}

// Mesh prints the matrices of a mesh. It leaves out a matrix that does not fit into a line; the
// lines below it name its pairs that are far from the median.
func Mesh(w io.Writer, m *result.Mesh) {
	for _, p := range matrices(m) {
		fmt.Fprintf(w, "\n%s\n", p.Headline)
		p.print(w)
		for _, text := range p.Lines {
			fmt.Fprintln(w, text)
		}
	}
}

// print prints a table whose first column is aligned to the left, the others to the right.
func (t *pageTable) print(w io.Writer) {
	first, other := 0, 0
	rows := append([][]string{t.Titles}, t.Rows...)
	for _, row := range rows {
		for i, text := range row {
			if n := utf8.RuneCountInString(text); i == 0 {
				first = max(first, n)
			} else {
				other = max(other, n)
			}
		}
	}
	if first+(len(t.Titles)-1)*(other+2) > maxColumns {
		fmt.Fprintf(w, "%s do not fit into a line: --html and --csv have all pairs\n", result.Count(len(t.Rows), "host"))
		return
	}
	for _, row := range rows {
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

// MeshStep prints the outcome of a step of a mesh, and its errors.
func MeshStep(w io.Writer, n, of int, c *result.Case, pairs []result.Pair) {
	var failed []string
	for _, p := range pairs {
		if p.Run == nil {
			failed = append(failed, fmt.Sprintf("%s -> %s: %s", p.From, p.To, p.Error))
		}
	}
	if len(pairs) > 0 {
		fmt.Fprintf(w, "[%d/%d] %s: %d of %s\n", n, of, c.Name(), len(pairs)-len(failed), result.Count(len(pairs), "pair"))
	}
	for i, text := range failed {
		if i == mostNamed {
			fmt.Fprintf(w, "    and %d more\n", len(failed)-i)
			break
		}
		fmt.Fprintf(w, "    %s\n", text)
	}
}

// meshTitle returns the default headline of a page.
func meshTitle(m *result.Mesh) string {
	title := fmt.Sprintf("datperf: a mesh of %d hosts", len(m.Hosts))
	if m.Pattern != "" {
		title += ", " + m.Pattern
	}
	return title
}
