package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// The series of the part loop: internal/bench/loop in its two builds, each with its layers.
var loopSeries = []struct{ name, program, layer string }{
	{"C", "loop", "c"},
	{"cverbs", "loop", "cverbs"},
	{"udat", "loop", "udat"},
	{"cverbs, direct", "loop-direct", "cverbs"},
	{"udat, direct", "loop-direct", "udat"},
}

const loopHow = "loop $FLAGS c|cverbs|udat $LOOP   # -tags nulldev; direct: -tags nulldev,godat_direct"

// none is how few allocations or system calls per operation count as none: the runtime has some of
// its own in a run of thousands of operations.
const none = 0.01

// loopTime bounds the rounds.
const loopTime = 250 * time.Second

// loopRun is one setting of that program, and where its figures go.
type loopRun struct {
	row  string
	loop string
	args []string
	one  bool                     // on one processor
	to   map[string]*result.Table // by the program's name for the figure
}

// loopTables are the tables of the part loop.
type loopTables struct {
	ping50, ping99, one50, one99, rate, batch, event, calls, many, posters, allocs, waiters *result.Table
}

func newLoopTables(p *result.Section) *loopTables {
	add := func(unit, title, note string, series ...string) *result.Table {
		t := &result.Table{Title: title, Unit: unit, Note: note, Series: series, How: []string{loopHow}}
		p.Tables = append(p.Tables, t)
		return t
	}
	table := func(unit, title, note string) *result.Table {
		t := add(unit, title, note)
		for _, s := range loopSeries {
			t.Series = append(t.Series, s.name)
		}
		return t
	}
	const writes = "RDMA writes of 64 bytes"
	return &loopTables{
		ping50: table("ns", "Ping-pong, polled: half of the round trip, median",
			"Sends between two queue pairs of one process; a message is 1 us under way. One thread plays both ends "+
				"in turn, or two have one each. Receives are posted again behind the answer; one send in 16 is "+
				"signalled."),
		ping99: table("ns", "Ping-pong, polled: half of the round trip, 99th percentile", ""),
		one50: table("ns", "One operation at a time, polled: median",
			"From one post to the next; a message is 1 us under way, each way."),
		one99: table("ns", "One operation at a time, polled: 99th percentile", ""),
		rate: table("ops/s", "Message rate", writes+", one post at a time, 128 in flight, one in 32 signalled. "+
			"The gap is between the departures of two messages; its marks leave 1 % for noise."),
		batch: table("ns", "Batches: time per operation", writes+", all signalled. Each has a context, a segment and "+
			"a work request of its own, and its completion leads back to the context."),
		event: table("ns", "Ping-pong with events: half of the round trip, median",
			"Sends of 64 bytes, 1 us under way. C polls, arms, polls and calls ibv_get_cq_event; cverbs does the same "+
				"with CompChannel.Wait; udat calls EVD.Wait."),
		calls: table("calls", "Ping-pong with events: reads and writes of descriptors for each round trip",
			"As the kernel counts them (/proc/self/io), both ends."),
		many: table("ns", "Endpoints on one completion queue: time per operation",
			writes+" on the endpoints in turn, 64 in flight in all, all signalled."),
		posters: table("ops/s", "Two goroutines (C: threads) that post and poll",
			writes+", all signalled, 128 in flight on each endpoint."),
		allocs: table("allocations", "Allocations per operation, the most of all runs", ""),
		waiters: add("", "Endpoints with a goroutine each that waits", "Threads of the whole process.",
			"cverbs, threads", "udat, threads", "cverbs, goroutines", "udat, goroutines"),
	}
}

// runs are all settings of one round.
func (t *loopTables) runs() (all []loopRun) {
	for _, threads := range []string{"1", "2"} {
		for _, s := range sizes[:3] {
			name := s.name
			if threads == "2" {
				name += ", two threads"
			}
			args := []string{"-delay", "1us", "-size", strconv.Itoa(s.bytes), "-threads", threads}
			to := map[string]*result.Table{"p50": t.ping50, "p99": t.ping99}
			all = append(all, loopRun{row: name, loop: "ping", args: args, to: to})
		}
	}
	for _, op := range []string{"write", "read"} {
		for _, s := range sizes[:3] {
			args := []string{"-delay", "1us", "-size", strconv.Itoa(s.bytes)}
			to := map[string]*result.Table{"p50": t.one50, "p99": t.one99}
			all = append(all, loopRun{row: op + ", " + s.name, loop: op, args: args, to: to})
		}
	}
	stream := func(to *result.Table, row, loop string, one bool, args ...string) {
		all = append(all, loopRun{row: row, loop: loop, args: args, one: one, to: map[string]*result.Table{"ns": to}})
	}
	stream(t.rate, "no gap", "rate", false)
	stream(t.rate, "gap of 50 ns", "rate", false, "-gap", "50ns")
	for _, n := range []string{"1", "16", "32"} {
		stream(t.batch, n, "batch", false, "-batch", n)
	}
	for threads, row := range []string{"one thread", "two threads"} {
		args := []string{"-delay", "1us", "-events", "-threads", strconv.Itoa(threads + 1)}
		to := map[string]*result.Table{"p50": t.event, "calls": t.calls}
		all = append(all, loopRun{row: row, loop: "ping", args: args, to: to})
	}
	for _, n := range endpoints {
		stream(t.many, strconv.Itoa(n), "many", false, "-ends", strconv.Itoa(n))
	}
	for _, one := range []bool{false, true} {
		where := ", two processors"
		if one {
			where = ", one processor"
		}
		stream(t.posters, "an endpoint each"+where, "posters", one)
		stream(t.posters, "one endpoint"+where, "posters", one, "-shared")
	}
	return all
}

