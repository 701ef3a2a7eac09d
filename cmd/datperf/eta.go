package main

import (
	"fmt"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// forecast estimates the remaining time of a plan. It assumes that all runs of the plan have the
// same duration, or that all have the same number of operations.
type forecast struct {
	c        *result.Case
	began    time.Time     // start of the current run
	ops      int64         // operations that the current run has measured
	rest     int           // runs after the current one
	done     int           // runs that are over
	spent    time.Duration // total time of these runs
	overhead time.Duration // the part of spent that exceeds the durations of the cases
}

// begin records the start of a run. The parameter run is its number, from 1. The parameter runs is
// the number of runs of the plan.
func (f *forecast) begin(now time.Time, run, runs int, c *result.Case) {
	f.c, f.began, f.ops, f.rest = c, now, 0, runs-run
}

// interval adds the operations of an interval to those of the current run. It counts only intervals
// of the end that initiates. If both ends initiate, it counts those of the client.
func (f *forecast) interval(iv *result.Interval) {
	if f.c != nil && (iv.End == "server") == (f.c.Direction == result.In) {
		f.ops += iv.Ops
	}
}

// end adds the current run, which ends now, to the totals of the finished runs.
func (f *forecast) end(now time.Time) {
	if f.c == nil {
		return
	}
	took := now.Sub(f.began)
	f.done++
	f.spent += took
	f.overhead += max(took-time.Duration(f.c.Duration), 0)
	f.c = nil
}

// The method left returns the estimated time until the plan is done. It returns false if there is
// nothing yet from which to estimate that time.
func (f *forecast) left(now time.Time) (left time.Duration, ok bool) {
	if f.c == nil {
		return 0, false
	}
	elapsed := now.Sub(f.began)
	each := f.spent / time.Duration(max(f.done, 1)) // time of one run
	switch duration := time.Duration(f.c.Duration); {
	case duration > 0:
		each = duration + f.overhead/time.Duration(max(f.done, 1))
		left = max(duration-elapsed, 0)
	case f.ops > 0 && f.c.Iters > 0:
		part := min(float64(f.ops)/float64(f.c.Iters), 1)
		left = time.Duration(float64(elapsed) * (1 - part) / part)
		if f.done == 0 {
			each = elapsed + left
		}
	case f.done > 0:
		left = max(each-elapsed, 0)
	default:
		return 0, false
	}
	return left + time.Duration(f.rest)*each, true
}

// text formats the remaining time for the progress line. It returns "" if the time is unknown.
func (f *forecast) text(now time.Time) string {
	left, ok := f.left(now)
	if !ok {
		return ""
	}
	return fmt.Sprintf(", about %v left", max(left.Round(time.Second), time.Second))
}
