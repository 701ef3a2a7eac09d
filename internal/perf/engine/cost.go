package engine

import (
	"fmt"
	"runtime"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// usage is the processor time and the number of context switches that the process has used so far.
// All fields are zero if the operating system does not report them.
type usage struct {
	user, system           time.Duration
	voluntary, involuntary int64
}

// costMeter measures what the process uses during a run.
type costMeter struct {
	heap runtime.MemStats
	used usage
	at   time.Time
}

// start begins the measurement. It stops the process for some microseconds to read the heap's
// figures, so no operation may be under way.
func (m *costMeter) start() {
	runtime.ReadMemStats(&m.heap)
	m.restart()
}

// restart leaves out the time and the processor time so far. Operations may be under way.
func (m *costMeter) restart() { m.used, m.at = processUsage(), time.Now() }

// end returns the cost of the given numbers of operations and bytes.
func (m *costMeter) end(ops, bytes int64) result.Cost {
	wall, used := time.Since(m.at), processUsage()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	user := used.user - m.used.user
	cpu := user + used.system - m.used.system
	c := result.Cost{
		CPU: result.Seconds(cpu), UserCPU: result.Seconds(user), Wall: result.Seconds(wall),
		Voluntary: used.voluntary - m.used.voluntary, Involuntary: used.involuntary - m.used.involuntary,
		Allocations: int64(heap.Mallocs - m.heap.Mallocs), GCs: int64(heap.NumGC - m.heap.NumGC),
		GCPause: result.Seconds(heap.PauseTotalNs - m.heap.PauseTotalNs),
	}
	if ops > 0 {
		c.PerMillion = cpu.Seconds() / float64(ops) * 1e6
	}
	if bytes > 0 {
		c.PerGB = cpu.Seconds() / float64(bytes) * 1e9
	}
	return c
}

// coarseClock is the largest clock step at which the latency of a single operation is reliable.
const coarseClock = time.Microsecond

// clockStep watches the monotonic clock for at most 20 ms, or 1,000,000 calls if the clock stands
// still, and returns the smallest step that it sees.
func clockStep() time.Duration {
	step := time.Duration(0)
	base := time.Now()
	last := time.Since(base)
	for seen, calls := 0, 0; seen < 50 && last < 20*time.Millisecond && calls < 1_000_000; calls++ {
		if now := time.Since(base); now != last {
			if d := now - last; step == 0 || d < step {
				step = d
			}
			last = now
			seen++
		}
	}
	return step
}

// clockWarning returns a warning if the clock is too coarse to time an operation.
func clockWarning(step time.Duration) (string, bool) {
	if step <= coarseClock {
		return "", false
	}
	return fmt.Sprintf("the clock advances in steps of %v: single latencies mean nothing, only averages do (see "+
		"/sys/devices/system/clocksource)", step), true
}
