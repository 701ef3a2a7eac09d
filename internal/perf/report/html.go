package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// pageData is the content of the page.
type pageData struct {
	Policy         string
	Title, Version string
	About          [][2]string
	Command        []string
	Figures        []pageFigure
	Ends           []pageEnd
	Short          time.Duration // runs of less than this are not among the figures; 0: there are none
	Repeated       bool
	Plots          []pagePlot
	Tables         []pageTable
	Matrices       []matrix
}

type pagePlot struct {
	Title  string
	SVG    template.HTML
	Legend []pageKey
	Note   string
	Values pageTable
	Open   bool // show the table of values, because it is short
}

// pageKey is an entry of a legend.
type pageKey struct{ Class, Name string }

// policy returns the page's content security policy. The page may load and run nothing. Only the
// template's own style sheet applies.
func policy() string {
	_, style, _ := strings.Cut(pageText, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	return fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// HTML writes one self-contained page with tables and plots.
func HTML(w io.Writer, d *result.Document) error {
	data := pageData{
		Policy: policy(), Title: d.Title, About: about(d), Command: quoted(d.Command),
		Version: d.Version, Ends: []pageEnd{{"Client", factList(&d.Client)}, {"Server", factList(&d.Server)}},
		Figures: figures(d), Tables: tables(d), Matrices: matrices(d.Mesh),
	}
	if d.Mesh != nil {
		data.Ends = meshEnds(d.Mesh)
	}
	switch {
	case data.Title != "":
	case d.Mesh != nil:
		data.Title = meshTitle(d.Mesh)
	default:
		data.Title = "datperf: " + d.Client.Device
	}
	for i := range d.Runs {
		if total := d.Runs[i].Total(); total.Short() {
			data.Short = time.Duration(result.TooShort)
		}
	}
	runs := medianRuns(d)
	data.Repeated = len(runs) < len(d.Runs)
	for _, p := range plots(d, runs) {
		for _, part := range p.panels() {
			shown := pagePlot{Title: part.title, SVG: template.HTML(part.svg), Note: p.note(part.series),
				Values: p.table(part.series), Open: len(p.rows) <= shortTable}
			for _, s := range part.series {
				shown.Legend = append(shown.Legend, pageKey{s.style.class(), s.name})
			}
			data.Plots = append(data.Plots, shown)
		}
	}
	return page.Execute(w, data)
}

// shortTable is a number of rows. The page shows a table of values without a click if the table has
// no more rows than that.
const shortTable = 6

// tables returns the tables that the terminal shows, with all columns.
func tables(d *result.Document) []pageTable {
	var all []pageTable
	last := ""
	cases, columnsBy := d.Cases(), map[string][]column{}
	for _, mode := range result.Modes {
		columnsBy[mode] = columnsOf(cases, mode)
	}
	var sum ports
	for i := range d.Runs {
		r := &d.Runs[i]
		columns := columnsBy[r.Case.Mode]
		if k := kindOf(r); k != last {
			last = k
			t := pageTable{Headline: headline(r)}
			for _, c := range columns {
				t.Titles = append(t.Titles, c.title)
			}
			all = append(all, t)
		}
		total := r.Total()
		var row []string
		for _, c := range columns {
			row = append(row, c.text(r, &total))
		}
		t := &all[len(all)-1]
		t.Rows = append(t.Rows, row)
		sum.add(r)
	}
	if t := summaryTable(d); len(t.Rows) > 0 {
		all = append(all, t)
	}
	if rows := sum.rows(); len(rows) > 0 {
		all = append(all, pageTable{portHeadline, portTitles, rows})
	}
	return all
}
