package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLeakChecks: every package with tests fails if they leave goroutines or descriptors behind.
// internal/bench/loop, which only the tag nulldev has, does not: it ends after one measurement and
// closes nothing.
func TestLeakChecks(t *testing.T) {
	t.Chdir("../..")
	out, err := exec.Command("go", "list", "-tags", "lockcheck", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	marks := []string{"leaktest.M", "exampletest.Main(", "TestMain(m *testing.M) { Main(m) }"}
	for _, dir := range strings.Fields(string(out)) {
		checked := false
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
