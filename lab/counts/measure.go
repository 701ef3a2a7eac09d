package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// operations lists the operations to count. The same operations in C show what a layer adds.
var operations = []struct {
	layer, name string
	each        int // operations between two marks
}{
	{"C", "post", 16}, {"C", "poll", 16}, {"C", "receive", 16}, {"C", "exchange", 16}, // 16 as N in c/subject.c
	{"cverbs", "post", 16}, {"cverbs", "poll", 16}, {"cverbs", "receive", 16},
	{"cverbs", "domain post", 16}, {"cverbs", "domain poll", 16}, {"cverbs", "extended post", 16},
	{"cverbs", "exchange", 16}, {"cverbs", "turn", 16},
	{"udat", "post", 16}, {"udat", "event", 1}, {"udat", "queued", 16}, {"udat", "wait", 1}, {"udat", "receive", 16},
	{"udat", "exchange", 16}, {"udat", "accept", 1},
	{"rdmanet", "write", 16},
	{"tcp", "round trip", 4}, {"TCP", "round trip", 4}, // "TCP" is Go's own net package
}

// limit is how long one run of a subject may take.
const limit = 5 * time.Minute

// environment turns off what Go's runtime does by itself, so that it is not counted as a part of an
// operation.
var environment = []string{"GOGC=off", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=2"}

// measure builds the subjects, and counts the operations whose keys begin with prefix.
func measure(prefix string) ([]row, error) {
	bin, err := os.MkdirTemp("", "godat-counts.")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(bin)
	preload, err := output(filepath.Join(here(), "..", "loopdev", "loop.sh"))
	if err != nil {
		return nil, err
	}
	inC, inGo := filepath.Join(bin, "subject-c"), filepath.Join(bin, "subject")
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	for _, build := range [][]string{
		{cc, "-O2", "-o", inC, filepath.Join(here(), "c", "subject.c"), "-libverbs"},
		{"go", "-C", here(), "build", "-o", inGo, "./subject"},
	} {
		if _, err := output(build...); err != nil {
			return nil, err
		}
	}
	env := append(slices.Clone(environment), "LD_PRELOAD="+strings.TrimSpace(preload))
	var rows []row
	for _, o := range operations {
		r := row{layer: o.layer, operation: o.name}
		if !strings.HasPrefix(r.key(), prefix) {
			continue
		}
		argv := []string{inGo, "-n", strconv.Itoa(o.each), o.layer, o.name}
		if o.layer == "C" {
			argv = []string{inC, o.name}
		}
		counts, err := trace(limit, env, argv...)
		if err != nil {
			return nil, err
		}
		if len(counts) == 0 {
			return nil, fmt.Errorf("%s passed no mark", r.key())
		}
		usual := quartile(counts)
		r.instructions, r.calls = float64(usual.instructions/o.each), float64(usual.calls)/float64(o.each)
		if o.layer != "C" {
			cmd := exec.Command("env", append(env, slices.Insert(argv, 1, "-allocs")...)...)
			text, err := cmd.Output()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.key(), err)
			}
			if r.alloc, err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// quartile returns the lower quartile of the counts. Now and then something else happens while the
// operations are counted, and adds to a count. A count is rarely too low: an earlier poll of udat
// may have taken completions that should have been taken during the count.
func quartile(counts []count) count {
	slices.SortFunc(counts, func(a, b count) int { return a.instructions - b.instructions })
	return counts[len(counts)/4]
}

func output(argv ...string) (string, error) {
	text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, text)
	}
	return string(text), nil
}
