package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sleeps are the calls of time.Sleep in the tests of each folder. A sleep outside a bubble of
// testing/synctest bets on the clock: a barrier, a count or a channel decides instead. A number may
// only fall. Lower it when a sleep goes.
var sleeps = map[string]int{
	"cmd/datperf":                      4,
	"cmd/libgodat":                     1,
	"cverbs":                           31,
	"internal/leaktest":                1,
	"internal/perf/engine":             13,
	"lab/bench":                        1,
	"lab/suites/found":                 1,
	"lab/suites/testdata/sick":         3,
	"rdmanet":                          37,
	"udat":                             89,
	"udat/internal/fabric/faultfabric": 1,
	"udat/internal/memfabric":          22,
	"udat/internal/softnic":            6,
	"udat/internal/tcpfabric":          15,
	"udat/internal/verbsfabric":        5,
}

// TestSleeps: no test gets a new sleep.
func TestSleeps(t *testing.T) {
	got := map[string]int{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "out"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "sleeps_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if n := strings.Count(string(text), "time.Sleep("); n > 0 {
			folder, _ := filepath.Rel("../..", filepath.Dir(path))
			got[filepath.ToSlash(folder)] += n
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, n := range got {
		if n > sleeps[folder] {
			t.Errorf("%s: %d calls of time.Sleep in tests, and there were %d", folder, n, sleeps[folder])
		}
	}
}
