package engine

import (
	"context"
	"net"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// A run has the kernel's counts of the port for that run alone. On soft-RoCE these are at least a
// packet for each message of 100 bytes, and the counts of the second run do not include the first.
func TestPortCounters(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		if device != "rxe0" {
			t.Skip("only of soft-RoCE is known what the kernel counts")
		}
		base.Test, base.Mode, base.Size, base.Iters, base.Warmup = result.Send, result.Bandwidth, 100, 1000, 0
		second := base
		second.Iters = 300
		doc, err := measure(t, device, base, second)
		assert.NilError(t, err)
		for i, iters := range []int64{1000, 300} {
			for _, end := range []*result.End{doc.Runs[i].Client, doc.Runs[i].Server} {
				sent, received := end.Counters.Sent().Packets, end.Counters.Received().Packets
				assert.Assert(t, sent >= iters && received >= iters, "run %d: %v", i, end.Counters)
				assert.Assert(t, i == 0 || sent < 1000, "the second run has the first one's: %v", end.Counters)
			}
		}
	})
}

// Threads on the same port have read the same counters, which count once. Each other port adds its
// own counters.
func TestCountersOfThreads(t *testing.T) {
	var all threadRuns
	thread := func(client, server string, sent, received int64) {
		all.facts = append(all.facts,
			&result.Document{Client: result.Facts{Device: client}, Server: result.Facts{Device: server}})
		all.runs = append(all.runs, []result.Run{{}, {Client: &result.End{Counters: result.Counters{"sent_pkts": sent}},
			Server: &result.End{Counters: result.Counters{"rcvd_pkts": received}}}})
	}
	thread("a0", "b0", 10, 9)
	thread("a1", "b0", 200, 9)
	thread("a0", "b1", 11, 80)
	thread("a2", "b1", 3000, 81)
	client, server := all.counters(1)
	assert.DeepEqual(t, client, result.Counters{"sent_pkts": 3210})
	assert.DeepEqual(t, server, result.Counters{"rcvd_pkts": 89})
}

// The result of a run on several threads is reported before the run after the next begins, and not
// only at the end of the plan.
func TestThreadsReportEachRun(t *testing.T) {
	dial, stop := serving(t)
	defer stop()
	c := result.Default()
	c.Mode, c.Iters, c.Warmup = result.Bandwidth, 300, 0
	c.Complete()
	var mu sync.Mutex
	var reported []string
	cl := &Client{Setup: Setup{Device: "mem0"}}
	cl.Watcher.Run = func(run *result.Run) {
		mu.Lock()
		defer mu.Unlock()
		assert.Check(t, run.Case.Threads == 3, run.Case.Threads)
		assert.Check(t, run.Client.Initiated.Ops == 300, run.Client.Initiated.Ops)
		reported = append(reported, run.Case.Name())
	}
	cl.Watcher.Case = func(n, of int, _ *result.Case, _ int) {
		mu.Lock()
		defer mu.Unlock()
		assert.Check(t, of == 4, of)
		assert.Check(t, len(reported) >= n-2, "run %d begins, and %d are reported", n, len(reported))
	}
	doc, err := cl.RunThreads(context.Background(), func(int) (net.Conn, error) { return dial(), nil },
		Plan{Cases: []result.Case{c, c}, Repeats: 2}, 3)
	assert.NilError(t, err)
	assert.Equal(t, len(doc.Runs), 4)
	assert.Equal(t, len(reported), 4)
}
