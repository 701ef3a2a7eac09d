package main

import (
	"bytes"
	"cmp"
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
	tests   map[string]*test // by name; without the device they run on
}

// test is what is known of one test.
type test struct {
	took    time.Duration // unbroken
	reaches map[int]bool  // the mutants whose functions it calls
	kills   []int         // mutants that it has killed; under bench.mu
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
					timeout: o.timeout, tests: map[string]*test{}}
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

// measure runs each unbroken test, which must pass, and learns how long it takes and what it
// reaches.
func (b *bench) measure(s *suite) error {
	start := time.Now()
	if s.device != "" { // in one run: the virtual machine boots for each
		if v, by, out := b.run(s, 0, 30*time.Minute, "-test.run="+b.o.run, "-test.skip="+b.o.skip); v != survived {
			return fmt.Errorf("the unbroken tests of %s fail: %s\n%s", s.dir, by, out)
		}
		s.timeout = max(s.timeout, time.Minute, 4*time.Since(start))
		return nil
	}
	_, _, list := b.run(s, 0, time.Minute, "-test.list="+cmp.Or(b.o.run, "."))
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
	err = each(b.o.jobs, names, func(name string) error {
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
	fmt.Printf("%s: %d unbroken tests take %v, one after the other %v\n", s.dir, len(names),
		time.Since(start).Round(time.Millisecond), took.Round(time.Millisecond))
	return err
}

// measureTest measures one test.
func (b *bench) measureTest(s *suite, name string) (*test, error) {
	reached := filepath.Join(b.tmp, name+".reached")
	start := time.Now()
	v, by, out := b.run(s, reaching, 10*time.Minute, "-test.run="+exactly(name), reachedEnv+"="+reached)
	if v != survived {
		return nil, fmt.Errorf("%s of %s fails unbroken: %s\n%s", name, s.dir, by, out)
	}
	t := &test{took: time.Since(start), reaches: map[int]bool{}}
	text, err := os.ReadFile(reached)
	for _, word := range strings.Fields(string(text)) {
		number, _ := strconv.Atoi(word)
		t.reaches[number] = true
	}
	return t, err
}

// each calls do for every item, some at once, and returns the first error.
func each[T any](jobs int, items []T, do func(T) error) error {
	var failed error
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := make(chan T)
	for range max(jobs, 1) {
		workers.Go(func() {
			for item := range next {
				if err := do(item); err != nil {
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

// trySuite runs the tests that reach the mutant, the most promising first.
func (b *bench) trySuite(s *suite, number int) (verdict, string) {
	if s.device != "" {
		v, by, _ := b.run(s, number, s.timeout, "-test.run="+b.o.run, "-test.skip="+b.o.skip)
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
		v, by, _ := b.run(s, number, timeout, "-test.run="+exactly(names...))
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

// exactly matches the tests of these names.
func exactly(names ...string) string { return "^(" + strings.Join(names, "|") + ")$" }

// least is how long a run of tests may take besides six times what they take unbroken.
const least = 8 * time.Second

// rounds are the tests that reach a mutant: first those that have killed a mutant of the same
// function, many of others or reach little else; then more and more of the rest, slow ones last.
func (b *bench) rounds(s *suite, number int) [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutants[number-1]
	promise := map[string]float64{}
	for name, t := range s.tests {
		if !t.reaches[number] {
			continue
		}
		p := 1 / float64(len(t.reaches))
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

// run runs tests of a suite, and says which failed. Arguments with a dash are for the tests, others
// for their environment.
func (b *bench) run(s *suite, number int, timeout time.Duration, args ...string) (verdict, string, []byte) {
	env := []string{"GODAT_TEST_DEVICE=" + s.device, "GODAT_RULES_OUT=", fmt.Sprint(mutantEnv, "=", number)}
	args = slices.DeleteFunc(append([]string{s.binary}, args...), func(a string) bool {
		is := strings.HasPrefix(a, "GODAT_")
		if is {
			env = append(env, a)
		}
		return is
	})
	args = append(args, "-test.short", "-test.failfast", "-test.v")
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
	cmd := exec.CommandContext(b.ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(b.o.root, s.dir)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	inTime, err := runFor(cmd, timeout)
	switch {
	case inTime && err == nil:
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
