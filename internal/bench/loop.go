package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The series of the part loop: the program of internal/bench/loop in its two builds, each with its layers.
var loopSeries = []struct{ name, program, layer string }{
	{"C", "loop", "c"},
	{"cverbs", "loop", "cverbs"},
	{"udat", "loop", "udat"},
	{"cverbs, direct", "loop-direct", "cverbs"},
	{"udat, direct", "loop-direct", "udat"},
}

// loopRun is one setting of that program, and where its figures go.
type loopRun struct {
	row  string
	args []string
	one  bool // on one processor
	to   map[string]*Table
}

// none is how few allocations and calls per operation count as none: the runtime has a few of its own in a run of thousands.
const none = 0.01

// loop measures the layers on the loop device: each round runs every setting, and each setting all series in turn.
func (b *bench) loop(p *Part) error {
	var names []string
	for _, s := range loopSeries {
		names = append(names, s.name)
	}
	how := []string{"loop $FLAGS c|cverbs|udat $LOOP   # go build -tags nulldev ./internal/bench/loop; direct: -tags nulldev,godat_direct"}
	table := func(unit, title, note string) *Table {
		t := &Table{Title: title, Unit: unit, Note: note, Series: names, How: how}
		p.Tables = append(p.Tables, t)
		return t
	}
	pingNote := "Sends between two queue pairs of one process, a message 1 us under way; one thread plays both ends in turn, or two have one each. Receives are posted again behind the answer; one send in 16 is signalled."
	ping50 := table("ns", "Ping-pong, polled: half of the round trip, median", pingNote)
	ping99 := table("ns", "Ping-pong, polled: half of the round trip, 99th percentile", "")
	one50 := table("ns", "One operation at a time, polled: median", "From one post to the next; a message is 1 us under way, each way.")
	one99 := table("ns", "One operation at a time, polled: 99th percentile", "")
	rate := table("ops/s", "Message rate", "RDMA writes of 64 bytes, one post at a time, 128 in flight, one in 32 signalled. The gap is between the departures of two messages; with it the marks leave 1 % for noise.")
	batch := table("ns", "Batches: time per operation", "RDMA writes of 64 bytes, all signalled. Each has a context, a segment and a work request of its own, and its completion leads back to the context.")
	event := table("ns", "Ping-pong with events: half of the round trip, median", "Sends of 64 bytes, 1 us under way. C polls, arms, polls and calls ibv_get_cq_event; cverbs does the same with CompChannel.Wait; udat calls EVD.Wait.")
	calls := table("calls", "Ping-pong with events: reads and writes of descriptors for each round trip", "As the kernel counts them (/proc/self/io), both ends.")
	many := table("ns", "Endpoints on one completion queue: time per operation", "RDMA writes of 64 bytes on the endpoints in turn, 64 in flight in all, all signalled.")
	growth := "<= 1.2 x its time with one endpoint"
	posters := table("ops/s", "Two goroutines (C: threads) that post and poll", "RDMA writes of 64 bytes, all signalled, 128 in flight on each endpoint.")
	allocs := table("allocations", "Allocations per operation, at the most", "")
	waiters := &Table{Title: "Endpoints with a goroutine each that waits", Unit: "", Series: []string{"cverbs, threads", "udat, threads", "cverbs, goroutines", "udat, goroutines"}, How: how}
	p.Tables = append(p.Tables, waiters)

	wire := []string{"-delay", "1us"}
	var runs []loopRun
	for _, threads := range []int{1, 2} {
		for _, s := range sizes[:3] {
			name := s.name
			if threads == 2 {
				name += ", two threads"
			}
			runs = append(runs, loopRun{name, append(slices.Clip(wire), "-size", strconv.Itoa(s.bytes), "-threads", strconv.Itoa(threads), "ping"), false,
				map[string]*Table{"p50": ping50, "p99": ping99}})
		}
	}
	for _, op := range []string{"write", "read"} {
		for _, s := range sizes[:3] {
			runs = append(runs, loopRun{op + ", " + s.name, append(slices.Clip(wire), "-size", strconv.Itoa(s.bytes), op), false, map[string]*Table{"p50": one50, "p99": one99}})
		}
	}
	runs = append(runs, loopRun{"no gap", []string{"rate"}, false, map[string]*Table{"ns": rate}},
		loopRun{"gap of 50 ns", []string{"-gap", "50ns", "rate"}, false, map[string]*Table{"ns": rate}})
	for _, n := range []string{"1", "16", "32"} {
		runs = append(runs, loopRun{n, []string{"-batch", n, "batch"}, false, map[string]*Table{"ns": batch}})
	}
	for _, threads := range []string{"1", "2"} {
		name := map[string]string{"1": "one thread", "2": "two threads"}[threads]
		runs = append(runs, loopRun{name, append(slices.Clip(wire), "-events", "-threads", threads, "ping"), false, map[string]*Table{"p50": event, "calls": calls}})
	}
	for _, n := range endpoints {
		runs = append(runs, loopRun{strconv.Itoa(n), []string{"-ends", strconv.Itoa(n), "many"}, false, map[string]*Table{"ns": many}})
	}
	for _, one := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			name := map[bool]string{false: "an endpoint each", true: "one endpoint"}[shared] + map[bool]string{false: ", two processors", true: ", one processor"}[one]
			runs = append(runs, loopRun{name, []string{"-shared=" + strconv.FormatBool(shared), "posters"}, one, map[string]*Table{"ns": posters}})
		}
	}

	most := map[string]map[string]float64{}
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", round+1, b.rounds)
		for _, r := range runs {
			b.loopRound(r, ping50, ping99, event, most)
		}
		b.loopWaiters(waiters)
	}
	for _, r := range runs {
		for _, s := range names[1:] {
			allocs.add(r.loop(), s, "", most[r.loop()][s])
		}
	}
	b.loopMarks(ping50, ping99, one50, one99, rate, batch, event, posters)
	for _, s := range names {
		for _, r := range many.Rows {
			if v, first := many.sample(r.Name, s), many.sample("1", s); v != nil && first != nil && v != first {
				r.mark(s+" "+growth, ratio(v, first), 1.2)
			}
		}
	}
	for _, r := range allocs.Rows {
		for _, c := range r.Cells {
			if c != nil {
				r.mark(c.Series+" allocates nothing", c.Median, none)
			}
		}
	}
	for _, r := range calls.Rows {
		for _, c := range r.Cells {
			if c != nil && strings.HasPrefix(c.Series, "udat") && r.Name == "one thread" {
				r.mark(c.Series+" does not leave user space", c.Median, none)
			}
		}
	}
	for _, s := range waiters.Series[:2] {
		few, all := waiters.sample("16", s), waiters.sample("1024", s)
		if few != nil && all != nil {
			waiters.row("1024").mark(s+" no more than with 16, and 1", all.Median-few.Median, 1)
		}
	}
	return nil
}

