package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// verdict is the result of trying a mutant.
type verdict string

const (
	killed    verdict = "killed"    // a test failed
	hung      verdict = "hung"      // the tests did not end in time; counts as killed
	stillborn verdict = "stillborn" // the mutant does not compile, so it does not count
	survived  verdict = "SURVIVED"
)

// suite contains the tests of one package on one device.
type suite struct {
	place
	timeout time.Duration
	tests   map[string]*test // by name; empty in the virtual machine
}

// test is what is known about one test.
type test struct {
	took    time.Duration // how long it takes on the unbroken code
	reaches map[int]bool  // mutants in functions that the test calls
	kills   []int         // mutants that the test has killed; guarded by bench.mu
}

// bench runs the tests of mutants.
type bench struct {
	ctx     context.Context
	o       options
	tmp     string
	sources map[string]*source
	mutants []Mutant
	dead    map[int]string // mutants that do not compile, and why
	most    program        // contains all mutants that do not need a program of their own
	mu      sync.Mutex
	suites  map[place]*suite
}

// patience is how long a test of a mutant waits for something that never comes. It is more than 20
// s because some tests measure times of 20 s, in a bubble of testing/synctest.
const patience = "22s"

// newBench builds the mutants and runs the tests on the unbroken code. The number of a mutant is
// its index in mutants plus 1.
func newBench(ctx context.Context, o options, sources map[string]*source, mutants []Mutant) (*bench, error) {
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, o: o, tmp: tmp, sources: sources, mutants: mutants, dead: map[int]string{},
		most: program{tmp}, suites: map[place]*suite{}}
	for _, m := range mutants {
		for _, p := range b.placesOf(m) {
			b.suites[p] = &suite{place: p, timeout: o.timeout, tests: map[string]*test{}}
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

// targetOf returns the target whose package the mutant changes.
func (b *bench) targetOf(m Mutant) target {
	i := slices.IndexFunc(b.o.targets, func(t target) bool { return t.dir == path.Dir(m.File) })
	return b.o.targets[i]
}

// placesOf returns the places where a mutant is tested, in the order of testing.
func (b *bench) placesOf(m Mutant) (list []place) {
	for _, p := range b.targetOf(m).tests {
		if b.o.device != "" {
			p.device = b.o.device
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// measure runs each test on the unbroken code, where it must pass. It records how long the test
// takes and which mutants it reaches.
func (b *bench) measure(s *suite) error {
	start := time.Now()
	if b.o.device != "" { // all tests in one run, because the virtual machine boots for each run
		if v, by, out := b.run(b.most, s, 0, 30*time.Minute, "-test.run="+b.o.run, "-test.skip="+b.o.skip); v != survived {
			return fmt.Errorf("the unbroken tests of %s fail: %s\n%s", s.dir, by, out)
		}
		s.timeout = max(s.timeout, time.Minute, 4*time.Since(start))
		return nil
	}
	_, _, list := b.run(b.most, s, 0, time.Minute, "-test.list="+cmp.Or(b.o.run, "."))
	skip, err := regexp.Compile(cmp.Or(b.o.skip, "^$"))
	if err != nil {
		return err
	}
	var names []string
	for _, name := range strings.Fields(string(list)) {
		if !skip.MatchString(name) && !strings.HasPrefix(name, "Benchmark") {
			names = append(names, name)
		}
	}
	var took time.Duration
	err = forEach(b.o.jobs, names, func(name string) error {
		t, err := b.measureTest(s, name)
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		s.tests[name] = t
		took += t.took
		return nil
	})
	fmt.Printf("%s: %d unbroken tests take %v, one after the other %v\n", s.place, len(names),
		time.Since(start).Round(time.Millisecond), took.Round(time.Millisecond))
	return err
}

// measureTest measures one test, as measure describes.
func (b *bench) measureTest(s *suite, name string) (*test, error) {
	reached := filepath.Join(b.tmp, filepath.Base(b.most.binary(s.place))+name+".reached")
	start := time.Now()
	v, by, out := b.run(b.most, s, reaching, 10*time.Minute, "-test.run="+exactly(name), reachedEnv+"="+reached)
	if v != survived {
		return nil, fmt.Errorf("%s of %s fails unbroken: %s\n%s", name, s.place, by, out)
	}
	t := &test{took: time.Since(start), reaches: map[int]bool{}}
	text, err := os.ReadFile(reached)
	if errors.Is(err, fs.ErrNotExist) { // all mutants are in constants, so no function has written to the file
		err = nil
	}
	for _, word := range strings.Fields(string(text)) {
		number, _ := strconv.Atoi(word)
		t.reaches[number] = true
	}
	return t, err
}

// forEach calls the function f for every item, in as many goroutines as the parameter jobs says.
// After an error it begins no further items. It returns the first error.
func forEach[T any](jobs int, items []T, f func(T) error) error {
	var failed error
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := make(chan T)
	for range max(jobs, 1) {
		workers.Go(func() {
			for item := range next {
				if err := f(item); err != nil {
					mu.Lock()
					failed = cmp.Or(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, item := range items {
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			break
		}
		next <- item
	}
	close(next)
	workers.Wait()
	return failed
}

// try runs the tests on the mutant with this number until a test fails. It returns the verdict, and
// the test that failed or another reason.
func (b *bench) try(number int) (verdict, string) {
	if why := b.dead[number]; why != "" {
		return stillborn, why
	}
	m := b.mutants[number-1]
	p := b.most
	if m.Alone {
		p = program{filepath.Join(b.tmp, strconv.Itoa(number))}
		defer os.RemoveAll(p.folder)
		if why := b.buildAlone(p, m); why != nil {
			return stillborn, why.Error()
		}
	}
	for _, at := range b.placesOf(m) {
		if v, by := b.trySuite(p, b.suites[at], number); v != survived {
			return v, by
		}
	}
	return survived, ""
}

// trySuite runs the tests of a suite that reach the mutant. It begins with those that are most
// likely to fail.
func (b *bench) trySuite(p program, s *suite, number int) (verdict, string) {
	if b.o.device != "" {
		v, by, _ := b.run(p, s, number, s.timeout, "-test.run="+b.o.run, "-test.skip="+b.o.skip)
		return v, by
	}
	for _, names := range b.rounds(s, number) {
		timeout := s.timeout
		if timeout == 0 {
			timeout = least
			for _, name := range names {
				timeout += 6 * s.tests[name].took
			}
		}
		v, by, _ := b.run(p, s, number, timeout, "-test.run="+exactly(names...))
		if v == survived {
			continue
		}
		name, _, _ := strings.Cut(by, "/")
		b.mu.Lock()
		if t := s.tests[name]; t != nil {
			t.kills = append(t.kills, number)
		}
		b.mu.Unlock()
		return v, by
	}
	return survived, ""
}

// exactly returns a pattern for -test.run that matches only the tests with these names.
func exactly(names ...string) string { return "^(" + strings.Join(names, "|") + ")$" }

// least is the constant part of the time limit for a run of tests. Six times the tests' time on the
// unbroken code is added.
const least = 8 * time.Second

// rounds returns the tests that reach a mutant, in the rounds in which to run them. First come fast
// tests that have killed mutants of the same function, that have killed many mutants elsewhere, or
// that reach few mutants. Each round has four times as many tests as the one before.
func (b *bench) rounds(s *suite, number int) [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutants[number-1]
	promise := map[string]float64{}
	for name, t := range s.tests {
		if !t.reaches[number] && !m.Alone {
			continue
		}
		p := 1 / float64(max(len(t.reaches), 1))
		for _, i := range t.kills {
			switch k := b.mutants[i-1]; {
			case k.File == m.File && k.Func == m.Func:
				p += 1
			case k.File == m.File:
				p += 0.2
			default:
				p += 0.05
			}
		}
		promise[name] = p / (t.took + 100*time.Millisecond).Seconds()
	}
	order := slices.SortedFunc(maps.Keys(promise), func(x, y string) int {
		return cmp.Or(cmp.Compare(promise[y], promise[x]), strings.Compare(x, y))
	})
	var rounds [][]string
	for n := 8; len(order) > 0; n *= 4 {
		n = min(n, len(order))
		rounds = append(rounds, order[:n])
		order = order[n:]
	}
	return rounds
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*)|^(fatal error: .*)`)
	began   = regexp.MustCompile(`(?m)^=== RUN   ([^/\s]+)$`)
)

// run runs tests of a suite on the mutant with this number. It returns the verdict, the test that
// failed, and the output. Arguments that begin with GODAT_ are environment variables; the others
// are arguments of the test binary. If a test builds a program, the program contains the mutants
// too.
func (b *bench) run(p program, s *suite, number int, timeout time.Duration, args ...string) (verdict, string, []byte) {
	env := []string{"GODAT_TEST_DEVICE=" + s.device, "GODAT_RULES_OUT=", fmt.Sprint(mutantEnv, "=", number)}
	args = slices.DeleteFunc(append([]string{p.binary(s.place)}, args...), func(a string) bool {
		is := strings.HasPrefix(a, "GODAT_")
		if is {
			env = append(env, a)
		}
		return is
	})
	args = append(args, "-test.short", "-test.failfast", "-test.v")
	if b.o.device == "" {
		if s.device == loop {
			args = append([]string{filepath.Join(b.o.root, loopScript)}, args...)
		}
		env = append(env, "GODAT_TEST_PATIENCE="+patience, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+p.overlay())
	} else { // in the virtual machine
		vm := []string{filepath.Join(b.o.root, "ci/rxe-vm.sh"), "--memory", "3072", "--timeout",
			fmt.Sprint(int(timeout.Seconds()))}
		for _, e := range env {
			vm = append(vm, "--env", e)
		}
		args = append(append(vm, "--"), args...)
	}
	cmd := exec.CommandContext(b.ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(b.o.root, s.dir)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	inTime, err := runFor(cmd, timeout)
	switch {
	case inTime && (err == nil || errors.Is(err, exec.ErrWaitDelay)): // passed; a child kept the output open
		return survived, "", out.Bytes()
	case !inTime:
		last := ""
		if m := began.FindAllSubmatch(out.Bytes(), -1); m != nil {
			last = string(m[len(m)-1][1])
		}
		return hung, last, nil
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
