package main

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// notes is the text that explains the figures. It is the end of the page of details.
//
//go:embed notes.md
var notes string

// The files that writePages writes into the folder of the pages.
const (
	pageFile    = "performance.md"
	detailsFile = "performance-details.md"
	latencyFile = "performance-latency.svg"
	rateFile    = "performance-rate.svg"
)

// writePages writes the pages and the pictures of the document.
func (b *bench) writePages() error {
	if b.pages == "" {
		return nil
	}
	for name, text := range map[string]string{pageFile: page(b.doc), detailsFile: details(b.doc)} {
		if err := replace(filepath.Join(b.pages, name), []byte(text)); err != nil {
			return err
		}
	}
	s := b.doc.section(partPair)
	if s == nil {
		return nil
	}
	for i, name := range []string{latencyFile, rateFile} {
		t := s.Tables[i]
		svg, err := report.Picture(t.Title, i == 1, lines(t))
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(b.pages, name), []byte(svg)); err != nil {
			return err
		}
	}
	return nil
}

// lines returns the lines of a plot over message size, one for each series of the table. Their
// values are medians.
func lines(t *table) (all []report.Line) {
	for _, name := range t.Series {
		l := report.Line{Name: name}
		for _, r := range t.Rows {
			if v := slices.Sorted(slices.Values(r.values(name))); len(v) > 0 {
				l.Sizes, l.Values = append(l.Sizes, r.Size), append(l.Values, result.Median(v))
			}
		}
		if len(l.Sizes) > 0 {
			all = append(all, l)
		}
	}
	return all
}

const pictures = `![Half of a round trip over size](%s)
![Messages per second over size](%s)

Both pictures are of two processes of one host on the loop device, a verbs device in memory; C is
one process. In the first the messages of perftest, cverbs, udat and C are 1 us under way.

`

const figuresBegin = `Written by "make bench"; do not edit. [The details](%s) have the values,
the commands, and what the figures mean.

## Figures

A figure is the median of the rounds' ratios of two programs that take turns. The interval contains
the true median with 95 %% confidence. A goal that is inside it is undecided, and so is a figure of
fewer than 6 rounds.
`

// page returns the text of performance.md: sentences, pictures, and all figures with their goals.
func page(d *document) string {
	var b strings.Builder
	b.WriteString("# Performance\n\n")
	if slices.ContainsFunc(d.Parts, func(s *section) bool { return s.Short }) {
		b.WriteString("**Of a short run, to see that it works: these values mean nothing.**\n\n")
	}
	b.WriteString(strings.Join(sentences(d), "\n") + "\n\n")
	if d.section(partPair) != nil {
		fmt.Fprintf(&b, pictures, latencyFile, rateFile)
	}
	fmt.Fprintf(&b, figuresBegin, detailsFile)
	for _, s := range d.Parts {
		rows := figureRows(s)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n", s.Title)
		if s.Short {
			b.WriteString("**A short run: its figures mean nothing.**\n\n")
		}
		markdownTable(&b, []string{"What", "", "Figure", "95 % interval", "Rounds", "Goal", ""}, 2, 6, rows)
	}
	b.WriteString("\n## Parts\n\nEach part was measured by itself, on the tree that is named.\n\n")
	var rows [][]string
	for _, s := range d.Parts {
		rows = append(rows, []string{s.Name, s.Started.Format("2006-01-02 15:04 MST"), s.Commit,
			strconv.FormatFloat(s.Seconds, 'f', 0, 64), s.LoadStart, s.LoadEnd, ended(s)})
	}
	titles := []string{"Part", "Begun", "Commit", "Seconds", "Load before", "after", "Ended, because"}
	markdownTable(&b, titles, 3, 4, rows)
	return b.String()
}

func ended(s *section) string {
	if len(s.failed()) > 0 {
		return s.Ended + " (**not all could be measured**)"
	}
	return s.Ended
}

