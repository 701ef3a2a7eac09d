package engine

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// The percentiles of an interval are between the interval's extremes, like those of the whole run,
// although a cell of the histogram ends above the times that it counts.
func TestIntervalPercentiles(t *testing.T) {
	c := result.Default()
	c.Mode, c.Rate = result.Bandwidth, 1 // the latency of the whole operation
	c.Complete()
	var told []result.Interval
	r := newRecorder(&c, func(iv result.Interval) { told = append(told, iv) })
	r.begin(0)
	for range 2 {
		r.sample(1_000_001, 0)
	}
	r.tick(int64(c.Interval))
	assert.Equal(t, len(told), 1)
	assert.DeepEqual(t, []float64{told[0].P50, told[0].P99, told[0].Max}, []float64{1_000_001, 1_000_001, 1_000_001})
}
