package main

import (
	"math"
	"slices"

	"github.com/godat/godat/internal/perf/result"
)

// Verdicts of a figure.
const (
	met       = "met"       // the whole interval is on the goal's side
	missed    = "missed"    // the whole interval is on the other side
	undecided = "undecided" // the goal is inside the interval, or there are too few rounds for an interval
)

const (
	// The constant shown is the confidence of the intervals and verdicts on the page.
	shown = 0.95
	// The constant enough is the confidence at which a figure needs no further round. It is greater
	// than the confidence shown, because the intervals are computed again after each round, and
	// each computation may yield a wrong interval by chance.
	enough = 0.99
)

// interval returns the bounds of an interval that contains the true median at the given confidence
// or a higher one, whatever the distribution of the values. Both bounds are values of the sorted
// list. It returns false if the list is too short.
func interval(sorted []float64, confidence float64) (low, high float64, ok bool) {
	n := len(sorted)
	k := result.ConfidenceRank(n, confidence)
	if k == 0 {
		return 0, 0, false
	}
	return sorted[k-1], sorted[n-k], true
}

// estimate is a ratio of two series, as the rounds so far show it.
type estimate struct {
	ratio     float64 // median of the rounds' ratios
	low, high float64
	known     bool // low and high are known
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

// verdict rounds the interval to two decimals, as the page shows it, and compares it to the goal.
// If atMost is true the ratio must be at most the goal, otherwise at least the goal.
func (e estimate) verdict(atMost bool, goal float64) string {
	low, high := math.Round(e.low*100)/100, math.Round(e.high*100)/100
	switch {
	case !e.known:
		return undecided
	case atMost && high <= goal, !atMost && low >= goal:
		return met
	case atMost && low > goal, !atMost && high < goal:
		return missed
	}
	return undecided
}
