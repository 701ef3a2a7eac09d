package report

import (
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// pageMatrix is a matrix of a mesh, for all forms of a report.
type pageMatrix struct {
	Title string
	Hosts []meshHost
	Rows  []meshRow
	Key   []keyEntry
	Wide  bool     // for small letters
	Lines []string // best and worst pair, totals, outliers, failures
}

// wideMesh is the number of hosts from which on a matrix has small letters on a page, and is a row
// for each host in Markdown.
const wideMesh = 16

type meshHost struct {
	Number  int
	Address string
}

type meshRow struct {
	Host  meshHost
	Cells []meshCell
}

func (r *meshRow) label() string { return fmt.Sprintf("%d %s", r.Host.Number, r.Host.Address) }

type meshCell struct {
	Text, Class, Title string
	worse              float64 // the larger, the worse
}

// measured is a pair with its hosts' numbers and its figure.
type measured struct {
	pair     *result.Pair
	from, to int // from 1
	figure   float64
	ok       bool
}

func (p *measured) names() string { return fmt.Sprintf("%d -> %d", p.from, p.to) }

// view is a matrix on its way to a page.
type view struct {
	mesh   *result.Mesh
	mx     *result.Matrix
	hosts  []meshHost
	pairs  []measured // all
	sorted []measured // those with a figure, the best one first
	shades *shades    // nil: no figures
}

func (v *view) text(figure float64) string {
	return figureText(&v.mx.Case, figure) + " " + figureUnit(&v.mx.Case)
}
