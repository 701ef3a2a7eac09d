package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// These are the series of the benchmark's part "loop". inC is the program lab/loopdev/loopbench.c.
// The layers are those that lab/bench/loop measures.
const inC = "C"

var layers = []string{result.Cverbs, result.UDAT}

// direct ends the name of a series whose layer is built with the tag godat_direct. Such a series
// has no goal.
const direct = ", direct"

// bothLayers returns a figure for each layer: its ratio to the given peer, with the layer's goal.
func bothLayers(peer string, atMost bool, goals [2]float64) (all []figure) {
	for i, layer := range layers {
		all = append(all, figure{layer, peer, atMost, goals[i]})
	}
	return all
}

// loopTable describes a table of the benchmark's part "loop".
type loopTable struct {
	title, note, unit string
	loop, value       string // the loop to run, and which of its figures to take
	args              []string
	row               string
	goals             [2]float64 // goals of the layers
}

var loopTables = []loopTable{
	{"Half of a round trip, polled", "Sends between two queue pairs; a message is 1 us under way. One thread plays both " +
		"ends in turn. Receives are posted again behind the answer; one send in 16 is signalled. The median of a run.",
		"ns", "ping", "p50", []string{"-delay", "1us"}, "64 B", [2]float64{1.04, 1.10}},
	{"Half of a round trip, with events", "The same. C polls, arms, polls and calls ibv_get_cq_event; cverbs does the " +
		"same with CompChannel.Wait; udat calls EVD.Wait.",
		"ns", "ping", "p50", []string{"-delay", "1us", "-events"}, "64 B", [2]float64{1.10, 1.20}},
	{"Message rate", "RDMA writes, one post at a time, 128 in flight, one in 32 signalled.",
		"ops/s", "rate", "ns", nil, "64 B", [2]float64{0.9, 0.75}},
	{"Time of a write, on 256 endpoints in turn", "RDMA writes, all signalled, 64 in flight in all, one completion " +
		"queue. cverbs posts and polls by a Turn, the others by single calls.",
		"ns", "many", "ns", []string{"-ends", "256"}, "64 B", [2]float64{2, 2.6}},
}

// loop compares the layers with C. All ends are in one process, on the loop device.
func (b *bench) loop(s *section) error {
	var all []*setting
	for _, t := range loopTables {
		x := s.table(t.title, t.note, t.unit, inC, layers[0], layers[0]+direct, layers[1], layers[1]+direct)
		set := &setting{row: x.row(t.row, 64, bothLayers(inC, t.unit == "ns", t.goals)...)}
		for _, name := range x.Series {
			set.series = append(set.series, series{name, func() (float64, string, error) {
				v, line, err := b.loopValue(name, t.value, append(slices.Clip(t.args), t.loop)...)
				switch {
				case t.loop == "ping":
					v /= 2
				case t.unit == "ops/s":
					v = 1e9 / v
				}
				return v, line, err
			}})
		}
		all = append(all, set)
	}
	s.Ended = b.rounds(all)
	return nil
}

// loopValue runs the loop of the series that is named, and returns one of the loop's figures.
func (b *bench) loopValue(name, value string, args ...string) (v float64, line string, err error) {
	program := "loop"
	layer, isDirect := strings.CutSuffix(name, direct)
	switch {
	case name == inC:
		program = "loopbench"
	case isDirect:
		program = "loop-direct"
	}
	if name != inC {
		args = slices.Insert(slices.Clone(args), len(args)-1, layer)
	}
	argv := []string{filepath.Join(b.bin, program)}
	warmup, length := 30*time.Millisecond, 150*time.Millisecond
	if b.quick {
		warmup, length = warmup/10, length/10
	}
	argv = onLoop(b.bin, "", append(append(argv, "-warmup", warmup.String(), "-time", length.String()), args...))
	out, err := b.run(pairTime, argv...)
	var figures map[string]float64
	if err == nil {
		err = json.Unmarshal([]byte(out), &figures)
	}
	if err == nil && figures[value] <= 0 {
		err = fmt.Errorf("no figure %s in %q", value, out)
	}
	return figures[value], show(argv), err
}
