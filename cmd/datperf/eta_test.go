package main

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// If runs have a duration, the forecast uses it, and learns how much longer a run takes. If runs
// have a number of operations, it uses the share that is done, and the time of earlier runs.
func TestForecast(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	timed := &result.Case{Duration: result.Seconds(10 * time.Second), Direction: result.Out}
	var f forecast
	assert.Equal(t, f.text(start), "")
	f.begin(start, 1, 3, timed)
	assert.Equal(t, f.text(at(4)), ", about 26s left")
	assert.Equal(t, f.text(at(50)), ", about 20s left") // a run that does not end in time
	f.end(at(12))                                       // 2 s longer
	assert.Equal(t, f.text(at(12)), "")
	f.begin(at(12), 2, 3, timed)
	assert.Equal(t, f.text(at(13)), ", about 21s left")
	f.end(at(22))
	f.begin(at(22), 3, 3, timed)
	assert.Equal(t, f.text(at(31.9)), ", about 1s left")

	counted := &result.Case{Iters: 1000, Direction: result.Both}
	f = forecast{}
	f.begin(start, 1, 2, counted)
	assert.Equal(t, f.text(at(5)), "")
	f.interval(&result.Interval{End: "client", Ops: 200})
	f.interval(&result.Interval{End: "server", Ops: 700})
	assert.Equal(t, f.text(at(5)), ", about 45s left") // 20 s, and as much as this one's 25 s
	f.interval(&result.Interval{End: "client", Ops: 5000})
	assert.Equal(t, f.text(at(6)), ", about 6s left")
	f.end(at(6))
	f.begin(at(6), 2, 2, counted)
	assert.Equal(t, f.text(at(8)), ", about 4s left")
	assert.Equal(t, f.text(at(80)), ", about 1s left")

	in := &result.Case{Iters: 1000, Direction: result.In}
	f = forecast{}
	f.begin(start, 1, 1, in)
	f.interval(&result.Interval{End: "client", Ops: 100})
	f.interval(&result.Interval{End: "server", Ops: 500})
	assert.Equal(t, f.text(at(5)), ", about 5s left")
}
