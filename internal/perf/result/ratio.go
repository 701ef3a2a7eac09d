package result

import (
	"math"
	"slices"
)

// confidence is the least probability with which an interval contains the true value.
const confidence = 0.95

// ratio estimates by which factor a figure has changed between two sets of runs, by Hodges and
// Lehmann: the median of the ratios of all pairs of an old and a new run. The true factor is
// between low and high with 95% confidence, whatever the distribution of the runs. The argument ok
// is false, and low and high are 0, if there are too few runs for that: it takes 4 in each set, or
// 3 in one and 5 in the other. The figures in before must be above 0; no set may be empty.
func ratio(before, after []float64) (estimate, low, high float64, ok bool) {
	var all []float64
	for _, x := range before {
		for _, y := range after {
			all = append(all, y/x)
		}
	}
	slices.Sort(all)
	n := len(all)
	estimate = math.Sqrt(all[(n-1)/2] * all[n/2])
	if k := pairRank(len(before), len(after)); k > 0 {
		return estimate, all[k-1], all[n-k], true
	}
	return estimate, 0, 0, false
}

// exactRuns is the largest number of runs in both sets together for which pairRank computes the
// exact distribution. For more runs the normal distribution is close enough.
const exactRuns = 60

// pairRank returns the largest k for which the interval from the k-th smallest to the k-th largest
// of the m*n ratios has the confidence. It returns 0 if there is none. k-1 is the critical value of
// the two-sided test of Mann and Whitney.
func pairRank(m, n int) int {
	tail := (1 - confidence) / 2
	if m+n > exactRuns {
		mean, deviation := float64(m*n)/2, math.Sqrt(float64(m*n*(m+n+1))/12)
		return int(mean - 0.5 + deviation*math.Sqrt2*math.Erfinv(2*tail-1))
	}
	// ways[i][u] is the number of ways to choose i of the ranks so far with the statistic u.
	ways := make([][]float64, m+1)
	for i := range ways {
		ways[i] = make([]float64, m*n+1)
	}
	ways[0][0] = 1
	for rank := range m + n {
		for i := min(m, rank+1); i > 0; i-- {
			for u := m * n; u >= rank-i+1; u-- { // the i-th chosen one exceeds rank-i+1 that are not chosen
				ways[i][u] += ways[i-1][u-(rank-i+1)]
			}
		}
	}
	total, sum := 0.0, 0.0
	for _, w := range ways[m] {
		total += w
	}
	for k, w := range ways[m] {
		if sum += w; sum > tail*total {
			return k
		}
	}
	return 0
}
