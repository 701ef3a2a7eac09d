package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// mostNamed is the largest number of pairs that a line names.
const mostNamed = 8

// total returns a line with the sums of the bandwidths into each host, if all pairs of a sum have
// measured at the same time.
func (v *view) total() (lines []string) {
	if v.mx.Case.Mode != result.Bandwidth || v.mesh.Pattern != result.Incast {
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
		for _, h := range v.hosts {
			if n := count[h.Number]; n >= 3 && 2*n >= all[h.Number] {
				bad[h.Number] = true
				named = append(named, fmt.Sprintf("host %d (%s) in %d of its %d pairs", h.Number, h.Address, n, all[h.Number]))
			}
		}
		for _, p := range found {
			if !bad[p.from] && !bad[p.to] {
				named = append(named, fmt.Sprintf("%s (%s)", p.names(), v.text(p.figure)))
			}
		}
		if len(named) > 0 {
			lines = append(lines, fmt.Sprintf("much %s than the median: %s", kind.text, list(named, mostNamed)))
		}
	}
	return lines
}

// failures returns one line for each error, with the pairs that failed with this error.
func (v *view) failures() (lines []string) {
	var reasons []string
	failed := map[string][]measured{}
	for _, p := range v.pairs {
		if p.ok {
			continue
		}
		if failed[p.pair.Error] == nil {
			reasons = append(reasons, p.pair.Error)
		}
		failed[p.pair.Error] = append(failed[p.pair.Error], p)
	}
	for _, reason := range reasons {
		lines = append(lines, namesOf(failed[reason])+": "+reason)
	}
	return lines
}

// namesOf returns the names of pairs. If there are more than 3 pairs and one host is in all of
// them, it returns only the number of pairs and that host.
func namesOf(pairs []measured) string {
	first := pairs[0]
	for _, host := range []int{first.from, first.to} {
		if len(pairs) > 3 && !slices.ContainsFunc(pairs, func(p measured) bool { return p.from != host && p.to != host }) {
			return fmt.Sprintf("%d pairs of host %d", len(pairs), host)
		}
	}
	var all []string
	for _, p := range pairs {
		all = append(all, p.names())
	}
	return list(all, mostNamed)
}

// hostTitles are the titles of the table that hostTable returns. The table has one row per host and
// replaces a matrix that is too wide.
var hostTitles = []string{"host", "median out", "worst out", "median in", "worst in", failedText}

func (p *pageMatrix) hostTable() (rows [][]string) {
	for i, h := range p.Rows {
		var out, in []meshCell
		for j := range p.Rows {
			out, in = append(out, p.Rows[i].Cells[j]), append(in, p.Rows[j].Cells[i])
		}
		row := []string{h.label()}
		failed := 0
		for _, cells := range [][]meshCell{out, in} {
			var good []float64 // sort keys of the cells with a figure
			for _, c := range cells {
				switch {
				case c.Text == failedText:
					failed++
				case c.Text != "":
					good = append(good, c.worse)
				}
			}
			slices.Sort(good)
			if len(good) == 0 {
				row = append(row, "-", "-")
				continue
			}
			for _, v := range []float64{result.Median(good), good[len(good)-1]} {
				row = append(row, figureText(p.c, math.Abs(v)))
			}
		}
		rows = append(rows, append(row, fmt.Sprint(failed)))
	}
	return rows
}

// list joins at most limit texts with commas. If there are more texts, it adds how many it has left
// out.
func list(all []string, limit int) string {
	if more := len(all) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:limit], ", "), more)
	}
	return strings.Join(all, ", ")
}
