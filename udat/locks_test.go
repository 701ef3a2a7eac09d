package udat_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestLockTable compares the table of locks in the documentation with the ranks, in order, and
// shows that every lock of the package has a rank.
func TestLockTable(t *testing.T) {
	withoutDevice(t)
	page, err := os.ReadFile("../docs/locks.md")
	assert.NilError(t, err)
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1]+" "+row[2])
	}
	var ranks []string
	for _, r := range udat.LockRanks {
		number, name := r.Rank()
		ranks = append(ranks, fmt.Sprint(number, " ", name))
	}
	assert.DeepEqual(t, listed, ranks)

	plain := regexp.MustCompile(`\bsync\.(RW)?Mutex\b`)
	declared := regexp.MustCompile(`(?m)^func \(rank\w+\) Rank\(\)`)
	files, err := os.ReadDir(".")
	assert.NilError(t, err)
	n := 0
	for _, f := range files {
		if f.IsDir() || regexp.MustCompile(`_test\.go$`).MatchString(f.Name()) {
			continue
		}
		source, err := os.ReadFile(f.Name())
		assert.NilError(t, err)
		assert.Assert(t, !plain.Match(source), "%s has a lock without a rank", f.Name())
		n += len(declared.FindAll(source, -1))
	}
	assert.Equal(t, n, len(ranks), "ranks in the sources")
}
