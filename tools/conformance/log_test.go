package main

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestDoubtfulRecords: a record counts only if the log says that the test has passed, with all its
// parts.
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
