// Mutate breaks package udat in many small ways and expects its tests to notice each. What they do not notice, and no line of
// the explanations accounts for, makes it exit with 1. The tree is never touched: mutants are built with an overlay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// targets are the files to mutate, what matters most first, each with the functions that count where not all do.
var targets = []struct {
	file string
	only []string
}{
	{"evd_wait.go", nil},
	{"op.go", nil},
	{"ep_post.go", nil},
	{"ep_recv.go", nil},
	{"ep_state.go", nil},
	{"ep.go", []string{"RecvQuery", "GetStatus"}},
	{"ep_connect.go", nil},
	{"workqueue.go", nil},
	{"evd.go", nil},
}

type options struct {
	dir       string
	n         int
	seed      uint64
	only      string
	skip      string
	explained string
	log       string
	retry     bool
	list      bool
	timeout   time.Duration
	jobs      int
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "udat", "the package's directory")
	flag.IntVar(&o.n, "n", 0, "try a random sample of so many mutants; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "of the sample")
	flag.StringVar(&o.only, "only", "", "only mutants whose place and change contain this")
	flag.StringVar(&o.skip, "skip", "Races|Allocate", "tests not to run: those that take long and are after races, and those of speed, which a build with all mutants in it has less of")
	flag.StringVar(&o.explained, "explained", "tools/mutate/explained.tsv", "explanations of mutants that may survive: file, function, change, reason")
	flag.StringVar(&o.log, "log", "", "append each result to this file; mutants that it already has are not tried again")
	flag.BoolVar(&o.retry, "retry", false, "try the survivors of the log again, and nothing else")
	flag.BoolVar(&o.list, "list", false, "list the mutants and try none")
	flag.DurationVar(&o.timeout, "timeout", 0, "for one run of the tests; 0: four times what they take unbroken, at least 45s")
	flag.IntVar(&o.jobs, "j", 1, "how many mutants to try at once")
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
	mutants, err := collect(o)
	if err != nil {
		return false, err
	}
	explained, err := readExplained(o.explained)
	if err != nil {
		return false, err
	}
	if stale := explained.unknown(o.dir); len(stale) > 0 {
		return false, fmt.Errorf("%s explains mutants that there are not:\n  %s", o.explained, strings.Join(stale, "\n  "))
	}
	if o.list {
		for _, m := range mutants {
			fmt.Println(place(m))
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
	b, err := newBench(ctx, o, mutants)
	if err != nil {
		return false, err
	}
	defer b.close()
	return try(b, mutants, o.jobs, explained, l)
}

// collect gives the mutants of all targets, or the sample of them, in order.
func collect(o options) ([]Mutant, error) {
	var all []Mutant
	for _, t := range targets {
		src, err := os.ReadFile(filepath.Join(o.dir, t.file))
		if err != nil {
			return nil, err
		}
		list, err := Mutants(t.file, src, t.only)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	all = slices.DeleteFunc(all, func(m Mutant) bool { return !strings.Contains(place(m), o.only) })
	if o.n <= 0 || o.n >= len(all) {
		return all, nil
	}
	picked := rand.New(rand.NewPCG(o.seed, 0)).Perm(len(all))[:o.n]
	slices.Sort(picked)
	sample := make([]Mutant, 0, o.n)
	for _, i := range picked {
		sample = append(sample, all[i])
	}
	return sample, nil
}

func place(m Mutant) string { return fmt.Sprintf("%s:%d %s: %s", m.File, m.Line, m.Func, m.What()) }

// try runs the tests on every mutant. It is false if any survives without an explanation.
func try(b *bench, mutants []Mutant, jobs int, explained explanations, l *resultLog) (bool, error) {
	next := make(chan int)
	var workers sync.WaitGroup
	var failed error // under mu
	var mu sync.Mutex
	for range max(jobs, 1) {
		workers.Go(func() {
			for i := range next {
				v, by := b.try(i + 1)
				if b.ctx.Err() != nil {
					continue // stopped: that says nothing about the mutant
				}
				fmt.Printf("%4d/%d %-8s %s  [%s]\n", i+1, len(mutants), v, place(mutants[i]), by)
				err := l.add(mutants[i], v, by)
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for i, m := range mutants {
		if _, _, known := l.known(m); !known {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	if failed = errors.Join(failed, b.ctx.Err()); failed != nil {
		return false, failed
	}
	var survivors []string
	counts := map[verdict]int{}
	unexplained := 0
	for _, m := range mutants {
		v, _, _ := l.known(m)
		counts[v]++
		if v != survived {
			continue
		}
		line := place(m)
		if why, ok := explained.of(m); ok {
			line += "\n      explained: " + why
		} else {
			unexplained++
		}
		survivors = append(survivors, line)
	}
	if len(survivors) > 0 {
		fmt.Println("survivors:")
		for _, s := range survivors {
			fmt.Println("  " + s)
		}
	}
	fmt.Printf("mutate: %d mutants: %d killed, %d hung, %d do not compile, %d survive, %d of these without an explanation\n",
		len(mutants), counts[killed], counts[hung], counts[stillborn], counts[survived], unexplained)
	return unexplained == 0, nil
}
