// Mutate breaks package udat and its fabrics in many small ways and expects the tests to notice
// each. What they do not notice, and no line of the explanations accounts for, makes it exit with
// 1. The tree is never touched: mutants are built with an overlay. docs/mutation.md says more.
package main

import (
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

// packages are mutated, below the directory of package udat.
var packages = []string{".", "internal/memfabric", "internal/verbsfabric"}

type options struct {
	root, dir        string
	all              bool
	seed             uint64
	perMille         int
	only, skip, run  string
	explained, holes string
	log              string
	retry, list      bool
	device           string
	timeout          time.Duration
	jobs             int
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the root of the module")
	flag.StringVar(&o.dir, "dir", "udat", "the directory of package udat")
	flag.BoolVar(&o.all, "all", false, "try all mutants instead of the fixed sample")
	flag.Uint64Var(&o.seed, "seed", 1, "of the sample")
	flag.IntVar(&o.perMille, "per-mille", 20, "size of the sample, beside the mutants made by hand")
	flag.StringVar(&o.only, "only", "", "of all, only mutants whose place and change contain this")
	flag.StringVar(&o.skip, "skip", "Races|Allocate|DtestS|DtestC",
		"tests not to run: long searches for races, and tests of speed, because the build with all mutants is slow")
	flag.StringVar(&o.run, "run", "", "only these tests, as in go test")
	flag.StringVar(&o.explained, "explained", "tools/mutate/explained.tsv",
		"mutants that may survive: file, function, change, reason")
	flag.StringVar(&o.holes, "holes", "tools/mutate/holes.tsv",
		"mutants made by hand: file, function, code, code instead, bug")
	flag.StringVar(&o.log, "log", "", "append each result to this file; mutants that it already has are not tried again")
	flag.BoolVar(&o.retry, "retry", false, "try the survivors of the log again, and nothing else")
	flag.BoolVar(&o.list, "list", false, "list the mutants and try none")
	flag.StringVar(&o.device, "device", "",
		"run the tests in the virtual machine, on this device of it, rxe0; only mutants of verbsfabric, or -only")
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
	var dirs []string
	for _, p := range packages {
		dirs = append(dirs, path.Join(o.dir, p))
	}
	sources, err := load(o.root, o.dir, dirs)
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

// collect returns all mutants: those made by hand, then those of each file.
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

// choose returns the mutants that the options name: the fixed sample, all, or those that contain a
// text. Of a package that needs a device, only what tests without one reach.
func choose(o options, all []Mutant) ([]Mutant, error) {
	var reached func(Mutant) bool
	if o.device == "" {
		r, err := reachOf(o.root, path.Join(o.dir, "internal/verbsfabric"))
		if err != nil {
			return nil, err
		}
		reached = func(m Mutant) bool {
			return path.Dir(m.File) != "internal/verbsfabric" || r.covers(path.Base(m.File), m.Line)
		}
	} else {
		reached = func(m Mutant) bool { return o.only != "" || path.Dir(m.File) == "internal/verbsfabric" }
	}
	return slices.DeleteFunc(all, func(m Mutant) bool {
		chosen := o.all || m.inSample(o.seed, o.perMille)
		if o.only != "" {
			chosen = strings.Contains(m.String(), o.only)
		}
		return !chosen || !reached(m)
	}), nil
}

// try runs the tests on every mutant. It is false if any survives without an explanation.
func try(b *bench, explained explanations, l *resultLog) (bool, error) {
	var numbers []int
	for i, m := range b.mutants {
		if _, _, known := l.known(m); !known {
			numbers = append(numbers, i+1)
		}
	}
	failed := each(b.o.jobs, numbers, func(i int) error {
		start := time.Now()
		v, by := b.try(i)
		if b.ctx.Err() != nil {
			return b.ctx.Err() // stopped: that says nothing about the mutant
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

// report prints the survivors and the sum of a run.
func report(mutants []Mutant, explained explanations, l *resultLog) bool {
	counts := map[verdict]int{}
	known := 0
	for _, m := range mutants {
		v, _, _ := l.known(m)
		counts[v]++
		if v != survived {
			continue
		}
		fmt.Printf("survivor: %s\n", m)
		if why, ok := explained[m.key()]; ok {
			known++
			fmt.Printf("      explained: %s\n", why)
		}
	}
	fmt.Printf("mutants: %d tried, %d killed, %d survive, %d explained\n",
		len(mutants)-counts[stillborn], counts[killed]+counts[hung], counts[survived], known)
	return counts[survived] == known
}
