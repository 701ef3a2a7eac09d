// Command loop runs one loop on the loop device, over package cverbs or package udat, and prints
// figures as JSON: times in nanoseconds, and allocations per operation. The same loops in C are in
// lab/loopdev/loopbench.c.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// kind says what a loop does.
type kind int

const (
	kindPing  kind = iota // ping-pong of sends: the samples are round trips
	kindRate              // RDMA writes, one post at a time, 128 in flight, one in 32 signalled
	kindBatch             // RDMA writes in batches, all signalled
	kindMany              // RDMA writes on many queue pairs in turn, 64 in flight, with one completion queue
)

var kinds = map[string]kind{
	"ping": kindPing, "rate": kindRate, "batch": kindBatch, "many": kindMany,
}

// work describes the work of a loop. If a ping-pong has fewer than 1,000 samples when its
// time is over, it continues until it has them, or until 5 s are over.
type work struct {
	Kind    kind
	Size    int  // bytes of a message
	Batch   int  // kindBatch: writes of one post
	Ends    int  // kindMany: queue pairs
	Threads int  // kindPing: 1: one thread plays both ends in turn; 2: each end has a thread
	Events  bool // kindPing: wait for completion events

	Warmup, Time time.Duration
}

// run contains the results of a loop.
type run struct {
	samples []uint32 // ns
	ops     uint64   // if there are no samples: number of operations during the time took
	took    time.Duration
	allocs  float64 // allocations per operation
}

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	f := flag.NewFlagSet("loop [flags] cverbs|udat ping|rate|batch|many", flag.ExitOnError)
	var w work
	f.IntVar(&w.Size, "size", 64, "bytes of a message")
	f.IntVar(&w.Batch, "batch", 32, "batch: writes of one post")
	f.IntVar(&w.Ends, "ends", 1, "many: queue pairs")
	f.IntVar(&w.Threads, "threads", 1, "ping: 1 plays both ends in turn, 2 have one each")
	f.BoolVar(&w.Events, "events", false, "ping: wait for events")
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
	// The device reads the variable when it is opened.
	os.Setenv("GODAT_LOOP_WIRE", fmt.Sprint(*delay, ",", *gap))
	kind, ok := kinds[name]
	if !ok {
		return fmt.Errorf("there is no loop %q", name)
	}
	w.Kind = kind
	var r run
	var err error
	switch layer {
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

func print(w work, r run) error {
	out := map[string]float64{"allocs": r.allocs}
	if w.Kind == kindPing {
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

// clock measures the rounds of a ping-pong, or the operations of another loop.
type clock struct {
	w           work
	begin       time.Time
	last        time.Duration // when the last round ended, as the time since the field begin
	start, took time.Duration
	base, ops   uint64
	mallocs     uint64 // allocations when the warm-up was over
	samples     []uint32
}

func newClock(w work) *clock {
	return &clock{w: w, samples: make([]uint32, 0, 1<<20), begin: time.Now()}
}

// round records the end of a ping-pong's round, and reports whether the ping-pong must end.
func (c *clock) round() bool {
	t := time.Since(c.begin)
	if t >= c.w.Warmup && len(c.samples) < cap(c.samples) {
		if c.mallocs == 0 {
			c.mallocs = mallocs()
			t = time.Since(c.begin)
		} else {
			c.samples = append(c.samples, uint32(t-c.last))
		}
	}
	c.last = t
	return t >= c.w.Warmup+c.w.Time && (len(c.samples) >= rounds || t >= c.w.Warmup+longest)
}

// The method over reports whether a loop that is not a ping-pong must end. It also starts the
// measurement when the warm-up is over. The argument done is the number of operations so far.
func (c *clock) over(done uint64) bool {
	t := time.Since(c.begin)
	if c.start == 0 && t >= c.w.Warmup {
		c.mallocs = mallocs()
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
	if c.w.Kind == kindPing {
		r.samples, n = c.samples, uint64(len(c.samples))
	}
	if n > 0 {
		r.allocs = float64(mallocs()-c.mallocs) / float64(n)
	}
	return r
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// The constants are the same as in lab/loopdev/loopbench.c.
const (
	recvs    = 16
	signal   = 16
	depth    = 128
	moderate = 32
	window   = 64
	most     = 64 // completions of one poll
	clocked  = 1024
	rounds   = 1000
	longest  = 5 * time.Second
	spins    = 64 // polls in one call
	maxSize  = 1 << 16
	inline   = 128 // largest message that udat sends inline, in bytes
)

// request is what a program remembers about a request that it has posted.
type request struct {
	cookie         uint64
	length, opcode uint32
}
