package engine

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/godat/godat/internal/perf/result"
)

// samples collects times in nanoseconds: a histogram of constant size, and exact min, max, mean and
// deviation.
type samples struct {
	hist       *hdrhistogram.Histogram
	min, max   int64
	mean, sumS float64 // Welford's running mean and sum of squared differences
}

// longest is the largest time in the histogram; percentiles count longer ones as this.
const longest = int64(3600e9)

func newSamples() *samples {
	return &samples{hist: hdrhistogram.New(1, longest, 3), min: math.MaxInt64}
}

func (s *samples) add(ns int64) {
	s.hist.RecordValue(min(max(ns, 1), longest))
	s.min, s.max = min(s.min, ns), max(s.max, ns)
	d := float64(ns) - s.mean
	s.mean += d / float64(s.hist.TotalCount())
	s.sumS += d * (float64(ns) - s.mean)
}

func (s *samples) reset() {
	s.hist.Reset()
	s.min, s.max, s.mean, s.sumS = math.MaxInt64, 0, 0, 0
}

// Percentiles are the percentiles of every distribution.
var Percentiles = []float64{50, 75, 90, 95, 99, 99.9, 99.99, 99.999}

// distribution returns the summary of the samples, every time divided by div.
func (s *samples) distribution(div float64) *result.Distribution {
	n := s.hist.TotalCount()
	if n == 0 {
		return nil
	}
	// A percentile is the upper bound of its histogram cell, so limit it to the true extremes.
	at := func(ns int64) float64 { return float64(min(max(ns, s.min), s.max)) / div }
	d := &result.Distribution{
		Count: n, Min: float64(s.min) / div, Max: float64(s.max) / div, Mean: s.mean / div,
		Stddev: math.Sqrt(s.sumS/float64(n)) / div,
	}
	for _, p := range Percentiles {
		d.Percentiles = append(d.Percentiles, result.Percentile{P: p, Value: at(s.hist.ValueAtPercentile(p))})
	}
	for _, b := range s.hist.CumulativeDistributionWithTicks(10) {
		d.Curve = append(d.Curve, result.Percentile{P: b.Quantile, Value: at(b.ValueAt)})
	}
	return d
}

// recorder collects an initiator's measurements and reports them at every interval.
type recorder struct {
	latency   *samples
	corrected *samples // open loop
	part      *samples // of the current interval; nil where no latency is measured
	pingPong  bool
	every     int64
	next      int64 // when the interval ends
	from      int64
	start     int64
	stop      int64 // when the last operation completed
	ops, told int64
	size      int64
	tell      func(result.Interval)
}

func newRecorder(c *result.Case, tell func(result.Interval)) *recorder {
	r := &recorder{pingPong: c.PingPong(), every: int64(c.Interval), next: math.MaxInt64, size: c.Payload(), tell: tell}
	if c.Mode == result.Latency || c.Rate > 0 {
		r.latency, r.part = newSamples(), newSamples()
	}
	if c.Rate > 0 {
		r.corrected = newSamples()
	}
	return r
}

// begin starts the measurement, after the warm-up.
func (r *recorder) begin(now int64) {
	r.start, r.from, r.next = now, now, now+r.every
}

// sample counts one operation. ns is its latency from the post, late from its due time.
func (r *recorder) sample(ns, late int64) {
	r.ops++
	r.latency.add(ns)
	r.part.add(ns)
	if r.corrected != nil {
		r.corrected.add(late)
	}
}

// tick ends the interval if it is over.
func (r *recorder) tick(now int64) {
	if now < r.next {
		return
	}
	ops := r.ops - r.told
	iv := result.Interval{
		Start: result.Seconds(r.from - r.start), Stop: result.Seconds(now - r.start), Ops: ops, Bytes: ops * r.size,
		GbitS: float64(ops*r.size) * 8 / float64(now-r.from),
	}
	if r.part != nil && r.part.hist.TotalCount() > 0 {
		div := r.div()
		iv.P50, iv.P99 = float64(r.part.hist.ValueAtPercentile(50))/div, float64(r.part.hist.ValueAtPercentile(99))/div
		iv.Max = float64(r.part.max) / div
		r.part.reset()
	}
	r.told, r.from, r.next = r.ops, now, now+r.every
	r.tell(iv)
}

func (r *recorder) div() float64 {
	if r.pingPong {
		return 2
	}
	return 1
}

// stream returns the summary of the measurement.
func (r *recorder) stream() *result.Stream {
	s := &result.Stream{Ops: r.ops, Bytes: r.ops * r.size, Elapsed: result.Seconds(r.stop - r.start)}
	if r.latency != nil {
		s.Latency = r.latency.distribution(r.div())
	}
	if r.pingPong && r.latency != nil {
		s.RoundTrip = r.latency.distribution(1)
		s.RoundTrip.Curve = nil
	}
	if r.corrected != nil {
		s.Corrected = r.corrected.distribution(r.div())
	}
	s.Fill()
	return s
}
