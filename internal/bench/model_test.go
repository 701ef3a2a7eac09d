package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

func table(unit string) *Table {
	t := &Table{Title: "Latency", Unit: unit, Series: []string{"perftest", "cverbs", "udat"}, How: []string{"ib_x -s $SIZE"}}
	for _, v := range []float64{3000, 1000, 2000} {
		t.add("2 B", "perftest", "ib_x -s 2", v)
	}
	t.add("2 B", "cverbs", "datperf", 2090)
	t.add("2 B", "udat", "datperf", 2110)
	return t
}

func TestSampleKeepsAllRepeats(t *testing.T) {
	s := table("ns").Rows[0].Cells[0]
	assert.DeepEqual(t, s, &Sample{"perftest", "ib_x -s 2", 2000, 1000, 3000, []float64{3000, 1000, 2000}})
	assert.Equal(t, median([]float64{4, 1, 3, 2}), 2.5)
}

func TestMarks(t *testing.T) {
	x := table("ns")
	x.atMost("cverbs", 1.05, "perftest")
	x.atMost("udat", 1.05, "perftest")
	x.ahead("udat", "perftest", true)
	x.ahead("udat", "perftest", false)
	x.atLeast("cverbs", 1.05, "perftest")
	var met []bool
	for _, m := range x.Rows[0].Marks {
		met = append(met, m.Met)
	}
	assert.DeepEqual(t, met, []bool{true, false, false, true, false})
	x.atMost("udat", 1, "nobody") // a series that is not there is not judged
	assert.Equal(t, len(x.Rows[0].Marks), 5)
}

func TestMarkdown(t *testing.T) {
	x := table("ns")
	x.atMost("cverbs", 1.05, "perftest")
	x.atMost("udat", 1.05, "perftest")
	x.fail("4 KiB", "perftest", errors.New("no | route"))
	d := &Document{Schema: Schema, Command: "make bench", Started: time.Unix(0, 0).UTC(), Rounds: 3, Environment: []Fact{{"Go", "go1"}},
		Parts: []*Part{{Name: "compare", Title: "Beside others", LoadStart: "0.1 0.2 0.3", LoadEnd: "1 2 3", Tables: []*Table{x}}}}
	text := markdown(d)
	for _, want := range []string{
		"**1 of 2 marks met.**",
		"| Go | go1 |",
		"| Beside others (**failed**) | 0 | 0.1 0.2 0.3 | 1 2 3 | 1 of 2 |",
		"ib_x -s $SIZE",
		"| us | perftest | cverbs | udat | marks |\n|---|---:|---:|---:|---|\n",
		"| 2 B | 2 ±50% | 2.09, 1.04x | 2.11, 1.05x | met: cverbs <= 1.05 x perftest (1.04)<br>**missed**: udat <= 1.05 x perftest (1.05) |",
		`**Failed**, 4 KiB: perftest: no \| route`,
	} {
		assert.Assert(t, strings.Contains(text, want), "%q is not in\n%s", want, text)
	}
	assert.DeepEqual(t, d.Parts[0].failed(), []string{"Latency, 4 KiB: perftest: no | route"})
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"12346": 12345.6, "123.4": 123.44, "12.35": 12.349, "0.1": 0.1, "-3.5": -3.5, "0": 0, "1000": 999.99} {
		assert.Equal(t, number(v), want)
	}
}

func TestRenderAgain(t *testing.T) {
	dir := t.TempDir()
	d := &Document{Schema: Schema, Parts: []*Part{{Title: "P", Tables: []*Table{table("bytes/s")}}}}
	file := filepath.Join(dir, "p.json")
	assert.NilError(t, writeJSON(file, d))
	assert.NilError(t, renderAgain(file, dir))
	text, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), markdown(d))
	d.Schema = "other"
	assert.NilError(t, writeJSON(file, d))
	assert.ErrorContains(t, renderAgain(file, dir), "other")
}

func TestHowNamesWhatVaries(t *testing.T) {
	line := func(s size) []string { return []string{"/x/ib_send_bw", "-s", s.name, "-n", "5"} }
	assert.Equal(t, how(line, "10.0.0.1"), "ib_send_bw -s $SIZE -n 5 10.0.0.1")
}

// A program that fails, or does not end, says so with its last words.
func TestProcesses(t *testing.T) {
	p, err := start(time.Minute, nil, "sh", "-c", "echo figures; echo broken >&2; exit 3")
	assert.NilError(t, err)
	out, err := p.wait()
	assert.Equal(t, out, "figures\n")
	assert.ErrorContains(t, err, "broken")
	assert.ErrorContains(t, p.until(time.Minute, func() bool { return false }), "ended before it was ready")

	p, err = start(50*time.Millisecond, nil, "sleep", "60")
	assert.NilError(t, err)
	_, err = p.wait()
	assert.ErrorContains(t, err, "no end after 50ms")
	_, err = start(time.Minute, nil, "/no/such/program")
	assert.Assert(t, err != nil)
}

// A part that fails is in the document with its error, beside what it had measured.
func TestPartThatFails(t *testing.T) {
	dir := t.TempDir()
	b := &bench{doc: &Document{Schema: Schema}, json: filepath.Join(dir, "performance.json")}
	b.part(part{name: "x", title: "X", run: func(_ *bench, p *Part) error {
		p.Tables = append(p.Tables, table("ns"))
		return errors.New("no device")
	}})
	b.part(part{name: "y", title: "Y", run: func(*bench, *Part) error { panic("oh") }})
	err := b.finish(dir)
	assert.ErrorContains(t, err, "X: no device")
	assert.ErrorContains(t, err, "Y: panic: oh")
	data, err := os.ReadFile(filepath.Join(dir, "performance.json"))
	assert.NilError(t, err)
	var d Document
	assert.NilError(t, json.Unmarshal(data, &d))
	assert.Equal(t, d.Parts[0].Error, "no device")
	assert.Equal(t, len(d.Parts[0].Tables[0].Rows), 1)
}

// Every endpoint count gives figures, on the fabric inside the process.
func TestMeasureScale(t *testing.T) {
	for _, n := range []int{1, 3, 100} {
		s, err := measureScale("mem0", n, 500)
		assert.NilError(t, err)
		assert.Assert(t, s.perEvent > 0 && s.connects > 0, "%d endpoints: %+v", n, s)
	}
	_, err := measureScale("nosuch", 1, 10)
	assert.ErrorIs(t, err, udat.ErrProviderNotFound)
}

// A machine that becomes slower between two rounds does not change what stands beside it.
func TestRatioIsOfRounds(t *testing.T) {
	a, b := &Sample{Repeats: []float64{10, 44, 12}, Median: 12}, &Sample{Repeats: []float64{5, 20, 12}, Median: 12}
	assert.Equal(t, ratio(a, b), 2.0)
	a.Repeats = a.Repeats[:2] // one has failed once
	assert.Equal(t, ratio(a, b), 1.0)
}
