package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

const sample = `package p

var table = map[int]row{
	1: {a, b},
	2: {},
}

func f(x, y int, ok bool) error {
	if x < y && !ok {
		return fail("x")
	}
	g(x)
	m.Lock()
	switch {
	case x == 3:
		x++
	}
	return nil
}

func g(x int) int { return max(x, 1) }
`

func TestMutants(t *testing.T) {
	list, err := Mutants("p.go", []byte(sample), nil)
	assert.NilError(t, err)
	got := map[string]bool{}
	for _, m := range list {
		what := m.Func + ": " + m.What()
		assert.Assert(t, !got[what], "twice: %s", what)
		got[what] = true
		mutated := m.Apply([]byte(sample))
		assert.Assert(t, string(mutated) != sample)
		_, err := parser.ParseFile(token.NewFileSet(), "p.go", mutated, 0)
		assert.NilError(t, err, "%s\n%s", what, mutated)
	}
	for _, want := range []string{
		"table: {a, b} => {}", "table: {} => {a, b}",
		"f: < => <=", "f: && => ||", "f: ! => (nothing)", "f: x < y && !ok => !(x < y && !ok)",
		`f: fail("x") => nil`, "f: g(x) => (nothing)", "f: == => !=", "f: ++ => --", "f: 3 => 2", "f: 3 => 4",
		"g: max => min", "g: 1 => 2",
	} {
		assert.Assert(t, got[want], "%s is not among %v", want, got)
	}
	assert.Assert(t, !got["f: m.Lock() => (nothing)"])

	list, err = Mutants("p.go", []byte(sample), []string{"g"})
	assert.NilError(t, err)
	for _, m := range list {
		assert.Equal(t, m.Func, "g")
	}
}

// TestExplained: every explanation is of a mutant that there is.
func TestExplained(t *testing.T) {
	e, err := readExplained("explained.tsv")
	assert.NilError(t, err)
	assert.Equal(t, len(e.unknown("../../udat")), 0, "%v", e.unknown("../../udat"))

	path := filepath.Join(t.TempDir(), "bad.tsv")
	assert.NilError(t, os.WriteFile(path, []byte("file\tfunction\tchange\n"), 0o666))
	_, err = readExplained(path)
	assert.ErrorContains(t, err, "separated by tabs")
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	a, b := Mutant{File: "a.go", Func: "f", Old: "1", New: "2"}, Mutant{File: "a.go", Func: "f", Old: "1", New: "0"}
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
	assert.Assert(t, !l.forget(b))
	assert.Assert(t, l.forget(a))
	_, _, ok = l.known(a)
	assert.Assert(t, !ok)
}
