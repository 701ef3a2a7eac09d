package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// pageMatrix is a matrix of a mesh, for all forms of a report.
type pageMatrix struct {
	Title    string
	Hosts    []meshHost
	Rows     []meshRow
	Summary  string
	Failures []string
}

type meshHost struct {
	Number  int
	Address string
}

type meshRow struct {
	Host  meshHost
	Cells []meshCell
}

type meshCell struct{ Text, Class, Title string }

// failedText is the cell of a pair that failed.
const failedText = "failed"

func figureText(c *result.Case, v float64) string {
	if c.Mode == result.Latency {
		return number(v, 2)
	}
	return threeDigits(v)
}

func figureUnit(c *result.Case) string {
	if c.Mode == result.Latency {
		return "us"
	}
	return "Gb/s"
}

// matrices returns the matrices of a mesh; none of nil.
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
		mx := &m.Matrices[i]
		what := "bandwidth in Gb/s"
		if mx.Case.Mode == result.Latency {
			what = "median latency in us"
		}
		p := pageMatrix{Title: fmt.Sprintf("%s: %s", mx.Case.Name(), what), Hosts: hosts}
		sorted := mx.Sorted()
		for _, from := range hosts {
			row := meshRow{Host: from}
			for _, to := range hosts {
				row.Cells = append(row.Cells, cellOf(mx, from.Address, to.Address, sorted))
			}
			p.Rows = append(p.Rows, row)
		}
		names := func(pair *result.Pair) string {
			return fmt.Sprintf("%d -> %d", numbers[pair.From], numbers[pair.To])
		}
		if n := len(sorted); n > 0 {
			text := func(pair *result.Pair) string {
				v, _ := pair.Figure()
				return figureText(&mx.Case, v) + " " + figureUnit(&mx.Case)
			}
			p.Summary = fmt.Sprintf("best %s (%s), median %s, worst %s (%s)", text(sorted[0]), names(sorted[0]),
				text(sorted[n/2]), text(sorted[n-1]), names(sorted[n-1]))
		}
		var reasons []string
		failed := map[string][]string{} // the pairs, by reason
		for i := range mx.Pairs {
			if pair := &mx.Pairs[i]; pair.Run == nil {
				if failed[pair.Error] == nil {
					reasons = append(reasons, pair.Error)
				}
				failed[pair.Error] = append(failed[pair.Error], names(pair))
			}
		}
		for _, reason := range reasons {
			p.Failures = append(p.Failures, strings.Join(failed[reason], ", ")+": "+reason)
		}
		all = append(all, p)
	}
	return all
}

// heats is the number of shades of a heat map: the worse, the warmer.
const heats = 5

// cellOf is the cell of two hosts. Its shade is the distance to the best pair: up to 10% of it is
// none, and each step doubles that.
func cellOf(mx *result.Matrix, from, to string, sorted []*result.Pair) meshCell {
	pair := mx.Pair(from, to)
	if pair == nil {
		return meshCell{}
	}
	title := from + " -> " + to + ": "
	v, ok := pair.Figure()
	if !ok {
		return meshCell{failedText, "failed", title + pair.Error}
	}
	best, _ := sorted[0].Figure()
	worse := v / best
	if mx.Case.Mode == result.Bandwidth {
		worse = best / v
	}
	heat := 0
	for limit := 0.1; heat < heats-1 && !(worse <= 1+limit); limit *= 2 {
		heat++
	}
	text := figureText(&mx.Case, v)
	return meshCell{text, fmt.Sprintf("heat%d", heat), title + text + " " + figureUnit(&mx.Case)}
}

func meshEnds(m *result.Mesh) (all []pageEnd) {
	for i, h := range m.Hosts {
		end := pageEnd{Who: fmt.Sprintf("%d %s", i+1, h.Address)}
		if h.Facts != nil {
			end.Facts = factList(h.Facts)
		} else {
			end.Facts = [][2]string{{"Error", h.Error}}
		}
		all = append(all, end)
	}
	return all
}

// Mesh prints the matrices of a mesh.
func Mesh(w io.Writer, m *result.Mesh) {
	for _, p := range matrices(m) {
		fmt.Fprintf(w, "\n%s\n", p.Title)
		names, wide := 0, len(failedText)
		for _, row := range p.Rows {
			names = max(names, len(row.label()))
			for _, c := range row.Cells {
				wide = max(wide, len(c.Text))
			}
		}
		fmt.Fprintf(w, "%-*s", names, "from \\ to")
		for _, h := range p.Hosts {
			fmt.Fprintf(w, "  %*d", wide, h.Number)
		}
		fmt.Fprintln(w)
		for _, row := range p.Rows {
			fmt.Fprintf(w, "%-*s", names, row.label())
			for i, c := range row.Cells {
				if c.Text == "" && p.Hosts[i] == row.Host {
					c.Text = "-"
				}
				fmt.Fprintf(w, "  %*s", wide, c.Text)
			}
			fmt.Fprintln(w)
		}
		for _, text := range append([]string{p.Summary}, p.Failures...) {
			if text != "" {
				fmt.Fprintln(w, text)
			}
		}
	}
}

func (r *meshRow) label() string { return fmt.Sprintf("%d %s", r.Host.Number, r.Host.Address) }

// MeshPair prints a pair as it comes.
func MeshPair(w io.Writer, n, of int, p *result.Pair) {
	text := p.Error
	if v, ok := p.Figure(); ok {
		text = fmt.Sprintf("%s: %s %s", p.Run.Case.Name(), figureText(&p.Run.Case, v), figureUnit(&p.Run.Case))
	}
	fmt.Fprintf(w, "[%d/%d] %s -> %s: %s\n", n, of, p.From, p.To, text)
}

func (p *pageMatrix) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n\n", p.Title)
	titles := []string{"from, to"}
	var rows [][]string
	for i, row := range p.Rows {
		titles = append(titles, fmt.Sprint(p.Hosts[i].Number))
		cells := []string{escape(row.label())}
		for _, c := range row.Cells {
			cells = append(cells, c.Text)
		}
		rows = append(rows, cells)
	}
	markdownTable(b, titles, 1, len(titles), rows)
	for _, text := range append([]string{p.Summary}, p.Failures...) {
		if text != "" {
			fmt.Fprintf(b, "\n%s\n", escape(text))
		}
	}
}

// meshCSV writes one row for each pair, case and direction: the columns of CSV behind those of the
// pair.
func meshCSV(w io.Writer, m *result.Mesh) error {
	out, all := csv.NewWriter(w), fields()
	titles := []string{"from", "to", "error"}
	for _, f := range all {
		titles = append(titles, f.name)
	}
	out.Write(titles)
	for _, mx := range m.Matrices {
		for _, p := range mx.Pairs {
			row := append([]string{p.From, p.To, p.Error}, make([]string, len(all))...)
			if p.Run == nil {
				out.Write(row)
				continue
			}
			for _, flow := range p.Run.Flows() {
				for j, f := range all {
					row[3+j] = f.text(p.Run, &flow)
				}
				out.Write(row)
			}
		}
	}
	out.Flush()
	return out.Error()
}
