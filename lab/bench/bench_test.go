package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// always returns a series with the same value in each round.
func always(name string, value float64) series {
	return series{name, func() (float64, string, error) { return value, "do " + name, nil }}
}

func newSetting(name string, figures []figure, all ...series) *setting {
	t := &table{Title: "T", Unit: "ns"}
	for _, s := range all {
		t.Series = append(t.Series, s.name)
	}
	return &setting{row: t.row(name, 64, figures...), series: all}
}

// A row is measured until its figures are decided with the confidence enough, and no longer. A row
// without figures is measured a few times. A row that cannot be decided is measured until the time
// is over.
func TestRounds(t *testing.T) {
	n := 0
	wobbles := series{"b", func() (float64, string, error) { n++; return 1 + float64(n%3-1)/10, "do b", nil }}
	clear := newSetting("clear", []figure{{"b", "a", true, 1.2}}, always("a", 1), wobbles)
	plain := newSetting("plain", nil, always("a", 1))
	flips := series{"b", func() (float64, string, error) { n++; return 0.9 + float64(n%2)/5, "do b", nil }}
	straddles := newSetting("straddles", []figure{{"b", "a", true, 1}}, always("a", 1), flips)
	b := &bench{limit: time.Hour}
	assert.Equal(t, b.rounds([]*setting{clear, plain}), "all figures are decided")
	assert.Equal(t, len(clear.Rounds), 8)
	assert.Equal(t, len(plain.Rounds), fewest)
	assert.Equal(t, clear.Commands["b"], "do b")

	b.rounds([]*setting{straddles})
	assert.Equal(t, len(straddles.Rounds), most)
	b.limit = time.Nanosecond
	again := newSetting("straddles", straddles.Figures, straddles.series...)
	assert.Equal(t, b.rounds([]*setting{again, plain}), "the time was over")
	assert.Equal(t, len(again.Rounds), 1)
	assert.Equal(t, len(plain.Rounds), fewest) // it was settled
	b.most, b.limit = 3, time.Hour
	again = newSetting("straddles", straddles.Figures, straddles.series...)
	assert.Equal(t, b.rounds([]*setting{again}), "3 rounds")
	assert.Equal(t, len(again.Rounds), 3)
}

// The series take turns to be the first of a round.
func TestRoundsTurn(t *testing.T) {
	var order string
	note := func(name string) series {
		return series{name, func() (float64, string, error) { order += name; return 1, "", nil }}
	}
	b := &bench{limit: time.Hour, most: 3}
	b.rounds([]*setting{newSetting("r", []figure{{"a", "b", true, 1}}, note("a"), note("b"), note("c"))})
	assert.Equal(t, order, "abccbaabc")
}

// If a program fails now and then, its value is missing in that round. A program that never gives a
// value is left out with its figures, and reported. The others continue.
func TestRoundsWithFailures(t *testing.T) {
	n := 0
	sometimes := series{"b", func() (float64, string, error) {
		if n++; n%3 == 1 {
			return 0, "", errors.New("hung")
		}
		return 1, "do b", nil
	}}
	calls := 0
	never := series{"c", func() (float64, string, error) { calls++; return 0, "", errors.New("no device") }}
	s := newSetting("r", []figure{{"b", "a", true, 1.5}, {"c", "a", true, 1.5}}, always("a", 1), sometimes, never)
	b := &bench{limit: time.Hour}
	assert.Equal(t, b.rounds([]*setting{s}), "all figures are decided")
	assert.Equal(t, calls, tries)
	assert.Equal(t, len(s.ratios("b", "a")), 8)
	assert.Assert(t, len(s.Rounds) > 8)
	x := &section{Tables: []*table{{Title: "T", Series: []string{"a", "b", "c"}, Rows: []*row{s.row}}}}
	assert.Equal(t, len(x.failed()), 1)
	assert.Assert(t, strings.HasPrefix(x.failed()[0], "T, r, c: no value"), x.failed()[0])
	rows := figureRows(x)
	assert.Equal(t, rows[0][6], met)
	assert.Equal(t, rows[1][6], undecided)

	// A ratio needs the values of both series in a round.
	r := row{Rounds: []map[string]float64{{"a": 2, "b": 4}, {"a": 5}, {"b": 7}, {"a": 4, "b": 4}}}
	assert.DeepEqual(t, r.ratios("b", "a"), []float64{2, 1})
}

