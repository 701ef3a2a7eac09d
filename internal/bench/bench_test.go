package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

func TestHowNamesWhatVaries(t *testing.T) {
	line := func(s size) []string { return []string{"/x/ib_send_bw", "-s", s.name, "-n", "5"} }
	assert.Equal(t, how(line, "10.0.0.1"), "ib_send_bw -s $SIZE -n 5 10.0.0.1")
}

// A part that fails is in the document with its error, beside what it had measured, and the page
// can be written again from the document.
func TestPartThatFails(t *testing.T) {
	dir := t.TempDir()
	b := &bench{doc: &result.Document{Schema: result.Schema}, json: filepath.Join(dir, "sub", "performance.json")}
	b.part(part{name: "x", title: "X", run: func(_ *bench, s *result.Section) error {
		x := &result.Table{Title: "T", Unit: "ns", Series: []string{"a"}}
		x.Add("row", "a", "do a", 5)
		s.Tables = append(s.Tables, x)
		return errors.New("no device")
	}})
	b.part(part{name: "y", title: "Y", run: func(*bench, *result.Section) error { panic("oh") }})
	page := filepath.Join(dir, "page.md")
	err := b.finish(page)
	assert.ErrorContains(t, err, "X: no device")
	assert.ErrorContains(t, err, "Y: panic: oh")
	d, err := result.ReadFile(b.json)
	assert.NilError(t, err)
	assert.DeepEqual(t, d.Sections[0].Errors, []string{"no device"})
	assert.Equal(t, d.Sections[0].Tables[0].Sample("row", "a").Median, 5.0)
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(text), "## What the figures mean"))
	again := filepath.Join(dir, "again.md")
	assert.NilError(t, run([]string{"-render", b.json, "-page", again}))
	rewritten, err := os.ReadFile(again)
	assert.NilError(t, err)
	assert.Equal(t, string(rewritten), string(text))
}

// No round begins that would end beyond the limit; the first is always measured.
func TestRoundsEndInTime(t *testing.T) {
	b := &bench{rounds: 5}
	n := 0
	round := func() error { n++; time.Sleep(20 * time.Millisecond); return nil }
	assert.NilError(t, b.inRounds(time.Millisecond, round))
	assert.Equal(t, n, 1)
	assert.NilError(t, b.inRounds(time.Hour, round))
	assert.Equal(t, n, 6)
}

// Every number of endpoints connects.
func TestConnectMany(t *testing.T) {
	for _, n := range []int{1, 3, 100} {
		took, err := connectMany("mem0", n)
		assert.NilError(t, err)
		assert.Assert(t, took > 0)
	}
	_, err := connectMany("nosuch", 1)
	assert.ErrorIs(t, err, udat.ErrProviderNotFound)
}
