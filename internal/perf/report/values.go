package report

import (
	"fmt"
	"slices"
	"strings"
)

// valueRow is a row of the table below a plot.
type valueRow struct {
	title string
	of    func(points []point) (y float64, known bool)
}

// The function at returns a row that contains the value of each series at the position x.
func at(x float64, title string) valueRow {
	return valueRow{title, func(points []point) (float64, bool) {
		for _, pt := range points {
			if pt.x == x {
				return pt.y, true
			}
		}
		return 0, false
	}}
}

// ranked returns a row with the value at a place among the sorted values of a series. Place 0 is
// the least value, and place 1 is the greatest.
func ranked(place float64, title string) valueRow {
	return valueRow{title, func(points []point) (float64, bool) {
		var all []float64
		for _, pt := range points {
			all = append(all, pt.y)
		}
		slices.Sort(all)
		if len(all) == 0 {
			return 0, false
		}
		return all[int(place*float64(len(all)-1))], true
	}}
}

// table returns a table of the values of some of the plot's series. Each series is a row, unless
// the table is narrower with a column for each series.
func (p *plot) table(part []series) pageTable {
	down := []string{} // titles of the rows
	for _, s := range part {
		down = append(down, s.name)
	}
	across := []string{}
	for _, r := range p.rows {
		across = append(across, r.title)
	}
	value := func(s, r int) string {
		if y, known := p.rows[r].of(part[s].points); known {
			return inUnit(y, p.yUnits, threeDigits)
		}
		return "-"
	}
	corner := ""
	if len(across) > len(down) {
		down, across, corner = across, down, p.xTitle
		bySeries := value
		value = func(r, s int) string { return bySeries(s, r) }
	}
	t := pageTable{Titles: append([]string{corner}, across...)}
	for i, name := range down {
		row := []string{name}
		for j := range across {
			row = append(row, value(i, j))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// note returns an explanation of the series that appear as a dot without a line, or "" if there are
// no such series.
func (p *plot) note(part []series) string {
	var alone []string
	for _, s := range part {
		if len(s.points) == 1 {
			alone = append(alone, fmt.Sprintf("%s (at %s)", s.name, s.points[0].at))
		}
	}
	if alone == nil {
		return ""
	}
	return "A dot without a line is a series with one value: " + strings.Join(alone, ", ") +
		". Its other values were not measured, or there were too few operations for them."
}
