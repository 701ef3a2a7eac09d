package result

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Section is one part of a document that compares programs: tables of figures with all repeats.
type Section struct {
	Title     string   `json:"title"`
	Elapsed   Seconds  `json:"elapsed_s"`
	LoadStart string   `json:"load_average_at_start"`
	LoadEnd   string   `json:"load_average_at_end"`
	Errors    []string `json:"errors,omitempty"` // of the whole section
	Tables    []*Table `json:"tables"`
}

// Table is a set of rows that are measured in the same way.
type Table struct {
	Title  string   `json:"title"`
	Note   string   `json:"note,omitempty"`
	Unit   string   `json:"unit"`          // of all values: ns, ops/s, bytes/s, bytes, or a noun
	Series []string `json:"series"`        // the columns; ratios are to the first
	How    []string `json:"how,omitempty"` // the commands, with $NAMES for what varies from row to row
	Rows   []*Row   `json:"rows,omitempty"`
}

// Row is what the series gave for one setting.
type Row struct {
	Name   string             `json:"name"`
	Cells  map[string]*Sample `json:"cells"` // by series
	Marks  []Mark             `json:"marks,omitempty"`
	Errors []string           `json:"errors,omitempty"`
}

// Sample is a figure with all its repeats.
type Sample struct {
	Command string    `json:"command,omitempty"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Repeats []float64 `json:"repeats"`
}

// Mark is a limit for a figure: "udat <= 1.05 x perftest".
type Mark struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"` // a ratio where the text has an x, else in the table's unit
	Met   bool    `json:"met"`
}

// median returns the median of a sorted list.
func median(sorted []float64) float64 { return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2 }

// Ratio returns the median of the rounds' ratios: both figures of a round are measured one after
// the other, so that a machine whose speed drifts between rounds drifts for both.
func (s *Sample) Ratio(to *Sample) float64 {
	if len(s.Repeats) != len(to.Repeats) || len(s.Repeats) == 0 {
		return s.Median / to.Median
	}
	each := make([]float64, len(s.Repeats))
	for i := range each {
		each[i] = s.Repeats[i] / to.Repeats[i]
	}
	slices.Sort(each)
	return median(each)
}

// Add appends one repeat of a series to a row.
func (t *Table) Add(row, series, command string, value float64) {
	r := t.Row(row)
	c := r.Cells[series]
	if c == nil {
		c = &Sample{Command: command}
		r.Cells[series] = c
	}
	c.Repeats = append(c.Repeats, value)
	sorted := slices.Sorted(slices.Values(c.Repeats))
	c.Median, c.Min, c.Max = median(sorted), sorted[0], sorted[len(sorted)-1]
}

// Fail notes in a row that a series could not be measured.
func (t *Table) Fail(row, series string, err error) {
	r := t.Row(row)
	if text := fmt.Sprintf("%s: %v", series, err); !slices.Contains(r.Errors, text) {
		r.Errors = append(r.Errors, text)
	}
}

// Row returns the row of a name, a new one if there is none.
func (t *Table) Row(name string) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	t.Rows = append(t.Rows, &Row{Name: name, Cells: map[string]*Sample{}})
	return t.Rows[len(t.Rows)-1]
}

// Sample returns the figure of a series in a row; nil if it was not measured, or is 0.
func (t *Table) Sample(row, series string) *Sample {
	for _, r := range t.Rows {
		if c := r.Cells[series]; r.Name == row && c != nil && c.Median > 0 {
			return c
		}
	}
	return nil
}

// Mark judges a series in the rows that have it and the reference, or in those of the names, if any
// are given. relation is <=, < , >= or >: of the ratio to the reference, and the factor.
func (t *Table) Mark(series, relation string, factor float64, reference string, rows ...string) {
	for _, r := range t.Rows {
		v, ref := t.Sample(r.Name, series), t.Sample(r.Name, reference)
		if v == nil || ref == nil || len(rows) > 0 && !slices.Contains(rows, r.Name) {
			continue
		}
		x := v.Ratio(ref)
		met := map[string]bool{"<=": x <= factor, "<": x < factor, ">=": x >= factor, ">": x > factor}[relation]
		r.Marks = append(r.Marks, Mark{fmt.Sprintf("%s %s %.4g x %s", series, relation, factor, reference), x, met})
	}
}

// Limit adds a mark by a value that must not be above the limit.
func (r *Row) Limit(text string, value, limit float64) {
	r.Marks = append(r.Marks, Mark{text, value, value <= limit})
}

// Marks counts the marks that were met, and those that were missed.
func Marks(sections ...*Section) (met, missed int) {
	for _, s := range sections {
		for _, t := range s.Tables {
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

// validate refuses a section that cannot be printed.
func (s *Section) validate() error {
	if s == nil || slices.Contains(s.Tables, nil) {
		return errors.New("it or a table of it is null")
	}
	for _, t := range s.Tables {
		if len(t.Series) == 0 || slices.Contains(t.Rows, nil) {
			return fmt.Errorf("the table %q has no series, or a row that is null", t.Title)
		}
	}
	return nil
}

// Failed returns what could not be measured in any round.
func (s *Section) Failed() []string {
	all := slices.Clone(s.Errors)
	for _, t := range s.Tables {
		for _, r := range t.Rows {
			for _, e := range r.Errors {
				if series, _, _ := strings.Cut(e, ": "); r.Cells[series] == nil {
					all = append(all, fmt.Sprintf("%s, %s: %s", t.Title, r.Name, e))
				}
			}
		}
	}
	return all
}
