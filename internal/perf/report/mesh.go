package report

import (
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// pageMatrix is a matrix of a mesh, for all formats of a report.
type pageMatrix struct {
	Title string
	Hosts []meshHost
	Rows  []meshRow
	Key   []keyEntry
	Wide  bool     // more than wideMesh hosts: small letters
	Lines []string // best and worst pair, totals, outliers, failures
	c     *result.Case
}

// wideMesh is the largest number of hosts of a matrix with normal letters on a page, and of a full
// matrix in Markdown. In Markdown a larger matrix becomes a table with a row per host.
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
	worse              float64 // sort key: a larger number is worse
}

// measured is a pair with the numbers of its hosts, and its figure if ok is set.
type measured struct {
	pair     *result.Pair
	from, to int // numbers of the hosts, from 1
	figure   float64
	ok       bool
}

func (p *measured) names() string { return fmt.Sprintf("%d -> %d", p.from, p.to) }

// view has the data from which a pageMatrix is made.
type view struct {
	mesh   *result.Mesh
	mx     *result.Matrix
	hosts  []meshHost
	pairs  []measured // all pairs
	sorted []measured // pairs with a figure, the best one first
	shades *shades    // nil: no figures
}

func (v *view) text(figure float64) string {
	return figureText(&v.mx.Case, figure) + " " + figureUnit(&v.mx.Case)
}
