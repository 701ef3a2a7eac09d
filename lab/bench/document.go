package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// schema is the format of the document. readDocument refuses other formats.
const schema = "godat-bench/1"

// document contains all measured values. For each part it keeps the values of the last complete
// run.
type document struct {
	Schema string     `json:"schema"`
	Parts  []*section `json:"parts"`
}

// section contains what one run of a part has measured.
type section struct {
	Name      string            `json:"part"`
	Title     string            `json:"title"`
	Started   time.Time         `json:"started"`
	Seconds   float64           `json:"seconds"`
	Commit    string            `json:"commit"` // commit of the tree; ends in -dirty if files had been changed
	LoadStart string            `json:"load_average_at_start"`
	LoadEnd   string            `json:"load_average_at_end"`
	Ended     string            `json:"ended"` // why the run ended
	Short     bool              `json:"short,omitempty"`
	Unjudged  bool              `json:"unjudged,omitempty"` // measured on an emulated processor: no verdicts
	Machine   map[string]string `json:"machine"`
	Errors    []string          `json:"errors,omitempty"`
	Tables    []*table          `json:"tables"`
}

// table is a set of rows that are measured in the same way.
type table struct {
	Title  string   `json:"title"`
	Note   string   `json:"note,omitempty"`
	Unit   string   `json:"unit"`   // unit of all values: ns, ops/s, bytes/s, or a noun
	Series []string `json:"series"` // names of the columns; ratios are to the first column
	Rows   []*row   `json:"rows"`
}

// row contains the values of all series for one setting, by round.
type row struct {
	Name     string               `json:"name"`
	Size     int                  `json:"size_bytes,omitempty"` // size of a message
	Commands map[string]string    `json:"commands"`             // command of each series, as in the first round
	Rounds   []map[string]float64 `json:"rounds"`               // value of each series; a series that failed is missing
	Figures  []figure             `json:"figures,omitempty"`
	Errors   []string             `json:"errors,omitempty"`
}

// figure is the ratio of a series to another one, and the goal for this ratio.
type figure struct {
	Series string  `json:"series"`
	Peer   string  `json:"peer"`
	AtMost bool    `json:"at_most"` // the ratio must be at most Goal; otherwise at least Goal
	Goal   float64 `json:"goal"`
}

// table adds a new table to the section and returns it.
func (s *section) table(title, note, unit string, series ...string) *table {
	t := &table{Title: title, Note: note, Unit: unit, Series: series}
	s.Tables = append(s.Tables, t)
	return t
}

// row adds a new row to the table and returns it.
func (t *table) row(name string, size int, figures ...figure) *row {
	r := &row{Name: name, Size: size, Commands: map[string]string{}, Figures: figures}
	t.Rows = append(t.Rows, r)
	return r
}

// values returns the values of a series, in the order of the rounds.
func (r *row) values(series string) (all []float64) {
	for _, round := range r.Rounds {
		if v, ok := round[series]; ok {
			all = append(all, v)
		}
	}
	return all
}

// ratios returns the ratio of two series for each round that has a value of both. The two values of
// a round are measured one shortly after the other. So a change of the machine's speed affects
// both.
func (r *row) ratios(series, peer string) (all []float64) {
	for _, round := range r.Rounds {
		v, ok := round[series]
		p, also := round[peer]
		if ok && also && p != 0 {
			all = append(all, v/p)
		}
	}
	return all
}

// fail records an error of a series, unless the row already has the same error.
func (r *row) fail(series string, err error) {
	if text := fmt.Sprintf("%s: %v", series, err); !slices.Contains(r.Errors, text) {
		r.Errors = append(r.Errors, text)
	}
}

// failed describes the series that have no value in any round, and the errors of the section.
func (s *section) failed() []string {
	all := slices.Clone(s.Errors)
	for _, t := range s.Tables {
		for _, r := range t.Rows {
			for _, name := range t.Series {
				if len(r.values(name)) == 0 && len(r.Errors) > 0 {
					all = append(all, fmt.Sprintf("%s, %s, %s: no value (%s)", t.Title, r.Name, name, r.Errors[0]))
				}
			}
		}
	}
	return all
}

// section returns the section of a part, or nil if the part has never been measured.
func (d *document) section(name string) *section {
	for _, s := range d.Parts {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// put replaces the section of one part. The sections of other parts stay as they are, with their
// dates and commits.
func (d *document) put(s *section) {
	order := func(name string) int {
		return slices.IndexFunc(parts(), func(p part) bool { return p.name == name })
	}
	d.Parts = slices.DeleteFunc(d.Parts, func(old *section) bool { return old.Name == s.Name })
	d.Parts = append(d.Parts, s)
	slices.SortStableFunc(d.Parts, func(a, b *section) int { return order(a.Name) - order(b.Name) })
}

// readDocument reads a document from a file. If the file does not exist, it returns an empty
// document.
func readDocument(name string) (*document, error) {
	d := &document{Schema: schema}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(text, d)
	}
	if err == nil && d.Schema != schema {
		err = fmt.Errorf("schema %q, not %s", d.Schema, schema)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// write replaces the file in one step. If the run is interrupted, the file is either the old one or
// the new one.
func (d *document) write(name string) error {
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return replace(name, append(text, '\n'))
}

func replace(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