// loop is the kind of a run: the last of its arguments.
func (r loopRun) loop() string { return r.args[len(r.args)-1] }

// loopRound runs a setting once in every series. Round trips are halved.
func (b *bench) loopRound(r loopRun, ping50, ping99, event *Table, most map[string]map[string]float64) {
	for _, s := range loopSeries {
		fig, line, err := b.loopFigures(s.program, r.one, append(slices.Clip(r.args[:len(r.args)-1]), s.layer, r.loop())...)
		for name, t := range r.to {
			v, ok := fig[name]
			switch {
			case err != nil:
				t.fail(r.row, s.name, err)
				continue
			case !ok:
				t.fail(r.row, s.name, fmt.Errorf("no figure %s", name))
				continue
			case t == ping50 || t == ping99 || t == event:
				v /= 2
			case t.Unit == "ops/s":
				v = 1e9 / v
			}
			t.add(r.row, s.name, line, v)
		}
		if most[r.loop()] == nil {
			most[r.loop()] = map[string]float64{}
		}
		most[r.loop()][s.name] = max(most[r.loop()][s.name], fig["allocs"])
	}
}

func (b *bench) loopFigures(program string, one bool, args ...string) (fig map[string]float64, line string, err error) {
	argv := []string{filepath.Join(b.bin, program)}
	if !slices.Contains(args, "waiters") {
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

func (b *bench) loopWaiters(t *Table) {
	for _, n := range []string{"16", "1024"} {
		for _, layer := range []string{"cverbs", "udat"} {
			fig, line, err := b.loopFigures("loop", false, "-ends", n, layer, "waiters")
			for _, what := range []string{"threads", "goroutines"} {
				if err != nil {
					t.fail(n, layer+", "+what, err)
				} else {
					t.add(n, layer+", "+what, line, fig[what])
				}
			}
		}
	}
}

// loopMarks sets the marks against C.
func (b *bench) loopMarks(ping50, ping99, one50, one99, rate, batch, event, posters *Table) {
	for _, t := range []*Table{ping50, ping99, one50, one99} {
		t.atMost("cverbs", 1.05, "C")
		t.atMost("udat", 1.10, "C")
		t.atMost("cverbs, direct", 1.03, "C")
		t.atMost("udat, direct", 1.07, "C")
	}
	rows := func(t *Table, keep func(row string) bool) *Table {
		part := &Table{Series: t.Series}
		for _, r := range t.Rows {
			if keep(r.Name) {
				part.Rows = append(part.Rows, r)
			}
		}
		return part
	}
	free := rows(rate, func(r string) bool { return r == "no gap" })
	free.atLeast("cverbs", 0.9, "C")
	free.atLeast("udat", 0.75, "C")
	paced := rows(rate, func(r string) bool { return r != "no gap" })
	paced.atLeast("cverbs", 0.99, "C")
	paced.atLeast("udat", 0.99, "C")
	several := rows(batch, func(r string) bool { return r != "1" })
	several.atMost("cverbs", 1.4, "C")
	several.atMost("udat", 2.5, "C")
	event.atMost("cverbs", 1.10, "C")
	event.atMost("udat", 1.20, "C")
	posters.atLeast("cverbs", 0.9, "C")
	posters.atLeast("udat", 0.9, "C")
}
