package engine

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/godat/godat/internal/perf/result"
)

// samples collects times in nanoseconds: a histogram of constant size, and the exact minimum,
// maximum, mean and standard deviation.
type samples struct {
	hist       *hdrhistogram.Histogram
	min, max   int64
	mean, sumS float64 // Welford's running mean and sum of squared differences
}

// longest is the upper end of the histogram, in nanoseconds. A longer time is counted as if it were
// this long.
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

// The method within clamps a time from the histogram to the exact minimum and maximum. The
// histogram reports the upper bound of a cell, which can be above the maximum.
func (s *samples) within(ns int64) float64 { return float64(min(max(ns, s.min), s.max)) }

func (s *samples) percentile(p float64) float64 { return s.within(s.hist.ValueAtPercentile(p)) }

// Percentiles lists the percentiles in every distribution.
var Percentiles = []float64{50, 75, 90, 95, 99, 99.9, 99.99, 99.999}

// distribution returns the summary of the samples, with all durations divided by div. It returns
// nil if there are no samples.
func (s *samples) distribution(div float64) *result.Distribution {
	n := s.hist.TotalCount()
	if n == 0 {
		return nil
	}
	d := &result.Distribution{
		Count: n, Min: float64(s.min) / div, Max: float64(s.max) / div, Mean: s.mean / div,
		Stddev: math.Sqrt(s.sumS/float64(n)) / div,
	}
	for _, p := range Percentiles {
		d.Percentiles = append(d.Percentiles, result.Percentile{P: p, Value: s.percentile(p) / div})
	}
	for _, b := range s.hist.Distribution() {
		upTo, last := s.within(roundUp(b.To))/div, len(d.Histogram)-1
		switch {
		case b.Count == 0:
		case last >= 0 && d.Histogram[last].UpTo == upTo:
			d.Histogram[last].Count += b.Count
		default:
			d.Histogram = append(d.Histogram, result.Bucket{UpTo: upTo, Count: b.Count})
		}
	}
	return d
}

// roundUp rounds a time up to two significant digits, so that a histogram has at most 90 buckets in
// each power of ten.
func roundUp(ns int64) int64 {
	unit := int64(1)
	for ns/unit >= 100 {
		unit *= 10
	}
	return (ns + unit - 1) / unit * unit
}
