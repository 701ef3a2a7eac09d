package report

import (
	"github.com/godat/godat/internal/perf/result"
)

type pageTable struct {
	Headline string
	Titles   []string
	Rows     [][]string
}

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
	if rows := sum.rows(); len(rows) > 0 {
		all = append(all, pageTable{portHeadline, portTitles, rows})
	}
	return all
}
