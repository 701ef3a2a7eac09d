package engine

import (
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

// measureCost starts a measurement of cost. The returned function ends the measurement and returns
// the cost. Its arguments are the numbers of operations and bytes that were transferred during the
// measurement.
func measureCost() func(ops, bytes int64) result.Cost {
	var m0 runtime.MemStats
	runtime.ReadMemStats(&m0)
	u0, t0 := processUsage(), time.Now()
	return func(ops, bytes int64) result.Cost {
		wall, u1 := time.Since(t0), processUsage()
		var m1 runtime.MemStats
		runtime.ReadMemStats(&m1)
		user := u1.user - u0.user
		cpu := user + u1.system - u0.system
		c := result.Cost{
			CPU: result.Seconds(cpu), UserCPU: result.Seconds(user), Wall: result.Seconds(wall),
			Voluntary: u1.voluntary - u0.voluntary, Involuntary: u1.involuntary - u0.involuntary,
			Allocations: int64(m1.Mallocs - m0.Mallocs), GCs: int64(m1.NumGC - m0.NumGC),
			GCPause: result.Seconds(m1.PauseTotalNs - m0.PauseTotalNs),
		}
		if ops > 0 {
			c.PerMillion = cpu.Seconds() / float64(ops) * 1e6
		}
		if bytes > 0 {
			c.PerGB = cpu.Seconds() / float64(bytes) * 1e9
		}
		return c
	}
}
