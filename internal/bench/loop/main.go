//go:build linux && cgo && nulldev

// Command loop runs one loop on the loop device, in C, over package cverbs or over package udat,
// and prints its figures as JSON: times in nanoseconds, the others per operation.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/cverbs"
)

var kinds = map[string]cverbs.LoopKind{
	"ping": cverbs.LoopPing, "write": cverbs.LoopWrite, "read": cverbs.LoopRead, "rate": cverbs.LoopRate,
	"batch": cverbs.LoopBatch, "many": cverbs.LoopMany, "posters": cverbs.LoopPosters,
}

// run is what a loop found.
type run struct {
	samples []uint32 // ns
	ops     uint64   // with took, where there are no samples
	took    time.Duration
	allocs  float64 // per operation
	calls   float64 // of read and write, per operation
}

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	f := flag.NewFlagSet("loop [flags] c|cverbs|udat ping|write|read|rate|batch|many|posters|waiters", flag.ExitOnError)
	var w cverbs.LoopWork
	f.IntVar(&w.Size, "size", 64, "bytes of a message")
	f.IntVar(&w.Batch, "batch", 32, "batch: writes of one post")
	f.IntVar(&w.Ends, "ends", 1, "many, waiters: queue pairs")
	f.IntVar(&w.Threads, "threads", 1, "ping: 1 plays both ends in turn, 2 have one each")
	f.BoolVar(&w.Events, "events", false, "ping: wait for events")
	f.BoolVar(&w.Shared, "shared", false, "posters: both post on one queue pair")
	f.DurationVar(&w.Warmup, "warmup", 50*time.Millisecond, "before it measures")
	f.DurationVar(&w.Time, "time", 200*time.Millisecond, "for which it measures")
	delay := f.Duration("delay", 0, "for which a message is under way")
	gap := f.Duration("gap", 0, "between two messages of a queue pair")
	f.Parse(args)
	if f.NArg() != 2 {
		f.Usage()
		return errors.New("a layer and a loop are needed")
	}
	layer, name := f.Arg(0), f.Arg(1)
	cverbs.LoopWire(*delay, *gap)
	if name == "waiters" {
		return waiters(layer, w.Ends)
	}
	kind, ok := kinds[name]
	if !ok {
		return fmt.Errorf("there is no loop %q", name)
	}
	w.Kind = kind
	var r run
	var err error
	switch layer {
	case "c":
		before := calls()
		r.samples, r.ops, r.took, err = cverbs.LoopBench(w)
		r.calls = float64(calls()-before) / float64(max(1, r.ops))
	case "cverbs":
		r, err = runCverbs(w)
	case "udat":
		r, err = runUdat(w)
	default:
		return fmt.Errorf("there is no layer %q", layer)
	}
	if err != nil {
		return err
	}
	return print(w, r)
}

func print(w cverbs.LoopWork, r run) error {
	out := map[string]float64{"allocs": r.allocs, "calls": r.calls}
	if w.Kind <= cverbs.LoopRead {
		if len(r.samples) == 0 {
			return errors.New("no round was measured")
		}
		slices.Sort(r.samples)
		out["p50"], out["p99"] = float64(r.samples[len(r.samples)/2]), float64(r.samples[len(r.samples)*99/100])
	} else {
		if r.ops == 0 {
			return errors.New("nothing completed")
		}
		out["ns"] = float64(r.took) / float64(r.ops)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// waiters makes ends with a goroutine each that waits for an event, and prints how many threads and
// goroutines the process has then.
func waiters(layer string, n int) error {
	before := runtime.NumGoroutine()
	began := threads()
	var stop func() error
	var err error
	switch layer {
	case "cverbs":
		stop, err = waitCverbs(n)
	case "udat":
		stop, err = waitUdat(n)
	default:
		return fmt.Errorf("layer %q has no waiters", layer)
	}
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // all have parked by now
	out := map[string]float64{
		"goroutines": float64(runtime.NumGoroutine() - before),
		"threads":    float64(threads()), "threads_before": float64(began),
	}
	if err := stop(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// threads returns the number of this process's threads.
func threads() int {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		n := 0
		if k, _ := fmt.Sscanf(line, "Threads: %d", &n); k == 1 {
			return n
		}
	}
	return 0
}

// clock times the rounds of a loop, or its operations.
type clock struct {
	w              cverbs.LoopWork
	begin          time.Time
	last           time.Duration // since begin
	start, took    time.Duration
	base, ops      uint64
	mallocs, calls uint64 // when the warm-up was over
	samples        []uint32
}

func newClock(w cverbs.LoopWork) *clock {
	return &clock{w: w, samples: make([]uint32, 0, 1<<20), begin: time.Now()}
}

// round records the end of a round and reports whether the time is over.
func (c *clock) round() bool {
	t := time.Since(c.begin)
	if t >= c.w.Warmup && len(c.samples) < cap(c.samples) {
		if c.mallocs == 0 {
			c.calls, c.mallocs = calls(), mallocs()
			t = time.Since(c.begin)
		} else {
			c.samples = append(c.samples, uint32(t-c.last))
		}
	}
	c.last = t
	return t >= c.w.Warmup+c.w.Time && (len(c.samples) >= rounds || t >= c.w.Warmup+longest)
}

// over is round for streams; done counts the operations so far.
func (c *clock) over(done uint64) bool {
	t := time.Since(c.begin)
	if c.start == 0 && t >= c.w.Warmup {
		c.calls, c.mallocs = calls(), mallocs()
		c.start, c.base = time.Since(c.begin), done
		return false
	}
	if c.start == 0 || t-c.start < c.w.Time {
		return false
	}
	c.took, c.ops = t-c.start, done-c.base
	return true
}

func (c *clock) end() run {
	r := run{ops: c.ops, took: c.took}
	n := c.ops
	if c.w.Kind <= cverbs.LoopRead {
		r.samples, n = c.samples, uint64(len(c.samples))
	}
	if n > 0 {
		r.allocs, r.calls = float64(mallocs()-c.mallocs)/float64(n), float64(calls()-c.calls)/float64(n)
	}
	return r
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// calls returns how often this process has read and written descriptors.
func calls() (n uint64) {
	data, _ := os.ReadFile("/proc/self/io")
	for line := range strings.Lines(string(data)) {
		var k uint64
		for _, name := range []string{"syscr: %d", "syscw: %d"} {
			if got, _ := fmt.Sscanf(line, name, &k); got == 1 {
				n += k
			}
		}
	}
	return n
}

// The numbers of cverbs/loopbench.c.
const (
	recvs    = 16
	signal   = 16
	depth    = 128
	moderate = 32
	window   = 64
	clocked  = 1024
	rounds   = 1000
	longest  = 5 * time.Second
	spins    = 64 // polls of one call
	maxSize  = 1 << 16
	inline   = 128 // bytes that udat sends inline
)

// request is what a program knows of a request that it has posted.
type request struct {
	cookie         uint64
	length, opcode uint32
}
