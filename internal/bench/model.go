package main

import (
	"fmt"
	"slices"
	"time"
)

// Schema names the form of Document.
const Schema = "godat-bench/1"

// Document is what one run of the benchmark found.
type Document struct {
	Schema      string            `json:"schema"`
	Started     time.Time         `json:"started"`
	Command     string            `json:"command"`
	Rounds      int               `json:"rounds"`
	Units       map[string]string `json:"units"`
	Environment []Fact            `json:"environment"`
	Parts       []*Part           `json:"parts"`
}

// Fact is one thing to know about where the figures come from.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Part is one of the things measured. Its error is there beside what was measured before it.
type Part struct {
	Name      string   `json:"name"`
	Title     string   `json:"title"`
	Seconds   float64  `json:"seconds"`
	LoadStart string   `json:"load_average_at_start"`
	LoadEnd   string   `json:"load_average_at_end"`
	Error     string   `json:"error,omitempty"`
	Tables    []*Table `json:"tables"`
}

// Table is a set of rows that are measured in the same way.
type Table struct {
	Title  string   `json:"title"`
	Note   string   `json:"note,omitempty"`
	Unit   string   `json:"unit"`           // of all values: a key of units, or none
	Series []string `json:"series"`         // in the order of the columns; the first is what the others stand beside
	How    []string `json:"how,omitempty"`  // the commands, with $NAMES for what varies from row to row
	Rows   []*Row   `json:"rows,omitempty"` //
}

// Row is what all the series gave for one setting.
type Row struct {
	Name   string    `json:"name"`
	Cells  []*Sample `json:"cells"` // as Table.Series; null where there is none
	Marks  []Mark    `json:"marks,omitempty"`
	Errors []string  `json:"errors,omitempty"`
}

// Sample is a figure with all its repeats.
type Sample struct {
	Series  string    `json:"series"`
	Command string    `json:"command,omitempty"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Repeats []float64 `json:"repeats"`
}

// Mark is a limit that a figure must keep.
type Mark struct {
	Text  string  `json:"text"` // for example "udat <= 1.05 x perftest"
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Met   bool    `json:"met"`
}

// units explains the document's numbers.
var units = map[string]string{
	"ns":          "nanoseconds",
	"ops/s":       "operations per second",
	"bytes/s":     "bytes of payload per second",
	"bytes":       "bytes",
	"1/s":         "per second",
	"calls":       "system calls",
	"allocations": "objects of Go's heap",
	"seconds":     "of wall-clock time",
	"marks":       "value and limit are ratios where the text has an x, else of the table's unit",
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// ratio is the median of what v was of ref in each round: both are measured one after the other, and a machine whose
// speed drifts between rounds drifts for both.
func ratio(v, ref *Sample) float64 {
	if len(v.Repeats) != len(ref.Repeats) {
		return v.Median / ref.Median
	}
	each := make([]float64, len(v.Repeats))
	for i := range each {
		each[i] = v.Repeats[i] / ref.Repeats[i]
	}
	return median(each)
}

// add puts one repeat of a series into a row.
func (t *Table) add(row, series, command string, value float64) {
	c := t.row(row).cell(t, series)
	if c.Command == "" {
		c.Command = command
	}
	c.Repeats = append(c.Repeats, value)
	c.Median, c.Min, c.Max = median(c.Repeats), slices.Min(c.Repeats), slices.Max(c.Repeats)
}

// fail notes in a row that a series could not be measured.
func (t *Table) fail(row, series string, err error) {
	r := t.row(row)
	if text := fmt.Sprintf("%s: %v", series, err); !slices.Contains(r.Errors, text) {
		r.Errors = append(r.Errors, text)
	}
}

func (t *Table) row(name string) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	t.Rows = append(t.Rows, &Row{Name: name, Cells: make([]*Sample, len(t.Series))})
	return t.Rows[len(t.Rows)-1]
}

func (r *Row) cell(t *Table, series string) *Sample {
	i := slices.Index(t.Series, series)
	if r.Cells[i] == nil {
		r.Cells[i] = &Sample{Series: series}
	}
	return r.Cells[i]
}

// sample gives the figure of a series in a row; nil if it was not measured, or is 0.
func (t *Table) sample(row, series string) *Sample {
	i := slices.Index(t.Series, series)
	for _, r := range t.Rows {
		if r.Name == row && i >= 0 && r.Cells[i] != nil && r.Cells[i].Median > 0 {
			return r.Cells[i]
		}
	}
	return nil
}

// atMost and atLeast mark that a series keeps to a factor of another in every row that has both.
func (t *Table) atMost(series string, factor float64, reference string) {
	t.mark(series, reference, fmt.Sprintf("%s <= %.4g x %s", series, factor, reference), factor, func(x float64) bool { return x <= factor })
}

func (t *Table) atLeast(series string, factor float64, reference string) {
	t.mark(series, reference, fmt.Sprintf("%s >= %.4g x %s", series, factor, reference), factor, func(x float64) bool { return x >= factor })
}

// ahead marks that a series is better than another; less tells that smaller figures are.
func (t *Table) ahead(series, reference string, less bool) {
	if less {
		t.mark(series, reference, fmt.Sprintf("%s < 1 x %s", series, reference), 1, func(x float64) bool { return x < 1 })
	} else {
		t.mark(series, reference, fmt.Sprintf("%s > 1 x %s", series, reference), 1, func(x float64) bool { return x > 1 })
	}
}

func (t *Table) mark(series, reference, text string, limit float64, met func(float64) bool) {
	for _, r := range t.Rows {
		if v, ref := t.sample(r.Name, series), t.sample(r.Name, reference); v != nil && ref != nil {
			x := ratio(v, ref)
			r.Marks = append(r.Marks, Mark{Text: text, Value: x, Limit: limit, Met: met(x)})
		}
	}
}

// mark sets a mark by a value that must not be above the limit.
func (r *Row) mark(text string, value, limit float64) {
	r.Marks = append(r.Marks, Mark{Text: text, Value: value, Limit: limit, Met: value <= limit})
}

// failed gathers the errors of a part.
func (p *Part) failed() (errs []string) {
	if p.Error != "" {
		errs = append(errs, p.Error)
	}
	for _, t := range p.Tables {
		for _, r := range t.Rows {
			for _, e := range r.Errors {
				errs = append(errs, fmt.Sprintf("%s, %s: %s", t.Title, r.Name, e))
			}
		}
	}
	return errs
}
