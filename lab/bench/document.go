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

// schema is the format of the document; other formats are refused.
const schema = "godat-bench/1"

// document has all values that were measured: a part keeps those of its last whole run.
type document struct {
	Schema string     `json:"schema"`
	Parts  []*section `json:"parts"`
}

// section is what one run of a part has measured.
type section struct {
	Name      string            `json:"part"`
	Title     string            `json:"title"`
	Started   time.Time         `json:"started"`
	Seconds   float64           `json:"seconds"`
	Commit    string            `json:"commit"` // of the tree; ends in -dirty if files had been changed
	LoadStart string            `json:"load_average_at_start"`
	LoadEnd   string            `json:"load_average_at_end"`
	Ended     string            `json:"ended"` // why: the figures are decided, or the time was over
	Short     bool              `json:"short,omitempty"`
	Unjudged  bool              `json:"unjudged,omitempty"` // an emulated processor says nothing about ours
	Machine   map[string]string `json:"machine"`
	Errors    []string          `json:"errors,omitempty"`
	Tables    []*table          `json:"tables"`
}

// table is a set of rows that are measured in the same way.
type table struct {
	Title  string   `json:"title"`
	Note   string   `json:"note,omitempty"`
	Unit   string   `json:"unit"`   // of all values: ns, ops/s, bytes/s, or a noun
	Series []string `json:"series"` // the columns; ratios are to the first
	Rows   []*row   `json:"rows"`
}

// row has what the series gave for one setting, round by round.
type row struct {
	Name     string               `json:"name"`
	Size     int                  `json:"size_bytes,omitempty"` // of a message
	Commands map[string]string    `json:"commands"`             // by series, as in the first round
	Rounds   []map[string]float64 `json:"rounds"`               // by series; one that failed is missing
	Figures  []figure             `json:"figures,omitempty"`
	Errors   []string             `json:"errors,omitempty"`
}

// figure is a goal for the ratio of a series to another.
type figure struct {
	Series string  `json:"series"`
	Peer   string  `json:"peer"`
	AtMost bool    `json:"at_most"` // else at least
	Goal   float64 `json:"goal"`
}

// table returns a new table.
func (s *section) table(title, note, unit string, series ...string) *table {
	t := &table{Title: title, Note: note, Unit: unit, Series: series}
	s.Tables = append(s.Tables, t)
	return t
}

// row returns a new row.
func (t *table) row(name string, size int, figures ...figure) *row {
	r := &row{Name: name, Size: size, Commands: map[string]string{}, Figures: figures}
	t.Rows = append(t.Rows, r)
	return r
}

// values returns what a series gave, in the order of the rounds.
func (r *row) values(series string) (all []float64) {
	for _, round := range r.Rounds {
		if v, ok := round[series]; ok {
			all = append(all, v)
		}
	}
	return all
}

// ratios returns the ratios of the rounds that have both series: both values of a round are
// measured one soon after the other, so that a machine that slows down does so for both.
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

// fail notes an error of a series, once.
func (r *row) fail(series string, err error) {
	if text := fmt.Sprintf("%s: %v", series, err); !slices.Contains(r.Errors, text) {
		r.Errors = append(r.Errors, text)
	}
}

// failed returns what could not be measured in any round.
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

// section returns that of a part, nil if it has never been measured.
func (d *document) section(name string) *section {
	for _, s := range d.Parts {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// put replaces the section of a part. The others stay as they are, with their dates and trees.
func (d *document) put(s *section) {
	order := func(name string) int {
		return slices.IndexFunc(parts(), func(p part) bool { return p.name == name })
	}
	d.Parts = slices.DeleteFunc(d.Parts, func(old *section) bool { return old.Name == s.Name })
	d.Parts = append(d.Parts, s)
	slices.SortStableFunc(d.Parts, func(a, b *section) int { return order(a.Name) - order(b.Name) })
}

// readDocument reads a file; an empty document if there is none.
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

// write replaces the file in one step: a run that is interrupted leaves the old one or the new one.
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
