package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestDoubtfulRecords: a record counts only if, according to the log, the test and all its parts
// have passed.
func TestDoubtfulRecords(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	write("mem0.log", `=== RUN   TestGood/mem0
    --- PASS: TestGood/mem0 (0.00s)
    --- PASS: TestHalf/mem0 (0.00s)
        --- PASS: TestHalf/mem0/one (0.00s)
        --- SKIP: TestHalf/mem0/two (0.00s)
    --- FAIL: TestLeaks/mem0 (0.00s)
`)
	records := write("mem0.tsv", "A-1\tmem0\tTestGood/mem0\nA-2\tmem0\tTestHalf/mem0\nA-2\tmem0\tTestHalf/mem0/two\n"+
		"A-3\tmem0\tTestLeaks/mem0\nA-4\tmem0\tTestUnknown/mem0\nA-5\tmem0\tTestHalf/mem0/one\n")
	rules := []ruleLine{{id: "A-1"}, {id: "A-2"}, {id: "A-3"}, {id: "A-4"}, {id: "A-5"}}
	proofs, unknown, err := readRecords(rules, []string{records})
	assert.NilError(t, err)
	assert.Equal(t, len(unknown), 0)
	for _, r := range rules {
		proven := r.id == "A-1" || r.id == "A-5"
		assert.Equal(t, len(proofs[r.id]["mem"]) > 0, proven, r.id)
	}
	_, _, err = readRecords(rules, []string{write("rxe.tsv", "")})
	assert.ErrorContains(t, err, "rxe.log", "records without a log")
}

// TestOtherFabricsStay: a run on one fabric renews the fabric's column. The other columns stay as
// they are in the table, whatever columns it has. What the table shows as proven must stay proven.
func TestOtherFabricsStay(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	rules, limits := write("rules", "A-1\tone\nA-2\ttwo\n"), write("limits", "siw\tA-2\tno windows\n")
	path := write("table.md", "| Rule | Meaning | mem0 | siw | Tests |\n|---|---|---|---|---|\n"+
		"| A-1 | one | proven | proven | TestA, TestB |\n| A-2 | two | proven |  | TestC |\n")
	records := write("tcp.tsv", "A-1\ttcp:127.0.0.1\tTestA/tcp:127.0.0.1\nA-2\ttcp\tTestD/tcp\n")
	write("tcp.log", "--- PASS: TestA/tcp:127.0.0.1 (0.00s)\n--- PASS: TestD/tcp (0.00s)\n")
	assert.NilError(t, run(rules, limits, path, []string{records}))
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	for _, want := range []string{"| Rule | Meaning | mem0 | tcp | rxe | siw | Tests |",
		"| A-1 | one | proven | proven |  | proven | TestA, TestB |",
		"| A-2 | two | proven | proven |  | no windows | TestC, TestD |",
		"2 rules, mem0 2 proven, tcp 2 proven, rxe 0 proven, siw 1 proven"} {
		assert.Assert(t, strings.Contains(string(text), want), "%s in\n%s", want, text)
	}
	write("tcp.log", "--- PASS: TestA/tcp:127.0.0.1 (0.00s)\n--- FAIL: TestD/tcp (0.00s)\n")
	assert.ErrorContains(t, run(rules, limits, path, []string{records}), "A-2 on tcp")
}
