package engine

import (
	"fmt"
	"time"
)

// coarseClock is the clock step from which on latencies are not to be trusted.
const coarseClock = time.Microsecond

// clockStep is the smallest advance of the monotonic clock that is seen within a short while.
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

// clockWarning is for a clock too coarse to time an operation.
func clockWarning(step time.Duration) (string, bool) {
	if step <= coarseClock {
		return "", false
	}
	return fmt.Sprintf("the clock advances in steps of %v: single latencies mean nothing, only averages do (see /sys/devices/system/clocksource)", step), true
}
