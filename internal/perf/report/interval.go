package report

import (
	"fmt"
	"io"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// IntervalLine prints what an initiator did in one interval.
func IntervalLine(w io.Writer, iv *result.Interval) {
	from, to := time.Duration(iv.Start).Seconds(), time.Duration(iv.Stop).Seconds()
	fmt.Fprintf(w, "  %-6s %8.3f - %8.3f s: %10.3f Gb/s %12.0f ops/s", iv.End, from, to, iv.GbitS,
		float64(iv.Ops)/max(to-from, 1e-9))
	if iv.P50 > 0 {
		p99 := "-"
		if iv.Ops >= 100 {
			p99 = micros(iv.P99)
		}
		fmt.Fprintf(w, ", p50 %s p99 %s max %s us", micros(iv.P50), p99, micros(iv.Max))
	}
	fmt.Fprintln(w)
}
