package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// markdownTable writes a table whose columns are to the right from the one numbered right to the
// one before last.
func markdownTable(b *strings.Builder, titles []string, right, last int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s%s%s\n", strings.Join(titles, " | "), strings.Repeat("---|", right),
		strings.Repeat("--:|", last-right), strings.Repeat("---|", len(titles)-last))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// markdownSections writes the sections of a document that compares programs.
func markdownSections(b *strings.Builder, d *result.Document) {
	met, missed := result.Marks(d.Sections...)
	fmt.Fprintf(b, "Written by `%s` on %s; do not edit.\n\n", strings.Join(d.Command, " "),
		d.Started.Format("2006-01-02 15:04 MST"))
	b.WriteString("Every figure is the median of interleaved rounds, with half the distance between the least and the\n" +
		"greatest in percent. Behind the figures of the other series stands their ratio to the first: the\n" +
		"median of the rounds' ratios, which the marks go by too.\n\n")
	fmt.Fprintf(b, "**%d of %d marks met.**\n\n", met, met+missed)
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
		rows = append(rows, []string{name, escape(d.Labels[name])})
	}
	markdownTable(b, []string{"Where", ""}, 2, 2, rows)
	rows = nil
	for _, s := range d.Sections {
		met, missed := result.Marks(s)
		title := s.Title
		if len(s.Failed()) > 0 {
			title += " (**failed**)"
		}
		seconds := strconv.FormatFloat(float64(s.Elapsed)/1e9, 'f', 0, 64)
		rows = append(rows, []string{title, seconds, s.LoadStart, s.LoadEnd, fmt.Sprintf("%d of %d", met, met+missed)})
	}
	b.WriteString("\n")
	markdownTable(b, []string{"Part", "Seconds", "Load average before", "after", "Marks met"}, 1, 5, rows)
	for _, s := range d.Sections {
		fmt.Fprintf(b, "\n## %s\n", s.Title)
		for _, e := range s.Errors {
			fmt.Fprintf(b, "\n**Failed:** %s\n", escape(e))
		}
		for _, t := range s.Tables {
			if len(t.Rows) > 0 {
				compared(b, t)
			}
		}
	}
}

// compared writes one table.
func compared(b *strings.Builder, t *result.Table) {
	fmt.Fprintf(b, "\n### %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(b, "%s\n\n", t.Note)
	}
	fmt.Fprintf(b, "```\n%s\n```\n\n", strings.Join(t.How, "\n"))
	unit, factor := shown(t)
	titles := append([]string{unit}, t.Series...)
	marked := slices.ContainsFunc(t.Rows, func(r *result.Row) bool { return len(r.Marks) > 0 })
	if marked {
		titles = append(titles, "marks")
	}
	var rows [][]string
	for _, r := range t.Rows {
		row := []string{r.Name}
		for i, series := range t.Series {
			text := ""
			if c := r.Cells[series]; c != nil {
				text = short(c.Median/factor) + spread(c)
				if first := r.Cells[t.Series[0]]; i > 0 && first != nil && first.Median > 0 && t.Unit != "bytes" {
					text += fmt.Sprintf(", %.2fx", c.Ratio(first))
				}
			}
			row = append(row, text)
		}
		if marked {
			row = append(row, verdict(r))
		}
		rows = append(rows, row)
	}
	markdownTable(b, titles, 1, 1+len(t.Series), rows)
	for _, r := range t.Rows {
		for _, e := range r.Errors {
			fmt.Fprintf(b, "\n**Failed**, %s: %s\n", r.Name, escape(e))
		}
	}
}

// shown returns the unit for people, and the number of base units in it.
func shown(t *result.Table) (string, float64) {
	switch t.Unit {
	case "bytes/s":
		return "MiB/s", 1 << 20
	case "bytes":
		return "KiB", 1 << 10
	case "ops/s":
		return "thousands/s", 1000
	case "ns":
		for _, r := range t.Rows {
			for _, c := range r.Cells {
				if c != nil && c.Median >= 2000 {
					return "us", 1000
				}
			}
		}
	}
	return t.Unit, 1
}

func spread(c *result.Sample) string {
	if len(c.Repeats) < 2 || c.Median == 0 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", (c.Max-c.Min)/2/math.Abs(c.Median)*100)
}

// short formats a number with at most four significant digits, unless it is larger, and at most two
// after the point.
func short(v float64) string {
	digits := 2
	if a := math.Abs(v); a >= 1000 {
		digits = 0
	} else if a >= 100 {
		digits = 1
	}
	text := number(v, digits)
	if digits > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func verdict(r *result.Row) string {
	var words []string
	for _, m := range r.Marks {
		met := "met"
		if !m.Met {
			met = "**missed**"
		}
		words = append(words, fmt.Sprintf("%s: %s (%s)", met, m.Text, short(m.Value)))
	}
	return strings.Join(words, "<br>")
}

// escape makes a text fit into a cell.
func escape(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
