// Mutate breaks the packages that ship in many small ways, and expects the tests to notice each. It
// exits with status 1 if the tests do not notice a mutant that has no explanation. It never changes
// the tree: it builds mutants with an overlay. docs/mutation.md says more.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	root             string
	targets          []target
	all              bool
	seed             uint64
	perMille         int
	only, skip, run  string
	in               string
	explained, holes string
	log              string
	retry, list      bool
	excused          bool
	device           string
	gate             bool
	timeout          time.Duration
	jobs             int
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the root of the module")
	flag.BoolVar(&o.all, "all", false, "try all mutants instead of the fixed sample")
	flag.Uint64Var(&o.seed, "seed", 1, "of the sample")
	flag.IntVar(&o.perMille, "per-mille", 20, "size of the sample, beside the mutants made by hand")
	flag.StringVar(&o.only, "only", "", "of all, only mutants whose place and change contain this")
	flag.StringVar(&o.in, "in", "", "only mutants of the package in this directory, such as cverbs")
	flag.StringVar(&o.skip, "skip", "Races|Allocate|ManyConnections",
		"tests not to run: long searches for races, and tests of speed and memory: the build with all mutants is slow")
	flag.StringVar(&o.run, "run", "", "only these tests, as in go test")
	flag.StringVar(&o.explained, "explained", "lab/mutate/explained.tsv",
		"mutants that may survive: file, function, change, reason")
	flag.StringVar(&o.holes, "holes", "lab/mutate/holes.tsv",
		"mutants made by hand: file, function, code, code instead, bug")
	flag.StringVar(&o.log, "log", "", "append each result to this file; mutants that it already has are not tried again")
	flag.BoolVar(&o.retry, "retry", false, "try the survivors of the log again, and nothing else")
	flag.BoolVar(&o.excused, "excused", false, "try the mutants that are explained; those killed need no explanation")
	flag.BoolVar(&o.list, "list", false, "list the mutants and try none")
	flag.StringVar(&o.device, "device", "",
		"run the tests in the virtual machine, on this device of it, rxe0; only mutants of packages that use one, or -only")
	flag.BoolVar(&o.gate, "gate", false,
		"build the tests as the gate does, with the race detector where it has it: what survives only nightly can kill")
	flag.DurationVar(&o.timeout, "timeout", 0,
		"for one run of tests; 0: 8s and six times what they take unbroken")
	flag.IntVar(&o.jobs, "j", 4, "how many mutants to try at once")
	flag.Parse()
	ok, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(o options) (bool, error) {
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return false, err
	}
	o.targets = targets
	sources, err := load(o.root, o.targets)
	if err != nil {
		return false, err
	}
	mutants, err := collect(o.holes, sources)
	if err != nil {
		return false, err
	}
	explained, err := readExplained(o.explained)
	if err != nil {
		return false, err
	}
	if stale := explained.unknown(mutants); len(stale) > 0 {
		return false, fmt.Errorf("%s explains mutants that there are not:\n  %s", o.explained, strings.Join(stale, "\n  "))
	}
	if o.excused {
		mutants = slices.DeleteFunc(mutants, func(m Mutant) bool { return explained[m.key()] == "" })
		o.all = true
	}
	if mutants, err = choose(o, mutants); err != nil {
		return false, err
	}
	if o.list {
		for _, m := range mutants {
			fmt.Println(m)
		}
		fmt.Println(len(mutants), "mutants")
		return true, nil
	}
	l, err := openLog(o.log)
	if err != nil {
		return false, err
	}
	defer l.close()
	if o.retry {
		mutants = slices.DeleteFunc(mutants, func(m Mutant) bool { return !l.forget(m) })
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBench(ctx, o, sources, mutants)
	if err != nil {
		return false, err
	}
	defer b.close()
	return try(b, explained, l)
}

// collect returns all mutants: first those made by hand, then those of each file.
func collect(holes string, sources map[string]*source) ([]Mutant, error) {
	all, err := readHoles(holes, sources)
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, Mutants(file, sources[file])...)
	}
	return all, nil
}