// A run of some parts leaves the others as they were, with their dates and commits, even if the run
// is interrupted. A part that fails is reported, together with the values that it has measured. A
// part that cannot begin does not replace earlier values.
func TestRunOfSomeParts(t *testing.T) {
	dir := t.TempDir()
	b := &bench{json: filepath.Join(dir, "sub", "performance.json"), pages: dir, machine: host, most: 1}
	old := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	b.doc = &document{Schema: schema, Parts: []*section{
		{Name: partLoop, Title: "Loop", Started: old, Commit: "abc1", Tables: []*table{}},
		{Name: partTCP, Title: "TCP", Started: old, Commit: "abc2", Tables: []*table{{Title: "T"}}},
		{Name: partDevice, Title: "Device", Started: old, Commit: "abc3", Tables: []*table{{Title: "T"}}},
	}}
	seen := 0
	failing := part{partTCP, "TCP anew", false, 1, func(b *bench, s *section) error {
		set := newSetting("row", nil, always("a", 5))
		x := s.table("T", "", "ns", "a")
		x.Rows = append(x.Rows, set.row)
		s.Ended = b.rounds([]*setting{set})
		return errors.New("it ended badly")
	}}
	nothing := part{partDevice, "Device anew", false, 1, func(*bench, *section) error {
		d, err := readDocument(b.json) // what an interrupted run would leave
		assert.NilError(t, err)
		assert.Equal(t, d.section(partTCP).Title, "TCP anew")
		seen++
		panic("oh")
	}}
	err := b.all([]part{failing, nothing}, time.Minute)
	assert.ErrorContains(t, err, "TCP anew: it ended badly")
	assert.ErrorContains(t, err, "Device anew: panic: oh")
	assert.Equal(t, seen, 1)
	d, err := readDocument(b.json)
	assert.NilError(t, err)
	assert.Equal(t, len(d.Parts), 3)
	for i, name := range []string{partLoop, partTCP, partDevice} {
		assert.Equal(t, d.Parts[i].Name, name)
		assert.Equal(t, d.Parts[i].Started.Equal(old), name != partTCP, name)
	}
	assert.Equal(t, d.section(partLoop).Commit, "abc1")
	assert.DeepEqual(t, d.section(partTCP).Tables[0].Rows[0].values("a"), []float64{5})
	text, err := os.ReadFile(filepath.Join(dir, pageFile))
	assert.NilError(t, err)
	for _, want := range []string{"| loop | 2026-01-02 03:04 UTC | abc1 |", "| device | 2026-01-02 03:04 UTC | abc3 |",
		"1 rounds (**not all could be measured**)", "The part `pair` has not been measured."} {
		assert.Assert(t, strings.Contains(string(text), want), "%q is not in\n%s", want, text)
	}

	// The pages can be written again.
	again := filepath.Join(dir, "again")
	assert.NilError(t, run([]string{"-render", "-json", b.json, "-pages", again}))
	rewritten, err := os.ReadFile(filepath.Join(again, pageFile))
	assert.NilError(t, err)
	assert.Equal(t, string(rewritten), string(text))
}

// A part that ends early leaves its time to the others.
func TestShares(t *testing.T) {
	b := &bench{doc: &document{}, json: filepath.Join(t.TempDir(), "x.json"), machine: host}
	var limits []time.Duration
	p := part{"x", "X", false, 1, func(b *bench, _ *section) error { limits = append(limits, b.limit); return nil }}
	heavy := p
	heavy.weight = 2
	assert.NilError(t, b.all([]part{p, heavy, p}, time.Hour))
	for i, want := range []time.Duration{15 * time.Minute, 40 * time.Minute, time.Hour} {
		assert.Assert(t, limits[i] <= want && limits[i] > want-time.Minute, "%v", limits)
	}
}

func TestChoose(t *testing.T) {
	names := func(todo []part) (all string) {
		for _, p := range todo {
			all += p.name + " "
		}
		return all
	}
	todo, err := choose(nil, false)
	assert.NilError(t, err)
	assert.Equal(t, names(todo), "loop pair tcp device ")
	todo, err = choose([]string{"nic", "tcp"}, false)
	assert.NilError(t, err)
	assert.Equal(t, names(todo), "tcp nic ")
	_, err = choose([]string{"loops"}, false)
	assert.ErrorContains(t, err, `no part "loops" (loop, pair, tcp, device, provider, nic)`)
}

func TestShort(t *testing.T) {
	for want, v := range map[string]float64{
		"12346": 12345.6, "123.4": 123.44, "12.35": 12.349, "0.1": 0.1, "-3.5": -3.5, "0": 0, "1000": 999.99,
		"100": 100, "1200": 1200,
	} {
		assert.Equal(t, short(v), want)
	}
}

// The page has at most 40 figures, and five sentences.
func TestPageInTheTree(t *testing.T) {
	d, err := readDocument("../../docs/performance.json")
	assert.NilError(t, err)
	figures := 0
	for _, s := range d.Parts {
		figures += len(figureRows(s))
	}
	assert.Assert(t, figures > 20 && figures <= 40, "%d figures", figures)
	assert.Equal(t, len(sentences(d)), 5)
	for name, want := range map[string]string{pageFile: page(d), detailsFile: details(d)} {
		text, err := os.ReadFile(filepath.Join("../../docs", name))
		assert.NilError(t, err)
		assert.Assert(t, string(text) == want, "%s is not that of performance.json: out/bench/bench -render", name)
	}
}

// Any number of endpoints can be connected.
func TestConnectMany(t *testing.T) {
	for _, n := range []int{1, 3, 100} {
		took, err := connectMany("mem0", n)
		assert.NilError(t, err)
		assert.Assert(t, took > 0)
	}
	_, err := connectMany("nosuch", 1)
	assert.ErrorIs(t, err, udat.ErrProviderNotFound)
}
