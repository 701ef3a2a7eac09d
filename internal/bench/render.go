package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// notes is what a person found out about the figures: why those that miss their marks do.
//
//go:embed notes.md
var notes string

// marks counts those met and missed.
func (d *Document) marks() (met, missed int) {
	for _, p := range d.Parts {
		for _, t := range p.Tables {
			for _, r := range t.Rows {
				for _, m := range r.Marks {
					if m.Met {
						met++
					} else {
						missed++
					}
				}
			}
		}
	}
	return met, missed
}

// markdown renders the document.
func markdown(d *Document) string {
	var b strings.Builder
	met, missed := d.marks()
	fmt.Fprintf(&b, "# Performance\n\nWritten by `%s` on %s; do not edit. It leaves all repeats, in base units, with the exact command of each figure,\nin `out/performance.json`.\n\n",
		d.Command, d.Started.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(&b, "Every figure is the median of %d interleaved rounds, with half the distance between the least and the greatest in percent. "+
		"Behind the figures of the other series stands their ratio to the first: the median of the rounds' ratios, which the marks go by too.\n\n", d.Rounds)
	fmt.Fprintf(&b, "**%d of %d marks met.**", met, met+missed)
	if missed > 0 {
		b.WriteString(" Why the others are not: [below](#what-the-figures-mean).")
	}
	b.WriteString("\n\n| Where | |\n|---|---|\n")
	for _, f := range d.Environment {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Name, escape(f.Value))
	}
	b.WriteString("\n| Part | Seconds | Load average before | after | Marks met |\n|---|---:|---|---|---:|\n")
	for _, p := range d.Parts {
		one := &Document{Parts: []*Part{p}}
		met, missed := one.marks()
		title := p.Title
		if len(p.failed()) > 0 {
			title += " (**failed**)"
		}
		fmt.Fprintf(&b, "| %s | %.0f | %s | %s | %d of %d |\n", title, p.Seconds, p.LoadStart, p.LoadEnd, met, met+missed)
	}
	for _, p := range d.Parts {
		fmt.Fprintf(&b, "\n## %s\n", p.Title)
		if p.Error != "" {
			fmt.Fprintf(&b, "\n**Failed:** %s\n", escape(p.Error))
		}
		for _, t := range p.Tables {
			if len(t.Rows) > 0 {
				t.markdown(&b)
			}
		}
	}
	b.WriteString("\n## What the figures mean\n\n" + strings.TrimSpace(notes) + "\n")
	return b.String()
}

func (t *Table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(b, "%s\n\n", t.Note)
	}
	b.WriteString("```\n" + strings.Join(t.How, "\n") + "\n```\n\n")
	unit, factor := t.shown()
	fmt.Fprintf(b, "| %s |", unit)
	for _, s := range t.Series {
		fmt.Fprintf(b, " %s |", s)
	}
	marked := slices.ContainsFunc(t.Rows, func(r *Row) bool { return len(r.Marks) > 0 })
	if marked {
		b.WriteString(" marks |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(t.Series)))
	if marked {
		b.WriteString("---|")
	}
	b.WriteString("\n")
	for _, r := range t.Rows {
		fmt.Fprintf(b, "| %s |", r.Name)
		for i, c := range r.Cells {
			if c == nil || len(c.Repeats) == 0 {
				b.WriteString(" |")
				continue
			}
			text := number(c.Median/factor) + spread(c)
			if first := r.Cells[0]; i > 0 && first != nil && first.Median > 0 && t.comparable() {
				text += fmt.Sprintf(", %.2fx", ratio(c, first))
			}
			fmt.Fprintf(b, " %s |", text)
		}
		if marked {
			fmt.Fprintf(b, " %s |", r.verdict())
		}
		b.WriteString("\n")
	}
	for _, r := range t.Rows {
		for _, e := range r.Errors {
			fmt.Fprintf(b, "\n**Failed**, %s: %s\n", r.Name, escape(e))
		}
	}
}

// comparable tells whether the series of a table measure the same thing.
func (t *Table) comparable() bool { return t.Unit != "bytes" }

// shown gives the unit for people, and how many base units it has.
func (t *Table) shown() (string, float64) {
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

func spread(c *Sample) string {
	if len(c.Repeats) < 2 || c.Median == 0 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", (c.Max-c.Min)/2/math.Abs(c.Median)*100)
}

// number has at most four significant digits and no more than two after the point.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return trim(strconv.FormatFloat(v, 'f', 1, 64))
	}
	return trim(strconv.FormatFloat(v, 'f', 2, 64))
}

func trim(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") }

func (r *Row) verdict() string {
	var words []string
	for _, m := range r.Marks {
		if m.Met {
			words = append(words, fmt.Sprintf("met: %s (%s)", m.Text, number(m.Value)))
		} else {
			words = append(words, fmt.Sprintf("**missed**: %s (%s)", m.Text, number(m.Value)))
		}
	}
	return strings.Join(words, "<br>")
}

func escape(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
