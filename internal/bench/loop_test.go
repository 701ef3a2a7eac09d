package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Every setting of the part loop runs in every series, and is judged: here with programs that make
// figures up.
func TestLoopPart(t *testing.T) {
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for program, udat := range map[string]int{"loop": 115, "loop-direct": 106} { // of C's 100
		script := fmt.Sprintf(`#!/bin/sh
v=100 allocs=0
for a; do [ $a != cverbs ] || v=104; [ $a != udat ] || v=%d; [ $a != -events ] || allocs=0.5; done
echo "{\"p50\":$v,\"p99\":$v,\"ns\":$v,\"allocs\":$allocs,\"calls\":0,\"threads\":9,\"goroutines\":16}"
`, udat)
		assert.NilError(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755))
	}
	b := &bench{bin: dir, rounds: 1, quick: true}
	p := new(result.Section)
	assert.NilError(t, b.loop(p))
	assert.DeepEqual(t, p.Failed(), []string(nil))
	met := map[string]bool{}
	for _, table := range p.Tables {
		for _, r := range table.Rows {
			for _, series := range table.Series {
				inC := strings.HasPrefix(table.Title, "Allocations") && series == "C"
				assert.Assert(t, r.Cells[series] != nil || inC, "%s, %s, %s", table.Title, r.Name, series)
			}
			for _, m := range r.Marks {
				met[table.Title+": "+r.Name+": "+m.Text] = m.Met
			}
		}
	}
	const ping = "Ping-pong, polled: half of the round trip, 99th percentile: 4 KiB, two threads: "
	const one, rate = "One operation at a time, polled: median: read, 2 B: ", "Message rate: "
	const batch, event = "Batches: time per operation: ", "Ping-pong with events: half of the round trip, median: "
	const many = "Endpoints on one completion queue: time per operation: "
	const calls = "Ping-pong with events: reads and writes of descriptors for each round trip: "
	for text, want := range map[string]bool{
		ping + "cverbs <= 1.05 x C": true, ping + "cverbs, direct <= 1.03 x C": false,
		ping + "udat <= 1.1 x C": false, ping + "udat, direct <= 1.07 x C": true,
		one + "cverbs <= 1.05 x C": true, one + "udat <= 1.1 x C": false,
		rate + "no gap: cverbs >= 0.9 x C": true, rate + "no gap: udat >= 0.75 x C": true,
		rate + "gap of 50 ns: cverbs >= 0.99 x C": false, rate + "gap of 50 ns: udat >= 0.99 x C": false,
		batch + "16: cverbs <= 1.4 x C": true, batch + "32: udat <= 2.5 x C": true,
		event + "two threads: cverbs <= 1.1 x C": true, event + "one thread: udat <= 1.2 x C": true,
		many + "1024: udat <= 1.2 x its time with one endpoint": true,

		"Two goroutines (C: threads) that post and poll: one endpoint, one processor: udat >= 0.9 x C":          false,
		"Allocations per operation, the most of all runs: ping with events, one thread: udat allocates nothing": false,
		"Allocations per operation, the most of all runs: batch: cverbs, direct allocates nothing":              true,
		"Endpoints with a goroutine each that waits: 1024: udat, threads: at most one more than with 16":        true,

		calls + "one thread: udat does not leave user space": true,
	} {
		got, ok := met[text]
		assert.Assert(t, ok, "no mark %q", text)
		assert.Equal(t, got, want, text)
	}
	_, ok := met[batch+"1: cverbs <= 1.4 x C"]
	assert.Assert(t, !ok)
}
