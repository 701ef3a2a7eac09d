package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Stream writes a line of JSON for each event: the facts of both ends, the beginning of a run, an
// interval, the results of a run, and the end. Each has the time. After an error it writes nothing
// more.
type Stream struct {
	enc *json.Encoder
	err error
}

// NewStream returns a Stream that writes to w.
func NewStream(w io.Writer) *Stream { return &Stream{enc: json.NewEncoder(w)} }

// Err returns the first error of writing.
func (s *Stream) Err() error { return s.err }

func (s *Stream) write(r *record) {
	if r.Time = result.Now(); s.err == nil {
		s.err = s.enc.Encode(r)
	}
}

type record struct {
	Event      string             `json:"event"`
	Schema     string             `json:"schema,omitempty"`
	Client     *result.Facts      `json:"client,omitempty"`
	Server     *result.Facts      `json:"server,omitempty"`
	Case       *result.Case       `json:"settings,omitempty"`
	Repeat     int                `json:"repeat,omitempty"`
	Interval   *result.Interval   `json:"interval,omitempty"`
	Run        *result.Run        `json:"run,omitempty"`
	Summary    []result.Summary   `json:"summary,omitempty"`
	Incomplete *result.Incomplete `json:"incomplete,omitempty"`
	Time       time.Time          `json:"time"`
}

// Begin writes the facts of both ends.
func (s *Stream) Begin(client, server *result.Facts) {
	s.write(&record{Event: "begin", Schema: result.Schema, Client: client, Server: server})
}

// Case writes the settings of a run that begins.
func (s *Stream) Case(c *result.Case, repeat int) {
	s.write(&record{Event: "case", Case: c, Repeat: repeat})
}

// Interval writes an interval of the current run.
func (s *Stream) Interval(iv *result.Interval) { s.write(&record{Event: "interval", Interval: iv}) }

// Run writes a finished run.
func (s *Stream) Run(r *result.Run) { s.write(&record{Event: "run", Run: r}) }

// End writes the summaries of repeated cases, and whether the plan is incomplete.
func (s *Stream) End(d *result.Document) {
	s.write(&record{Event: "end", Summary: d.Summary, Incomplete: d.Incomplete})
}
