package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// verdict is what became of a mutant.
type verdict string

const (
	killed    verdict = "killed"    // a test failed
	hung      verdict = "hung"      // the tests did not end in time
	stillborn verdict = "stillborn" // it does not compile
	survived  verdict = "SURVIVED"
)

// bench runs the tests of mutants.
type bench struct {
	ctx     context.Context
	dir     string // of the package
	tmp     string
	skip    string // tests that are not run
	timeout time.Duration
	dead    map[int]string // mutants that do not compile, and why

	mu    sync.Mutex
	took  map[string]time.Duration // each test, unbroken
	kills map[string]int           // mutants that each test has killed
}

// patience is how long a test of a mutant waits for what never comes; some tests time things of 20 s, in a bubble.
const patience = "22s"

// newBench builds the mutants, which are numbered from 1 in their order, and runs the unbroken tests.
func newBench(ctx context.Context, o options, mutants []Mutant) (*bench, error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, dir: dir, tmp: tmp, skip: o.skip, dead: map[int]string{}, took: map[string]time.Duration{}, kills: map[string]int{}}
	if err = b.build(mutants); err == nil {
		err = b.measure(o.timeout)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { os.RemoveAll(b.tmp) }

func (b *bench) binary() string { return filepath.Join(b.tmp, "tests") }

var complaint = regexp.MustCompile(`(?m)^\S*?([^/\s]+\.go):(\d+):\d+: (.*)$`)

// build compiles the tests with all mutants that compile.
func (b *bench) build(mutants []Mutant) error {
	byFile := map[string]map[int]Mutant{}
	for i, m := range mutants {
		if byFile[m.File] == nil {
			byFile[m.File] = map[int]Mutant{}
		}
		byFile[m.File][i+1] = m
	}
	for {
		where := map[string][]copied{}
		overlay := map[string]string{}
		write := func(file, code string) error {
			path := filepath.Join(b.tmp, file)
			overlay[filepath.Join(b.dir, file)] = path
			return os.WriteFile(path, []byte(code), 0o666)
		}
		for file, of := range byFile {
			src, err := os.ReadFile(filepath.Join(b.dir, file))
			if err != nil {
				return err
			}
			numbers := slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(i int) bool { return b.dead[i] != "" })
			code, lines, err := schema(file, src, of, numbers)
			if err != nil {
				return err
			}
			where[file] = lines
			if err := write(file, code); err != nil {
				return err
			}
		}
		if err := write("mutant_chosen.go", fmt.Sprintf(chooser, filepath.Base(b.dir))); err != nil {
			return err
		}
		list, err := json.Marshal(map[string]map[string]string{"Replace": overlay})
		if err != nil {
			return err
		}
		replace := filepath.Join(b.tmp, "overlay.json")
		if err := os.WriteFile(replace, list, 0o666); err != nil {
			return err
		}
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", replace, "-o", b.binary(), ".")
		cmd.Dir = b.dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		before := len(b.dead)
		for _, c := range complaint.FindAllSubmatch(out, -1) {
			line, _ := strconv.Atoi(string(c[2]))
			for _, w := range where[string(c[1])] {
				if line >= w.from && line <= w.to && b.dead[w.number] == "" {
					b.dead[w.number] = string(c[3])
				}
			}
		}
		if len(b.dead) == before {
			return fmt.Errorf("the tests do not compile: %w\n%s", err, out)
		}
	}
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\S+) \((\S+)s\)`)

// measure runs the unbroken tests, which must pass.
func (b *bench) measure(timeout time.Duration) error {
	b.timeout = 5 * time.Minute
	start := time.Now()
	v, by, out := b.run(0, b.timeout, "-test.skip="+b.skip, "-test.v")
	if v != survived {
		return fmt.Errorf("the unbroken tests fail: %s", by)
	}
	took := time.Since(start)
	for _, p := range passed.FindAllSubmatch(out, -1) {
		s, _ := strconv.ParseFloat(string(p[2]), 64)
		b.took[string(p[1])] = time.Duration(s * float64(time.Second))
	}
	if b.timeout = timeout; timeout == 0 {
		b.timeout = max(45*time.Second, 4*took)
	}
	fmt.Printf("the unbroken tests take %v, mutants may take %v\n", took.Round(time.Millisecond), b.timeout.Round(time.Second))
	return nil
}

// try runs the tests on the mutant of a number: first those that have killed most, then the quick ones, then the rest.
func (b *bench) try(number int) (verdict, string) {
	if why := b.dead[number]; why != "" {
		return stillborn, why
	}
	var done []string
	for _, tests := range b.rounds() {
		if len(tests) == 0 {
			continue
		}
		if v, by, _ := b.run(number, min(b.timeout, briefly), "-test.run="+exactly(tests), "-test.skip="+b.skip); v != survived {
			test, _, _ := strings.Cut(by, "/")
			b.mu.Lock()
			if _, ok := b.took[test]; ok && v == killed {
				b.kills[test]++
			}
			b.mu.Unlock()
			return v, by
		}
		done = append(done, tests...)
	}
	v, by, _ := b.run(number, b.timeout, "-test.skip="+b.skip+"|"+exactly(done))
	return v, by
}

func exactly(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// quick is how long a test may take that is run before others.
const quick = 100 * time.Millisecond

// briefly is how long quick tests may take together; a test that waits in vain is to fail before.
const briefly = 30 * time.Second

func (b *bench) rounds() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := slices.SortedFunc(maps.Keys(b.kills), func(x, y string) int { return b.kills[y] - b.kills[x] })
	best = slices.DeleteFunc(best, func(t string) bool { return b.took[t] > 5*quick })
	best = best[:min(len(best), 15)]
	var next []string
	for _, t := range slices.Sorted(maps.Keys(b.took)) {
		if b.took[t] <= quick && !slices.Contains(best, t) {
			next = append(next, t)
		}
	}
	return [][]string{best, next}
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*)|^(fatal error: .*)`)

// run runs tests on the fabric inside the process, and says which failed.
func (b *bench) run(number int, timeout time.Duration, args ...string) (verdict, string, []byte) {
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary(), append(args, "-test.short", "-test.failfast")...)
	cmd.Dir = b.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "GODAT_TEST_DEVICE=", "GODAT_RULES_OUT=", "GODAT_TEST_PATIENCE="+patience, fmt.Sprint(mutantEnv, "=", number))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case err == nil:
		return survived, "", out.Bytes()
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return hung, timeout.String(), nil
	}
	if m := failure.FindSubmatch(out.Bytes()); m != nil {
		return killed, string(bytes.Join(m[1:], nil)), nil
	}
	return killed, firstLine(out.Bytes()), nil
}

func firstLine(out []byte) string {
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return string(line)
		}
	}
	return ""
}
