package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLeakChecks: every package with tests fails if they leave goroutines or descriptors behind.
// lab/bench/loop does not: it ends after one measurement and closes nothing.
func TestLeakChecks(t *testing.T) {
	var dirs []string
	for _, module := range []string{"../..", ".."} {
		out, err := exec.Command("go", "-C", module, "list", "-tags", "lockcheck", "-f",
			"{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./...").Output()
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, strings.Fields(string(out))...)
	}
	marks := []string{"leaktest.M", "exampletest.Main(", "TestMain(m *testing.M) { Main(m) }"}
	for _, dir := range dirs {
		checked := strings.HasSuffix(dir, "lab/bench/loop")
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, mark := range marks {
				checked = checked || strings.Contains(string(text), mark)
			}
		}
		if !checked {
			t.Errorf("%s has tests and no TestMain that calls leaktest.Main", dir)
		}
	}
}
