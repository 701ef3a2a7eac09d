package report

import (
	"fmt"
	"io"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// IntervalLine prints the figures of one interval, from the end that initiated the operations.
func IntervalLine(w io.Writer, iv *result.Interval) {
	from, to := time.Duration(iv.Start).Seconds(), time.Duration(iv.Stop).Seconds()
	fmt.Fprintf(w, "  %-6s %8s - %8s s: %7s Gb/s %9s ops/s", fit(iv.End, 6), fit(number(from, 3), 8),
		fit(number(to, 3), 8), fit(number(iv.GbitS, 3), 7), fit(number(float64(iv.Ops)/max(to-from, 1e-9), 0), 9))
	if iv.P50 > 0 {
		p99 := "-"
		if iv.Ops >= 100 {
			p99 = micros(iv.P99)
		}
		fmt.Fprintf(w, ", p50 %s p99 %s max %s us", fit(micros(iv.P50), 7), fit(p99, 7), fit(micros(iv.Max), 7))
	}
	fmt.Fprintln(w)
}
