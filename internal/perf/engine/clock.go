package engine

import (
	"fmt"
	"time"
)

// coarseClock is the largest clock step at which the latency of a single operation is reliable.
const coarseClock = time.Microsecond

// clockStep watches the monotonic clock for at most 20 ms and returns the smallest step that it
// sees.
func clockStep() time.Duration {
	step := time.Duration(0)
	base := time.Now()
	last := time.Since(base)
	for seen := 0; seen < 50 && last < 20*time.Millisecond; {
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
