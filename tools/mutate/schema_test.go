package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const small = `package p

var table = map[int][]string{0: {"a"}, 1: {}}

type t struct{ n int }

func (x *t) add(first int, more ...int) {
	x.n += first
	for _, m := range more {
		x.n += m
	}
}

func halves(n int) (half int, ok bool) {
	if n%2 == 0 {
		half = n / 2
		ok = true
	}
	return
}

func spin(n int) {
	for i := 0; i < n; i++ {
	}
}
`

const smallTest = `package p

import "testing"

func TestAdd(t *testing.T) {
	spin(3)
	x := new(tt)
	if x.add(1, 2, 3); x.n != 6 {
		t.Fatal(x.n)
	}
}

type tt = t

func TestHalves(t *testing.T) {
	if h, ok := halves(4); h != 2 || !ok || len(table[0]) != 1 {
		t.Fatal(h, ok)
	}
}
`

// TestBench tries the mutants of a package of which it is known what becomes of them.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module p\n\ngo 1.26\n", "p.go": small, "p_test.go": smallTest} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	t.Setenv("GOWORK", "off")
	mutants, err := Mutants("p.go", []byte(small), nil)
	assert.NilError(t, err)
	// The package's name is the directory's last part, as udat's is.
	assert.NilError(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), "p")))
	b, err := newBench(t.Context(), options{dir: filepath.Join(filepath.Dir(dir), "p"), skip: "none", timeout: 0}, mutants)
	assert.NilError(t, err)
	defer b.close()
	b.timeout = 2 * time.Second
	want := map[string]verdict{
		"add: += => -=":                  killed,
		"add: x.n += first => (nothing)": killed,
		"halves: ok = true => (nothing)": killed,
		"halves: == => !=":               killed,
		"halves: 0 => 1":                 killed,
		"add: x.n += m => (nothing)":     stillborn,
		`table: {"a"} => {}`:             killed,
		"spin: < => <=":                  survived,
		"spin: i < n => false":           survived,
		"spin: ++ => --":                 hung,
	}
	for i, m := range mutants {
		what := m.Func + ": " + m.What()
		v, by := b.try(i + 1)
		t.Log(what, v, by)
		if w, ok := want[what]; ok {
			assert.Equal(t, v, w, "%s %s", what, by)
			delete(want, what)
		}
	}
	assert.Equal(t, len(want), 0, "%v", want)
}
