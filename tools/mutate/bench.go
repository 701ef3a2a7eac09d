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
	"path"
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
	hung      verdict = "hung"      // the tests did not end in time: as good as killed
	stillborn verdict = "stillborn" // it does not compile: it does not count
	survived  verdict = "SURVIVED"
)

// suite is the tests of one package.
type suite struct {
	dir     string // of the package, below the root
	binary  string
	device  string // that the tests run on besides mem0
	timeout time.Duration
	took    map[string]time.Duration // each test, unbroken
	kills   map[string]int           // mutants that each test has killed; under bench.mu
}

// bench runs the tests of mutants.
type bench struct {
	ctx     context.Context
	o       options
	tmp     string
	sources map[string]*source
	mutants []Mutant
	dead    map[int]string // mutants that do not compile, and why
	mu      sync.Mutex
	suites  map[string]*suite // by dir
}

// patience is how long a test of a mutant waits for what never comes; some tests time things of 20
// s, in a bubble.
const patience = "22s"

// newBench builds the mutants, which are numbered from 1 in their order, and runs the unbroken
// tests.
func newBench(ctx context.Context, o options, sources map[string]*source, mutants []Mutant) (*bench, error) {
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, o: o, tmp: tmp, sources: sources, mutants: mutants, dead: map[int]string{},
		suites: map[string]*suite{}}
	for _, m := range mutants {
		for _, dir := range b.suitesOf(m) {
			if b.suites[dir] == nil {
				b.suites[dir] = &suite{dir: dir, binary: filepath.Join(tmp, path.Base(dir)+".test"), device: o.device,
					timeout: o.timeout,
					took:    map[string]time.Duration{}, kills: map[string]int{}}
			}
		}
	}
	if err = b.build(); err == nil {
		for _, s := range b.suites {
			if err = b.measure(s); err != nil {
				break
			}
		}
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { os.RemoveAll(b.tmp) }

// suitesOf returns the packages whose tests a mutant meets, in their order: its own first, then
// those of the root.
func (b *bench) suitesOf(m Mutant) []string {
	own := path.Join(b.o.dir, path.Dir(m.File))
	switch {
	case own == b.o.dir:
		return []string{own}
	case strings.HasSuffix(own, "/verbsfabric") && b.o.device == "":
		return []string{own} // the others never call it
	}
	return []string{own, b.o.dir}
}

// generated is where the source of a file with its mutants lies. The compiler names it or the file
// in the tree.
func (b *bench) generated(file string) string {
	return filepath.Join(b.tmp, strings.ReplaceAll(file, "/", "_"))
}

var complaint = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: (.*)$`)

// build compiles the tests with all mutants that compile.
func (b *bench) build() error {
	byFile := map[string]map[int]Mutant{}
	for i, m := range b.mutants {
		if byFile[m.File] == nil {
			byFile[m.File] = map[int]Mutant{}
		}
		byFile[m.File][i+1] = m
	}
	where := map[string][]copied{}
	overlay := map[string]string{}
	write := func(file, code string) error {
		overlay[filepath.Join(b.o.root, b.o.dir, file)] = b.generated(file)
		return os.WriteFile(b.generated(file), []byte(code), 0o666)
	}
	replace := filepath.Join(b.tmp, "overlay.json")
	for i := 0; ; i++ {
		for file, of := range byFile {
			numbers := slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(i int) bool { return b.dead[i] != "" })
			code, lines := schema(b.sources[file], of, numbers)
			where[path.Join(b.o.dir, file)], where[b.generated(file)] = lines, lines
			err := errors.Join(write(file, code),
				write(path.Join(path.Dir(file), "mutant_chosen.go"), fmt.Sprintf(chooser, b.sources[file].parsed.Name.Name)))
			if err != nil {
				return err
			}
		}
		list, err := json.Marshal(map[string]map[string]string{"Replace": overlay})
		if err != nil {
			return err
		}
		if err := os.WriteFile(replace, list, 0o666); err != nil {
			return err
		}
		again := false
		for _, s := range b.suites {
			cmd := exec.CommandContext(b.ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", replace, "-o",
				s.binary, "./"+s.dir)
			cmd.Dir = b.o.root
			out, err := cmd.CombinedOutput()
			if err == nil {
				continue
			}
			again = true
			before := len(b.dead)
			for _, c := range complaint.FindAllSubmatch(out, -1) {
				line, _ := strconv.Atoi(string(c[2]))
				name := path.Clean(string(c[1]))
				if strings.HasPrefix(name, "../") { // the go command names a file by the shorter way
					name = filepath.Join(b.o.root, name)
				}
				for _, w := range where[name] {
					if line >= w.from && line <= w.to && b.dead[w.number] == "" {
						b.dead[w.number] = string(c[3])
					}
				}
			}
			if len(b.dead) == before {
				return fmt.Errorf("the tests do not compile: %w\n%s", err, out)
			}
			break
		}
		if !again {
			return nil
		}
	}
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\S+) \((\S+)s\)`)

