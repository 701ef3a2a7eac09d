package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

const small = `package p

var table = map[int][]string{0: {"a"}, 1: {}}

const thousand = 1000

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

type u struct{}

func (u) second(_ int, b uint64) uint64 { return b }

func spin(n int) {
	for i := 0; i < n; {
		i++
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
	if (u{}).second(1, 1<<40) != 1<<40 {
		t.Fatal("cut")
	}
	if h, ok := halves(4); h != 2 || !ok || len(table[0]) != 1 || thousand < 1000 {
		t.Fatal(h, ok)
	}
}
`

// TestBench tries the mutants of a package for which the verdicts are known.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module p\n\ngo 1.26\n", "p.go": small, "p_test.go": smallTest} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	t.Setenv("GOWORK", "off")
	src := sourceOf(t, "p.go", small)
	mutants := Mutants("p.go", src)
	o := options{root: dir, targets: []target{{dir: ".", tests: []place{{dir: "."}}}}, skip: "none"}
	b, err := newBench(t.Context(), o, map[string]*source{"p.go": src}, mutants)
	assert.NilError(t, err)
	defer b.close()
	b.suites[place{dir: "."}].timeout = 2 * time.Second
	want := map[string]verdict{
		"t.add: += => -=":                  killed,
		"t.add: x.n += first => (nothing)": killed,
		"halves: ok = true => (nothing)":   killed,
		"halves: == => !=":                 killed,
		"halves: 0 => 1":                   killed,
		"t.add: x.n += m => (nothing)":     stillborn,
		`table: {"a"} => {}`:               killed,
		"spin: < => <=":                    survived,
		"thousand: 1000 => 1001":           survived, // in a program of its own
		"thousand: 1000 => 999":            killed,
		"spin: i++ => (nothing)":           hung,
		"t.add: (nothing) => ; break":      killed,
		"u.second: b => uint64(uint32(b))": killed,
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

	// Again with mutants of constants only.
	constants := slices.DeleteFunc(mutants, func(m Mutant) bool { return !m.Alone })
	b, err = newBench(t.Context(), o, map[string]*source{"p.go": src}, constants)
	assert.NilError(t, err)
	defer b.close()
	for i, m := range constants {
		v, _ := b.try(i + 1)
		assert.Equal(t, v == killed, m.What() == "1000 => 999", m.What())
	}
}

// TestLimit: runFor ends a command that sleeps and one that spins.
func TestLimit(t *testing.T) {
	for _, hung := range []string{"sleep 60", "while :; do :; done"} {
		inTime, _ := runFor(exec.Command("sh", "-c", hung), 300*time.Millisecond)
		assert.Assert(t, !inTime, hung)
	}
	inTime, err := runFor(exec.Command("sh", "-c", "sleep 0.1"), 20*time.Second)
	assert.Assert(t, inTime)
	assert.NilError(t, err)
}