// figureRows returns a row of the page for each figure of a part.
func figureRows(s *section) (rows [][]string) {
	if s.Unjudged {
		return nil
	}
	for _, t := range s.Tables {
		for _, r := range t.Rows {
			for _, f := range r.Figures {
				e := estimated(r.ratios(f.Series, f.Peer), shown)
				goal, ratio, within := "at least ", "-", "-"
				if f.AtMost {
					goal = "at most "
				}
				if e.rounds > 0 {
					ratio = fmt.Sprintf("%.2f", e.ratio)
				}
				if e.known {
					within = fmt.Sprintf("%.2f to %.2f", e.low, e.high)
				}
				verdict := e.verdict(f.AtMost, f.Goal)
				if verdict == missed {
					verdict = "**missed**"
				}
				rows = append(rows, []string{t.Title + ", " + r.Name, f.Series + " / " + f.Peer, ratio, within,
					strconv.Itoa(e.rounds), goal + strconv.FormatFloat(f.Goal, 'g', -1, 64), verdict})
			}
		}
	}
	return rows
}

// sentences returns the five sentences at the beginning of the page: how many goals are met, and
// the most important latencies and rates. If a part has not been measured, its sentence says so.
func sentences(d *document) []string {
	count := map[string]int{}
	total := 0
	for _, s := range d.Parts {
		for _, row := range figureRows(s) {
			count[strings.Trim(row[len(row)-1], "*")]++
			total++
		}
	}
	of := func(part, format string, args ...any) string {
		if d.section(part) == nil {
			return fmt.Sprintf("The part `%s` has not been measured.", part)
		}
		return fmt.Sprintf(format, args...)
	}
	at := func(part string, table int, row, series string) *cell {
		return find(d.section(part), table, row, series)
	}
	return []string{
		fmt.Sprintf("Of %d figures, each with a goal, %d are met, %d missed, and %d undecided.", total, count[met],
			count[missed], count[undecided]),
		of(partLoop, "On a wire of 1 us, half of a polled round trip of 64 bytes takes %s in C, %s in cverbs and "+
			"%s in udat.",
			at(partLoop, 0, "64 B", inC), at(partLoop, 0, "64 B", result.Cverbs), at(partLoop, 0, "64 B", result.UDAT)),
		of(partPair, "Between two processes RDMA writes of 64 KiB move %s with perftest, %s with cverbs and %s with udat.",
			at(partPair, 1, "64 KiB", perftestName).bytes(64<<10), at(partPair, 1, "64 KiB", result.Cverbs).bytes(64<<10),
			at(partPair, 1, "64 KiB", result.UDAT).bytes(64<<10)),
		of(partPair, "There a stream of rdmanet takes %s for half of a round trip of 64 bytes and moves %s in writes of "+
			"64 KiB;\none of TCP takes %s and moves %s.",
			at(partPair, 0, "64 B", rdmanet), at(partPair, 1, "64 KiB", rdmanet).bytes(64<<10),
			at(partPair, 0, "64 B", overTCP), at(partPair, 1, "64 KiB", overTCP).bytes(64<<10)),
		of(partTCP, "Without a device, over `tcp`, udat takes %s for that and writes of 64 KiB move %s; a Go program "+
			"on TCP alone has %s and %s.",
			at(partTCP, 0, "64 B", result.UDAT), at(partTCP, 1, "64 KiB", result.UDAT), at(partTCP, 0, "64 B", rawPolled),
			at(partTCP, 1, "64 KiB", overTCP)),
	}
}

// cell is a value of a table, to be printed for people. A nil cell has not been measured.
type cell struct {
	median float64
	unit   string
}

func find(s *section, table int, name, series string) *cell {
	if s == nil || table >= len(s.Tables) {
		return nil
	}
	for _, r := range s.Tables[table].Rows {
		if v := slices.Sorted(slices.Values(r.values(series))); r.Name == name && len(v) > 0 {
			return &cell{result.Median(v), s.Tables[table].Unit}
		}
	}
	return nil
}

// bytes converts operations per second to bytes per second.
func (c *cell) bytes(size int) *cell {
	if c == nil {
		return nil
	}
	return &cell{c.median * float64(size), "bytes/s"}
}