// choose returns the mutants that the options select: the fixed sample, all mutants, or those that
// contain a text. If the device of a target's tests lacks much, choose selects only mutants in
// lines that these tests run.
func choose(o options, all []Mutant) ([]Mutant, error) {
	list := slices.DeleteFunc(all, func(m Mutant) bool {
		return !strings.Contains(m.String(), o.only) || o.in != "" && path.Dir(m.File) != path.Clean(o.in)
	})
	for _, t := range o.targets {
		of := func(m Mutant) bool { return path.Dir(m.File) == t.dir }
		switch {
		case o.device == "" && t.partly && slices.ContainsFunc(list, of):
			r, err := reachOf(o.root, t)
			if err != nil {
				return nil, err
			}
			list = slices.DeleteFunc(list, func(m Mutant) bool {
				return of(m) && path.Ext(m.File) == ".go" && !m.Alone && !r.covers(path.Base(m.File), m.Line)
			})
		case o.device != "" && !t.partly && o.only == "":
			list = slices.DeleteFunc(list, of)
		}
	}
	if !o.all && o.only == "" {
		list = sampled(list, o.seed, o.perMille)
	}
	return list, nil
}

// try runs the tests on every mutant without a known result. It returns what report returns.
func try(b *bench, explained explanations, l *resultLog) (bool, error) {
	var numbers []int
	for i, m := range b.mutants {
		if _, _, known := l.known(m); !known {
			numbers = append(numbers, i+1)
		}
	}
	slices.SortStableFunc(numbers, func(x, y int) int { // last those that need their own program, which takes long
		return cmp.Compare(order(b.mutants[x-1]), order(b.mutants[y-1]))
	})
	failed := forEach(b.o.jobs, numbers, func(i int) error {
		start := time.Now()
		v, by := b.try(i)
		if b.ctx.Err() != nil {
			return b.ctx.Err() // the user stopped the run, which says nothing about the mutant
		}
		m := b.mutants[i-1]
		fmt.Printf("%4d/%d %-8s %s  [%s] %.1fs\n", i, len(b.mutants), v, m, by, time.Since(start).Seconds())
		return l.add(m, v, by)
	})
	if failed != nil {
		return false, failed
	}
	return report(b.mutants, explained, l), nil
}

// order returns 0 for a mutant in the common program, and 1 for a mutant that needs its own.
func order(m Mutant) int {
	if m.Alone {
		return 1
	}
	return 0
}

// report prints the survivors, and the sums for each package and for all packages. It returns false
// if a mutant survives without an explanation, or if a mutant made by hand does not compile.
func report(mutants []Mutant, explained explanations, l *resultLog) bool {
	sums := map[string]*sum{}
	var total sum
	compile := true
	for _, m := range mutants {
		dir := path.Dir(m.File)
		if sums[dir] == nil {
			sums[dir] = new(sum)
		}
		v, _, _ := l.known(m)
		why, ok := explained[m.key()]
		sums[dir].add(v, ok)
		total.add(v, ok)
		if v == stillborn && m.Hole != "" {
			fmt.Printf("made by hand, and does not compile: %s\n", m)
			compile = false
		}
		if v == survived {
			fmt.Printf("survivor: %s\n", m)
			if ok {
				fmt.Printf("      explained: %s\n", why)
			} else {
				fmt.Printf("      %s\n", strings.Join(m.keys(), "\t"))
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(sums)) {
		fmt.Printf("%s: %v\n", dir, *sums[dir])
	}
	fmt.Printf("mutants: %v\n", total)
	return compile && total.survive == total.explained
}

// sum counts mutants by result.
type sum struct{ tried, killed, survive, explained int }

func (s *sum) add(v verdict, isExplained bool) {
	if v != stillborn {
		s.tried++
	}
	switch v {
	case killed, hung:
		s.killed++
	case survived:
		s.survive++
		if isExplained {
			s.explained++
		}
	}
}

func (s sum) String() string {
	return fmt.Sprintf("%d tried, %d killed, %d survive, %d explained", s.tried, s.killed, s.survive, s.explained)
}
