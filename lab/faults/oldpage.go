package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// oldPage has the results of an earlier page, for rows and fabrics that did not run again.
type oldPage struct {
	fabrics []string // in the page's order
	cells   map[string]string
	soak    bool // the page has the figure of the soak
}

func cellKey(group, name, fabric string) string { return group + "|" + name + "|" + fabric }

// readPage reads the tables of a page.
func readPage(path string) (*oldPage, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	k := &oldPage{cells: map[string]string{}}
	var group string
	var columns []string // the fabrics of the table; nil outside of a table
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case strings.HasPrefix(line, "## "):
			group, columns = strings.ToLower(line[3:]), nil
		case line == soakImage:
			k.soak = true
		case strings.HasPrefix(line, "| Scenario | Promise | "):
			columns = cells[2 : len(cells)-1]
			if len(columns) > len(k.fabrics) { // the longest table has all fabrics in their order
				k.fabrics = append(slices.Clone(columns), slices.DeleteFunc(k.fabrics, func(f string) bool {
					return slices.Contains(columns, f)
				})...)
			}
		case columns == nil || !strings.HasPrefix(line, "| "):
		case len(cells) != len(columns)+3:
			return nil, fmt.Errorf("%s: a row has %d columns, must have %d: %s", path, len(cells), len(columns)+3, line)
		default:
			for i, f := range columns {
				cell := cells[2+i]
				if strings.Contains(cell, "FAILED") {
					return nil, fmt.Errorf("%s: %q failed on %s: the page must be written anew", path, cells[0], f)
				}
				k.cells[cellKey(group, cells[0], f)] = cell
			}
		}
	}
	return k, nil
}

// cell returns the page's cell for a scenario and a fabric. If the page has none, cell returns the
// reason why the scenario does not run on the fabric. The page k may be nil.
func (k *oldPage) cell(s *scenario, fabric string) string {
	if k != nil {
		if cell, found := k.cells[cellKey(strings.ToLower(s.group), s.name, fabric)]; found {
			return cell
		}
	}
	return s.why[kindOf(fabric)]
}
