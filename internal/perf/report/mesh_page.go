package report

import (
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// matrices returns the matrices of a mesh. It returns nil if m is nil.
func matrices(m *result.Mesh) (all []pageMatrix) {
	if m == nil {
		return nil
	}
	var hosts []meshHost
	numbers := map[string]int{}
	for i, h := range m.Hosts {
		hosts = append(hosts, meshHost{i + 1, h.Address})
		numbers[h.Address] = i + 1
	}
	for i := range m.Matrices {
		v := newView(m, &m.Matrices[i], hosts, numbers)
		all = append(all, v.page())
	}
	return all
}

func newView(m *result.Mesh, mx *result.Matrix, hosts []meshHost, numbers map[string]int) *view {
	v := &view{mesh: m, mx: mx, hosts: hosts}
	of := func(p *result.Pair) measured {
		figure, ok := p.Figure()
		return measured{p, numbers[p.From], numbers[p.To], figure, ok}
	}
	for i := range mx.Pairs {
		v.pairs = append(v.pairs, of(&mx.Pairs[i]))
	}
	var figures []float64
	for _, p := range mx.Sorted() {
		one := of(p)
		v.sorted, figures = append(v.sorted, one), append(figures, one.figure)
	}
	if len(figures) > 0 {
		v.shades = shadesOf(&mx.Case, figures)
	}
	return v
}

func (v *view) page() pageMatrix {
	what := "bandwidth in Gb/s"
	if v.mx.Case.Mode == result.Latency {
		what = "median latency in us"
	}
	p := pageMatrix{Title: fmt.Sprintf("%s: %s", v.mx.Case.Name(), what), Hosts: v.hosts, Wide: len(v.hosts) > wideMesh,
		c: &v.mx.Case}
	switch v.mesh.Pattern {
	case "", result.Pairs:
	default:
		p.Title += ", " + v.mesh.Pattern
	}
	cells := map[[2]int]meshCell{}
	outliers, failed := false, false
	for i := range v.pairs {
		one := &v.pairs[i]
		cells[[2]int{one.from, one.to}] = v.cell(one)
		outliers = outliers || one.ok && v.shades.outlier(one.figure) != 0
		failed = failed || !one.ok
	}
	for _, from := range v.hosts {
		row := meshRow{Host: from}
		for _, to := range v.hosts {
			row.Cells = append(row.Cells, cells[[2]int{from.Number, to.Number}])
		}
		p.Rows = append(p.Rows, row)
	}
	if n := len(v.sorted); n > 0 {
		p.Key = v.shades.key(outliers, failed)
		p.Lines = append(p.Lines, fmt.Sprintf("best %s (%s), median %s, worst %s (%s)",
			v.text(v.sorted[0].figure), v.sorted[0].names(), v.text(v.shades.median),
			v.text(v.sorted[n-1].figure), v.sorted[n-1].names()))
		p.Lines = append(p.Lines, v.total()...)
		p.Lines = append(p.Lines, v.outliers()...)
	}
	p.Lines = append(p.Lines, v.failures()...)
	return p
}

func (v *view) cell(p *measured) meshCell {
	title := p.pair.From + " -> " + p.pair.To + ": "
	if !p.ok {
		return meshCell{Text: failedText, Class: failedText, Title: title + p.pair.Error}
	}
	class := fmt.Sprintf("heat%d", v.shades.shade(p.figure))
	if v.shades.outlier(p.figure) != 0 {
		class += " outlier"
	}
	return meshCell{figureText(&v.mx.Case, p.figure), class, title + v.text(p.figure), v.shades.sign * p.figure}
}

// meshTitle returns the default headline of a page.
func meshTitle(m *result.Mesh) string {
	title := fmt.Sprintf("datperf: a mesh of %d hosts", len(m.Hosts))
	if m.Pattern != "" {
		title += ", " + m.Pattern
	}
	return title
}
