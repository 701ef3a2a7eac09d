package report

import (
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// pageMatrix is a matrix of a mesh, in the form that all output formats use.
type pageMatrix struct {
	Title string
	Hosts []meshHost
	Rows  []meshRow
	Key   []keyEntry
	Wide  bool     // more than wideMesh hosts: the page uses small letters
	Lines []string // best and worst pair, totals, outliers, failures
	c     *result.Case
}

// wideMesh is the largest number of hosts for which a page shows a matrix in normal letters. It is
// also the largest for which Markdown shows a full matrix; for more hosts Markdown shows a table
// with one row per host.
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
	worse              float64 // sort key: the larger, the worse
}

// measured is a pair and the numbers of its hosts. If the field ok is true, it also contains the
// pair's figure.
type measured struct {
	pair     *result.Pair
	from, to int // numbers of the hosts, from 1
	figure   float64
	ok       bool
}

func (p *measured) names() string { return fmt.Sprintf("%d -> %d", p.from, p.to) }

// view contains the data for one pageMatrix.
type view struct {
	mesh   *result.Mesh
	mx     *result.Matrix
	hosts  []meshHost
	pairs  []measured // all pairs
	sorted []measured // pairs with a figure, the best one first
	shades *shades    // nil if there are no figures
}

func (v *view) text(figure float64) string {
	return figureText(&v.mx.Case, figure) + " " + figureUnit(&v.mx.Case)
}
