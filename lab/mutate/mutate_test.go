package main

import (
	"go/importer"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const sample = `package p

type cookie uint64

var table = map[int]row{
	1: {a, b},
	2: {},
}

type pair struct{ first, second cookie }

func f(x, y int, ok bool) error {
	if x < y && !ok {
		return fail("x")
	}
	g(x)
	m.Lock()
	for i := range x {
		g(i)
	}
	switch {
	case x == 3:
		x += 2
	}
	switch x {
	case 4, 5:
	}
	return nil
}

type limits struct{ maxRecv, maxSend, other int }

func k(l *limits, xs []int) error {
	for i := range xs {
		if xs[i] > l.maxRecv {
			l.other = xs[i]
			l.maxSend++
		}
	}
	return errors.Join(err, m.Close())
}

func g(x int) int { return max(x, 1) }

func h(c cookie) pair { return pair{first: c, second: 2} }
`

// sourceOf returns a source of one file. Names that the file does not define have no type.
func sourceOf(t *testing.T, file, text string) *source {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	assert.NilError(t, err)
	s := &source{text: []byte(text), fset: fset, parsed: parsed}
	_ = check("p", fset, []*source{s}, importer.Default())
	return s
}

func TestMutants(t *testing.T) {
	got := map[string]bool{}
	for _, m := range Mutants("p.go", sourceOf(t, "p.go", sample)) {
		what := m.Func + ": " + m.What()
		assert.Assert(t, !got[what], "twice: %s", what)
		got[what] = true
		mutated := m.Apply([]byte(sample))
		assert.Assert(t, string(mutated) != sample)
		_, err := parser.ParseFile(token.NewFileSet(), "p.go", mutated, 0)
		assert.NilError(t, err, "%s\n%s", what, mutated)
	}
	for _, want := range []string{
		"table: {a, b} => {}", "table: {} => {a, b}", "table: 1: {a, b}, => (nothing)",
		"f: < => <=", "f: x < y && !ok => x < y", "f: x < y && !ok => !ok", "f: ! => (nothing)",
		"f: (nothing) => ; break", "f: 4, => (nothing)", "f: , 5 => (nothing)",
		`f: fail("x") => nil`, "f: g(x) => (nothing)", "f: == => !=", "f: += => -=", "f: 3 => 2", "f: 3 => 4",
		"k: maxRecv => maxSend", "k: maxSend => maxRecv", "k: xs[i] > l.maxRecv => i == 0 && (xs[i] > l.maxRecv)",
		"k: = => +=", "k: l.maxSend++ => l.maxSend++; l.maxSend++", "k: , m.Close() => (nothing)",
		"g: max => min", "g: 1 => 2",
		"h: first: c, => (nothing)", "h: , second: 2 => (nothing)", "h: c => cookie(uint32(c))",
	} {
		assert.Assert(t, got[want], "%s is not among %v", want, got)
	}
	assert.Assert(t, !got["f: m.Lock() => (nothing)"])
}

// TestConstants: constants that depend on iota are not mutated. The mutants of other constants
// need their own programs.
func TestConstants(t *testing.T) {
	const text = "package p\n\nconst (\n\ta = iota + 1\n\tb\n)\n\nconst limit = 4 * unit\n\nvar start = f(3)\n"
	var got []string
	for _, m := range Mutants("p.go", sourceOf(t, "p.go", text)) {
		assert.Assert(t, m.Alone)
		got = append(got, m.Func+": "+m.What())
	}
	assert.DeepEqual(t, got, []string{"limit: 4 => 5", "limit: 4 => 3", "limit: * => +", "start: 3 => 4", "start: 3 => 2"})
}

// TestDiff: a mutant's diff is unique in its function. It depends neither on the code before the
// function nor on comments.
func TestDiff(t *testing.T) {
	const text = `package p

func (x *t) f(a, b int) {
	if a > 0 {
		x.n = 0
	}
	if b > 0 {
		x.n = 0
	}
}
`
	before := map[string]bool{}
	for _, m := range Mutants("p.go", sourceOf(t, "p.go", text)) {
		assert.Equal(t, m.Func, "t.f")
		assert.Assert(t, !before[m.Diff], m.Diff)
		before[m.Diff] = true
	}
	for _, want := range []string{
		"if a > [-0-]{+1+} {", "if b > 0 { x.n = [-0-]{+1+}", "if b > 0 { [-x.n = 0-]",
	} {
		assert.Assert(t, before[want], "%s is not among %v", want, before)
	}
	later := strings.Replace(text, "func", "func (y *u) f(a int) int { return a - 0 }\n\nfunc", 1)
	for _, m := range Mutants("p.go", sourceOf(t, "p.go", later)) {
		assert.Assert(t, m.Func == "u.f" || before[m.Diff], m.Diff)
	}
	commented := strings.ReplaceAll(text, "x.n = 0", "x.n = 0 // as at first\n\t\t// and at last")
	for _, m := range Mutants("p.go", sourceOf(t, "p.go", commented)) {
		assert.Assert(t, before[m.Diff], m.Diff)
	}
}

// TestC: cMutants returns the expected mutants of a C file.
func TestC(t *testing.T) {
	const text = `#include "x.h" // 1 < 2
struct s {
	int a;
};

static int f(struct s *p, int n)
{
	int err = 0; // n == 3

	if (n < 4 && p->a) {
		err = g(p, "a == b");
		h(p);
	}
	pthread_mutex_lock(&p->lock);
	return err;
}
`
	got := map[string]bool{}
	for _, m := range Mutants("x.c", &source{text: []byte(text)}) {
		assert.Assert(t, m.Alone && m.Func == "f", m)
		got[m.Diff] = true
	}
	assert.DeepEqual(t, got, map[string]bool{
		"int err = [-0-]{+0 + 1+}; // n == 3": true, "if (n [-<-]{+<=+} 4 && p->a) {": true,
		"if (n < [-4-]{+4 + 1+} && p->a) {": true, "if (n < 4 [-&&-]{+||+} p->a) {": true,
		"if ([-n < 4 && p->a-]{+!(n < 4 && p->a)+}) {": true, `[-err = g(p, "a == b");-]{+;+}`: true, "[-h(p);-]{+;+}": true,
	})
}

// TestSample: the sample contains the holes, about its share of the other mutants, and at least
// two of each file. An edit of a function does not change the sample of other functions.
func TestSample(t *testing.T) {
	list := []Mutant{{Hole: "x", File: "a.go"}, {File: "b.go", Nth: 1}, {File: "b.go", Nth: 2}, {File: "b.go", Nth: 3}}
	for i := range 10000 {
		m := Mutant{File: "a.go", Func: "f", Old: "1", New: "2", Nth: i + 1, Line: i}
		list = append(list, m)
		moved := m
		moved.Line, moved.Start, moved.End = m.Line+100, m.Start+1000, m.End+1000
		assert.Equal(t, moved.hash(1), m.hash(1))
	}
	in := map[string]int{}
	for _, m := range sampled(slices.Clone(list), 1, 20) {
		in[m.File]++
	}
	assert.Assert(t, in["a.go"] > 150 && in["a.go"] < 250, in)
	assert.Assert(t, in["b.go"] >= 2, in)
	in = map[string]int{}
	for _, m := range sampled(list, 1, 0) {
		in[m.File]++
	}
	assert.DeepEqual(t, in, map[string]int{"a.go": 3, "b.go": 2})
}

// TestHoles: the code of a line is found by its words, and must occur once.
func TestHoles(t *testing.T) {
	sources := map[string]*source{"p.go": sourceOf(t, "p.go", sample)}
	read := func(lines string) ([]Mutant, error) {
		path := filepath.Join(t.TempDir(), "holes.tsv")
		assert.NilError(t, os.WriteFile(path, []byte("# comment\n"+lines), 0o666))
		return readHoles(path, sources)
	}
	holes, err := read("p.go\tf\tfor i := range x { g(i)\tfor i := range x {\\n\tg is left out\n")
	assert.NilError(t, err)
	assert.Equal(t, len(holes), 1)
	assert.Equal(t, holes[0].Old, "for i := range x {\n\t\tg(i)")
	assert.Equal(t, holes[0].New, "for i := range x {\n")
	assert.Equal(t, holes[0].What(), "hole: g is left out")
	assert.Equal(t, holes[0].Line, 18)
	_, err = read("p.go\tf\tx\ty\tambiguous\np.go\tf\tnowhere\ty\tstale\nq.go\tf\tx\ty\tno file\n")
	assert.ErrorContains(t, err, ":3: nowhere stands 0 times")
	assert.ErrorContains(t, err, ":2: x stands")
	assert.ErrorContains(t, err, ":4: no file q.go")
	_, err = read("p.go\tf\tx\n")
	assert.ErrorContains(t, err, "separated by tabs")
}

// TestTables: every line of holes.tsv and explained.tsv refers to existing code.
func TestTables(t *testing.T) {
	sources, err := load("../..", targets)
	assert.NilError(t, err)
	mutants, err := collect("holes.tsv", sources)
	assert.NilError(t, err)
	assert.Assert(t, len(mutants) > 15000, len(mutants))
	keys := map[key]Mutant{}
	for _, m := range mutants {
		other, twice := keys[m.key()]
		assert.Assert(t, !twice, "%v and %v", m, other)
		keys[m.key()] = m
	}
	all, sample := map[string]int{}, map[string]int{}
	for _, m := range mutants {
		all[m.File]++
	}
	for _, m := range sampled(slices.Clone(mutants), 1, 20) {
		sample[m.File]++
	}
	for file := range all {
		assert.Assert(t, sample[file] >= min(leastPerFile, all[file]), "%s has %d of its %d", file, sample[file], all[file])
	}
	e, err := readExplained("explained.tsv")
	assert.NilError(t, err)
	assert.Equal(t, len(e.unknown(mutants)), 0, "%v", e.unknown(mutants))

	path := filepath.Join(t.TempDir(), "bad.tsv")
	assert.NilError(t, os.WriteFile(path, []byte("file\tfunction\tchange\n"), 0o666))
	_, err = readExplained(path)
	assert.ErrorContains(t, err, "separated by tabs")
}

func TestProfile(t *testing.T) {
	r, err := parseProfile([]byte("mode: set\nm/p/a.go:10.2,12.3 2 1\nm/p/a.go:20.2,20.9 1 0\n"))
	assert.NilError(t, err)
	assert.Assert(t, r.covers("a.go", 11) && !r.covers("a.go", 13) && !r.covers("a.go", 20) && !r.covers("b.go", 11))
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	a, b := Mutant{File: "a.go", Func: "f", Diff: "x"}, Mutant{File: "a.go", Func: "f", Diff: "y"}
	l, err := openLog(path)
	assert.NilError(t, err)
	assert.NilError(t, l.add(a, survived, ""))
	assert.NilError(t, l.add(b, killed, "TestX"))
	l.close()
	l, err = openLog(path)
	assert.NilError(t, err)
	defer l.close()
	v, by, ok := l.known(b)
	assert.Assert(t, ok && v == killed && by == "TestX", "%v %v %v", v, by, ok)
	assert.Assert(t, !report([]Mutant{a, b}, explanations{}, l))
	assert.Assert(t, report([]Mutant{a, b}, explanations{a.key(): "equivalent"}, l))
	c := Mutant{File: "a.go", Func: "f", Diff: "z"}
	assert.NilError(t, l.add(c, stillborn, "undefined: time"))
	assert.Assert(t, report([]Mutant{c}, explanations{}, l))
	c.Hole = "a bug made by hand has to compile"
	assert.NilError(t, l.add(c, stillborn, "undefined: time"))
	assert.Assert(t, !report([]Mutant{c}, explanations{}, l))
	assert.Assert(t, !l.forget(b))
	assert.Assert(t, l.forget(a))
	_, _, ok = l.known(a)
	assert.Assert(t, !ok)
}