// measure runs the unbroken tests, which must pass.
func (b *bench) measure(s *suite) error {
	start := time.Now()
	v, by, out := b.run(s, 0, 30*time.Minute, "-test.run="+b.o.run, "-test.skip="+b.o.skip, "-test.v")
	if v != survived {
		return fmt.Errorf("the unbroken tests of %s fail: %s\n%s", s.dir, by, out)
	}
	took := time.Since(start)
	for _, p := range passed.FindAllSubmatch(out, -1) {
		seconds, _ := strconv.ParseFloat(string(p[2]), 64)
		s.took[string(p[1])] = time.Duration(seconds * float64(time.Second))
	}
	if s.timeout == 0 {
		s.timeout = max(45*time.Second, 4*took)
	}
	fmt.Printf("%s: the unbroken tests take %v, mutants may take %v\n", s.dir, took.Round(time.Millisecond),
		s.timeout.Round(time.Second))
	return nil
}

// try runs the tests on the mutant of a number until one fails.
func (b *bench) try(number int) (verdict, string) {
	if why := b.dead[number]; why != "" {
		return stillborn, why
	}
	for _, dir := range b.suitesOf(b.mutants[number-1]) {
		if v, by := b.trySuite(b.suites[dir], number); v != survived {
			return v, by
		}
	}
	return survived, ""
}

// trySuite runs first the tests that have killed most, then the quick ones, then the rest.
func (b *bench) trySuite(s *suite, number int) (verdict, string) {
	done := []string{}
	if s.device == "" {
		for _, tests := range b.rounds(s) {
			if len(tests) == 0 {
				continue
			}
			if v, by, _ := b.run(s, number, min(s.timeout, briefly), "-test.run="+exactly(tests),
				"-test.skip="+b.o.skip); v != survived {
				test, _, _ := strings.Cut(by, "/")
				b.mu.Lock()
				if _, ok := s.took[test]; ok && v == killed {
					s.kills[test]++
				}
				b.mu.Unlock()
				return v, by
			}
			done = append(done, tests...)
		}
	}
	v, by, _ := b.run(s, number, s.timeout, "-test.run="+b.o.run,
		"-test.skip="+strings.Trim(b.o.skip+"|"+exactly(done), "|"))
	return v, by
}

func exactly(tests []string) string {
	if len(tests) == 0 {
		return ""
	}
	return "^(" + strings.Join(tests, "|") + ")$"
}

// quick is how long a test may take that is run before others.
const quick = 100 * time.Millisecond

// briefly is how long quick tests may take together; a test that waits in vain is to fail before.
const briefly = 30 * time.Second

func (b *bench) rounds(s *suite) [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := slices.SortedFunc(maps.Keys(s.kills), func(x, y string) int { return s.kills[y] - s.kills[x] })
	best = slices.DeleteFunc(best, func(t string) bool { return s.took[t] > 5*quick })
	best = best[:min(len(best), 15)]
	var next []string
	for _, t := range slices.Sorted(maps.Keys(s.took)) {
		if s.took[t] <= quick && !slices.Contains(best, t) {
			next = append(next, t)
		}
	}
	return [][]string{best, next}
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*)|^(fatal error: .*)`)

// run runs tests of a suite, and says which failed.
func (b *bench) run(s *suite, number int, timeout time.Duration, args ...string) (verdict, string, []byte) {
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	args = append([]string{s.binary}, append(args, "-test.short", "-test.failfast")...)
	env := []string{"GODAT_TEST_DEVICE=" + s.device, "GODAT_RULES_OUT=", fmt.Sprint(mutantEnv, "=", number)}
	if s.device == "" {
		env = append(env, "GODAT_TEST_PATIENCE="+patience)
	} else { // in the virtual machine
		vm := []string{filepath.Join(b.o.root, "ci/rxe-vm.sh"), "--memory", "3072", "--timeout",
			fmt.Sprint(int(timeout.Seconds()))}
		for _, e := range env {
			vm = append(vm, "--env", e)
		}
		args = append(append(vm, "--"), args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(b.o.root, s.dir)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), env...)
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
		return killed, string(bytes.Join(m[1:], nil)), out.Bytes()
	}
	return killed, firstLine(out.Bytes()), out.Bytes()
}

func firstLine(out []byte) string {
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return string(line)
		}
	}
	return ""
}
