package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRunTests: each test gets its own outcome, also if others crash, hang or run beside it.
func TestRunTests(t *testing.T) {
	dir, err := filepath.Abs("testdata/sick")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "sick")
	cmd := exec.Command("go", "test", "-c", "-o", bin, ".")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMAXPROCS", "8") // of the tests: so many run at the same time
	defer func(before time.Duration) { stall = before }(stall)
	stall = 5 * time.Second
	got, err := runTests(pack{dir: dir}, bin, "", "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := results{
		"TestGood": passed, "TestBad": failed, "TestSkip": skipped, "TestLast": passed,
		"TestBystander": passed, "TestBystander/1": passed, "TestBystander/2": passed,
		"TestAnother": passed, "TestAnother/1": passed, "TestAnother/2": passed,
		"TestCrash": passed, "TestCrash/good": passed, "TestCrash/crash": crashed,
		"TestHang": passed, "TestHang/hang": stalled,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if ran, good := got.count(); ran != 10 || good != 7 {
		t.Errorf("%d tests ran, %d passed; must be 10 and 7", ran, good)
	}
}

// TestDifferences: a test that fails over TCP too, or only in its subtests, is no difference.
func TestDifferences(t *testing.T) {
	r := row{on: map[string]results{
		"":     {"A": passed, "B": failed, "C": passed, "C/1": passed, "C/2": passed, "D": skipped},
		"mem0": {"A": stalled, "B": crashed, "C": failed, "C/1": failed, "C/2": passed, "D": failed},
	}}
	list := r.all([]string{"mem0"})
	var names []string
	for _, d := range list {
		names = append(names, d.test)
	}
	if len(names) != 3 || names[0] != "A" || names[1] != "C/1" || names[2] != "D" {
		t.Errorf("the differences are %q", names)
	}
}
