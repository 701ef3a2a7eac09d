package report

import (
	"fmt"
	"math"

	"github.com/godat/godat/internal/perf/result"
)

// heats is the number of shades of a matrix. Worse figures have warmer shades.
const heats = 5

// shades contains the bounds between the shades of a matrix. All bounds are between the 10% and the
// 90% quantile of the figures, so that outliers do not affect the shades of other figures.
type shades struct {
	c      *result.Case
	sign   float64 // 1: a larger figure is worse; -1: a smaller one is
	limits [heats - 1]float64
	median float64
	width  float64 // a figure whose distance from the median is larger is an outlier
}

// leastSpan is the least span of all shades together, and leastWidth is the least value of
// shades.width. Both are fractions of the median. They prevent small differences from getting
// different shades or counting as outliers.
const (
	leastSpan  = 0.2
	leastWidth = 0.25
)

// shadesOf returns the shades for the figures v of a case. v must be sorted, the best figure first,
// and must not be empty.
func shadesOf(c *result.Case, v []float64) *shades {
	at := func(q float64) float64 { return v[int(math.Round(q*float64(len(v)-1)))] }
	s := &shades{c: c, sign: 1, median: result.Median(v)}
	if c.Mode == result.Bandwidth {
		s.sign = -1
	}
	// The width depends only on the better half of the figures, because bad hosts increase the
	// spread of the other half.
	s.width = max(6*math.Abs(s.median-at(0.25)), leastWidth*s.median)
	good := at(0.1)
	span := max(math.Abs(at(0.9)-good), leastSpan*s.median)
	for i := range s.limits {
		s.limits[i] = good + s.sign*span*float64(i+1)/heats
	}
	return s
}

// shade returns the number of a figure's shade, from 0 to heats-1.
func (s *shades) shade(v float64) int {
	for i, limit := range s.limits {
		if !(s.sign*(v-limit) > 0) {
			return i
		}
	}
	return heats - 1
}

// outlier returns 1 if a figure is far worse than the median, -1 if it is far better, and 0
// otherwise.
func (s *shades) outlier(v float64) int {
	switch worse := s.sign * (v - s.median); {
	case worse > s.width:
		return 1
	case worse < -s.width:
		return -1
	}
	return 0
}

// keyEntry explains a color or mark of cells.
type keyEntry struct{ Class, Text string }

// key returns the explanations of the shades. If outliers or failed pairs occur, it also explains
// their marks.
func (s *shades) key(outliers, failed bool) (all []keyEntry) {
	text := func(v float64) string { return figureText(s.c, v) + " " + figureUnit(s.c) }
	best, worst := "up to ", "more than "
	if s.sign < 0 {
		best, worst = "at least ", "less than "
	}
	for i, limit := range s.limits {
		all = append(all, keyEntry{fmt.Sprintf("heat%d", i), best + text(limit)})
	}
	all = append(all, keyEntry{fmt.Sprintf("heat%d", heats-1), worst + text(s.limits[heats-2])})
	if outliers {
		all = append(all, keyEntry{"outlier", fmt.Sprintf("outlier: more than %s from the median, %s",
			text(s.width), text(s.median))})
	}
	if failed {
		all = append(all, keyEntry{failedText, "not measured: the reasons are below"})
	}
	return all
}

func figureText(c *result.Case, v float64) string {
	if c.Mode == result.Latency {
		return number(v, decimals(v))
	}
	return threeDigits(v)
}

// decimals returns the number of decimals for a time in us. Larger times get fewer decimals, to
// keep a matrix narrow.
func decimals(us float64) int {
	switch {
	case us >= 1000:
		return 0
	case us >= 100:
		return 1
	}
	return 2
}

func figureUnit(c *result.Case) string {
	if c.Mode == result.Latency {
		return "us"
	}
	return "Gb/s"
}
