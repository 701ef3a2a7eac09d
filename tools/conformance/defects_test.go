package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestDefectsHaveTests: the tests that the list of defects names exist.
func TestDefectsHaveTests(t *testing.T) {
	list, err := os.ReadFile("../../docs/conformance/dapl-defects.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, dir := range []string{"../../udat", "../../udat/internal/verbsfabric"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				have[string(m[1])] = true
			}
		}
	}
	named := regexp.MustCompile(`Test[A-Z]\w*`).FindAllString(string(list), -1)
	if len(named) < 50 {
		t.Errorf("the list names only %d tests", len(named))
	}
	for _, name := range named {
		if !have[name] {
			t.Errorf("the list names %s, which does not exist", name)
		}
	}
}