// loop measures the layers on the loop device: each round runs every setting in all series, one
// after the other.
func (b *bench) loop(p *result.Section) error {
	t := newLoopTables(p)
	err := b.inRounds(loopTime, func() error {
		for _, r := range t.runs() {
			b.loopRound(t, r)
		}
		b.loopWaiters(t.waiters)
		return nil
	})
	t.judge()
	return err
}

// loopRound runs one setting in every series. Round trips are halved.
func (b *bench) loopRound(t *loopTables, r loopRun) {
	for _, s := range loopSeries {
		fig, line, err := b.loopFigures(s.program, r.one, append(slices.Clip(r.args), s.layer, r.loop)...)
		for name, to := range r.to {
			v, ok := fig[name]
			switch {
			case err != nil:
			case !ok:
				err = fmt.Errorf("no figure %s", name)
			case to == t.ping50 || to == t.ping99 || to == t.event:
				v /= 2
			case to.Unit == "ops/s":
				v = 1e9 / v
			}
			if err != nil {
				to.Fail(r.row, s.name, err)
				continue
			}
			to.Add(r.row, s.name, line, v)
		}
		if s.layer != "c" && err == nil {
			row := r.loop
			if r.to["calls"] != nil {
				row += " with events, " + r.row
			}
			t.allocs.Add(row, s.name, line, fig["allocs"])
		}
	}
}

// judge sets the marks.
func (t *loopTables) judge() {
	for _, x := range []*result.Table{t.ping50, t.ping99, t.one50, t.one99} {
		x.Mark("cverbs", "<=", 1.05, "C")
		x.Mark("udat", "<=", 1.10, "C")
		x.Mark("cverbs, direct", "<=", 1.03, "C")
		x.Mark("udat, direct", "<=", 1.07, "C")
	}
	t.rate.Mark("cverbs", ">=", 0.9, "C", "no gap")
	t.rate.Mark("udat", ">=", 0.75, "C", "no gap")
	t.batch.Mark("cverbs", "<=", 1.4, "C", "16", "32")
	t.batch.Mark("udat", "<=", 2.5, "C", "16", "32")
	t.event.Mark("cverbs", "<=", 1.10, "C")
	t.event.Mark("udat", "<=", 1.20, "C")
	for _, layer := range layers {
		t.rate.Mark(layer, ">=", 0.99, "C", "gap of 50 ns")
		t.posters.Mark(layer, ">=", 0.9, "C")
	}
	for _, s := range t.many.Series {
		first := t.many.Sample("1", s)
		for _, r := range t.many.Rows {
			if v := t.many.Sample(r.Name, s); v != nil && first != nil && r.Name != "1" {
				r.Limit(s+" <= 1.2 x its time with one endpoint", v.Ratio(first), 1.2)
			}
		}
		for _, r := range t.allocs.Rows {
			if c := r.Cells[s]; c != nil {
				r.Limit(s+" allocates nothing", c.Max, none)
			}
		}
	}
	row := t.calls.Row("one thread") // its messages are 1 us under way
	if c := row.Cells["udat"]; c != nil {
		row.Limit("udat does not leave user space", c.Median, none)
	}
	for _, s := range t.waiters.Series[:2] {
		if few, all := t.waiters.Sample("16", s), t.waiters.Sample("1024", s); few != nil && all != nil {
			t.waiters.Row("1024").Limit(s+": at most one more than with 16", all.Median-few.Median, 1)
		}
	}
}

func (b *bench) loopFigures(program string, one bool, args ...string) (fig map[string]float64, line string, err error) {
	argv := []string{filepath.Join(b.bin, program)}
	if !slices.Contains(args, "waiters") { // it measures no time
		warmup, length := 30*time.Millisecond, 150*time.Millisecond
		if b.quick {
			warmup, length = warmup/10, length/10
		}
		argv = append(argv, "-warmup", warmup.String(), "-time", length.String())
	}
	argv = append(argv, args...)
	if one {
		cpu := 0
		if b.cpus != nil {
			cpu = b.cpus[clientEnd]
		}
		argv = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, argv...)
	}
	out, err := b.run(pairTime, argv...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &fig)
	}
	return fig, show(argv), err
}

func (b *bench) loopWaiters(t *result.Table) {
	for _, n := range []string{"16", "1024"} {
		for _, layer := range []string{"cverbs", "udat"} {
			fig, line, err := b.loopFigures("loop", false, "-ends", n, layer, "waiters")
			for _, what := range []string{"threads", "goroutines"} {
				if err != nil {
					t.Fail(n, layer+", "+what, err)
				} else {
					t.Add(n, layer+", "+what, line, fig[what])
				}
			}
		}
	}
}
