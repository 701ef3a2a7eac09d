package main

import (
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// Verdicts of a figure.
const (
	met       = "met"       // the whole interval is on the goal's side
	missed    = "missed"    // the whole interval is on the other side
	undecided = "undecided" // the goal is inside the interval, or the rounds are too few for one
)

const (
	// shown is the confidence of the intervals on the page, and of its verdicts.
	shown = 0.95
	// enough is the confidence with which a figure is measured no more. It is greater, because each
	// round asks again, and one of many answers is wrong more often than one alone.
	enough = 0.99
)

// interval returns two of the values of a sorted list, between which the median of what they are
// drawn from lies with at least the confidence, however it is distributed. There are none if the
// list is too short.
func interval(sorted []float64, confidence float64) (low, high float64, ok bool) {
	n := len(sorted)
	k := result.ConfidenceRank(n, confidence)
	if k == 0 {
		return 0, 0, false
	}
	return sorted[k-1], sorted[n-k], true
}

// estimate is what the rounds say of a ratio.
type estimate struct {
	ratio     float64 // the median of the rounds' ratios
	low, high float64
	known     bool // the interval
	rounds    int
}

func estimated(ratios []float64, confidence float64) (e estimate) {
	e.rounds = len(ratios)
	if e.rounds == 0 {
		return e
	}
	sorted := slices.Sorted(slices.Values(ratios))
	e.ratio = result.Median(sorted)
	e.low, e.high, e.known = interval(sorted, confidence)
	return e
}

// verdict compares the interval with a goal: at most, or at least.
func (e estimate) verdict(atMost bool, goal float64) string {
	switch {
	case !e.known:
		return undecided
	case atMost && e.high <= goal, !atMost && e.low >= goal:
		return met
	case atMost && e.low > goal, !atMost && e.high < goal:
		return missed
	}
	return undecided
}
