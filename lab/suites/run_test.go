package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRunTests: each test gets its own outcome, even if others crash, hang or run in parallel.
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

// TestDifferences: a test is not a difference if it fails over TCP too, or if only its subtests
// fail.
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

// TestPageParts: a run on the host and one in the virtual machine each replace their own part of
// the page.
func TestPageParts(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	rows := func(good outcome) []row {
		return []row{{pack: pack{suite: suite{pkg: "x"}}, on: map[string]results{
			"": {"A": passed}, "mem0": {"A": good}, "rxe0": {"A": good},
		}}}
	}
	text := func() string {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for i, write := range []struct {
		device string
		good   outcome
		guest  string
		want   []string
	}{
		{"mem0", passed, "", []string{"| mem0 |"}},
		{"rxe0", failed, "rxe-vm", []string{"| mem0 |", "| rxe0 |", "1 on rxe0"}},
		{"mem0", failed, "", []string{"| mem0 |", "1 on mem0", "| rxe0 |", "1 on rxe0"}},
		{"rxe0", passed, "rxe-vm", []string{"| mem0 |", "1 on mem0", "| rxe0 |", "Nothing that passes"}},
	} {
		if err := writePage(page, []string{write.device}, rows(write.good), write.guest); err != nil {
			t.Fatal(err)
		}
		rest, found := text(), true
		for _, want := range write.want {
			if _, rest, found = strings.Cut(rest, want); !found {
				t.Errorf("after write %d the page has no %q there:\n%s", i, want, text())
			}
		}
		if n := strings.Count(text(), guestTitle); n > 1 {
			t.Errorf("%d parts of the virtual machine", n)
		}
	}
}