func (c *cell) String() string {
	switch {
	case c == nil:
		return "(not measured)"
	case c.unit == "bytes/s":
		return fmt.Sprintf("%.2f GB/s", c.median/1e9)
	case c.unit == "ns" && c.median >= 1e5:
		return short(c.median/1e3) + " us"
	case c.unit == "ns":
		return fmt.Sprintf("%.2f us", c.median/1e3)
	}
	return short(c.median) + " " + c.unit
}

// details returns the text of performance-details.md: the values and commands of all tables, and
// the notes.
func details(d *document) string {
	var b strings.Builder
	b.WriteString("# Performance: the details\n\nWritten by `make bench`; do not edit. " +
		"The figures with their goals are in\n[" + pageFile + "](" + pageFile + ").\n\n" +
		"A value is the median of all rounds, with half the distance between the least and the greatest in\n" +
		"percent. Behind the values of the other series stands the median of the rounds' ratios to the\n" +
		"first.\n")
	for _, s := range d.Parts {
		fmt.Fprintf(&b, "\n## %s\n", s.Title)
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(s.Machine)) {
			rows = append(rows, []string{name, escape(s.Machine[name])})
		}
		b.WriteString("\n")
		markdownTable(&b, []string{"Where", ""}, 2, 2, rows)
		for _, e := range s.Errors {
			fmt.Fprintf(&b, "\n**Failed:** %s\n", escape(e))
		}
		for _, t := range s.Tables {
			tableDetails(&b, t)
		}
	}
	fmt.Fprintf(&b, "\n## What the figures mean\n\n%s", notes)
	return b.String()
}

func tableDetails(b *strings.Builder, t *table) {
	fmt.Fprintf(b, "\n### %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(b, "%s\n\n", t.Note)
	}
	unit, factor := unitOf(t)
	var rows [][]string
	for _, r := range t.Rows {
		row := []string{r.Name}
		for i, name := range t.Series {
			text := ""
			if v := slices.Sorted(slices.Values(r.values(name))); len(v) > 0 {
				text = short(result.Median(v)/factor) + spread(v)
				if ratios := r.ratios(name, t.Series[0]); i > 0 && len(ratios) > 0 {
					text += fmt.Sprintf(", %.2fx", estimated(ratios, shown).ratio)
				}
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	markdownTable(b, append([]string{unit}, t.Series...), 1, 1+len(t.Series), rows)
	if len(t.Rows) > 0 {
		b.WriteString("\n```\n")
		for _, name := range t.Series {
			if c := t.Rows[0].Commands[name]; c != "" {
				fmt.Fprintf(b, "%s: %s\n", name, c)
			}
		}
		b.WriteString("```\n")
	}
	for _, r := range t.Rows {
		for _, e := range r.Errors {
			fmt.Fprintf(b, "\n**Failed**, %s: %s\n", r.Name, escape(e))
		}
	}
}

// unitOf returns the unit in which the page shows the table. It also returns the size of that unit,
// in the table's own unit.
func unitOf(t *table) (string, float64) {
	switch t.Unit {
	case "bytes/s":
		return "MiB/s", 1 << 20
	case "ops/s":
		return "thousands/s", 1000
	case "ns":
		return "us", 1000
	}
	return t.Unit, 1
}

// spread formats half of the distance between the least and the greatest value, in percent of the
// median.
func spread(sorted []float64) string {
	m := result.Median(sorted)
	if len(sorted) < 2 || m == 0 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", (sorted[len(sorted)-1]-sorted[0])/2/math.Abs(m)*100)
}

// short formats a number with at most four significant digits and at most two decimals. A number of
// 10000 or more has all digits before the decimal point.
func short(v float64) string {
	digits := 2
	if a := math.Abs(v); a >= 1000 {
		digits = 0
	} else if a >= 100 {
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// markdownTable writes a table. The columns with the indices lo to hi-1 are aligned to the right,
// the others to the left. Indices begin at 0.
func markdownTable(b *strings.Builder, titles []string, lo, hi int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s%s%s\n", strings.Join(titles, " | "), strings.Repeat("---|", lo),
		strings.Repeat("--:|", hi-lo), strings.Repeat("---|", len(titles)-hi))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// escape returns s in a form for a cell of a table: each | is escaped, and each newline becomes a
// space.
func escape(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
