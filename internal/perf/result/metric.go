package result

import (
	"math"
	"slices"
)

// Metric is a figure by which runs are compared.
type Metric struct {
	Name   string // its name in the JSON document
	Unit   string
	Better int // 1: more is better; -1: less is better
	Of     func(s *Stream) (float64, bool)
}

func percentileOf(p float64) func(*Stream) (float64, bool) {
	return func(s *Stream) (float64, bool) { return s.Latency.At(p), s.Latency.Enough(p) }
}

// Metrics lists the metrics that Compare and Summarize use.
var Metrics = []Metric{
	{"latency_p50_ns", "ns", -1, percentileOf(50)},
	{"latency_p99_ns", "ns", -1, percentileOf(99)},
	{"gbit_s", "Gb/s", 1, func(s *Stream) (float64, bool) { return s.GbitS, true }},
	{"ops_s", "ops/s", 1, func(s *Stream) (float64, bool) { return s.OpsS, true }},
}

// applies reports whether the case has the metric. Latency tests and open loops have latencies;
// bandwidth tests have rates.
func (m *Metric) applies(c *Case) bool {
	latency := m.Better < 0
	return latency == (c.Mode == Latency || latency && c.Rate > 0)
}

// Key returns the case without the settings that may differ between comparable runs: the
// iterations, the duration, the warm-up, the interval and the stall time.
func (c Case) Key() Case {
	c.Iters, c.Duration, c.Warmup, c.Interval, c.Stall = 0, 0, 0, 0, 0
	return c
}

// Summary describes a metric over the repeats of a case.
type Summary struct {
	Case   Case    `json:"settings"`
	Metric string  `json:"metric"`
	Runs   int     `json:"runs"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Spread float64 `json:"spread_percent"`          // Max - Min, in percent of the median
	Low    float64 `json:"median_95_low,omitempty"` // 95% confidence interval of the median; 0: fewer than 6 runs
	High   float64 `json:"median_95_high,omitempty"`
	Short  bool    `json:"too_short,omitempty"` // at least one run was shorter than TooShort
}

// Summarize returns a summary of each metric of each case, over all runs of the case.
func Summarize(runs []Run) (all []Summary) {
	for _, s := range samplesOf(runs) {
		all = append(all, s.Summary)
	}
	return all
}

// sample is a summary with the figures of the runs, in ascending order.
type sample struct {
	Summary
	values []float64
}

func samplesOf(runs []Run) []sample {
	var keys []Case
	values := map[Case]map[string][]float64{}
	cases := map[Case]Case{}
	short := map[Case]bool{}
	for i := range runs {
		key := runs[i].Case.Key()
		if values[key] == nil {
			keys = append(keys, key)
			values[key], cases[key] = map[string][]float64{}, runs[i].Case
		}
		total := runs[i].Total()
		short[key] = short[key] || total.Short()
		for _, m := range Metrics {
			if v, ok := m.Of(&total); ok && m.applies(&key) {
				values[key][m.Name] = append(values[key][m.Name], v)
			}
		}
	}
	var all []sample
	for _, key := range keys {
		for _, m := range Metrics {
			v := values[key][m.Name]
			if len(v) == 0 {
				continue
			}
			slices.Sort(v)
			s := Summary{Case: cases[key], Metric: m.Name, Runs: len(v), Median: Median(v), Min: v[0],
				Max: v[len(v)-1], Short: short[key]}
			if s.Median > 0 {
				s.Spread = (s.Max - s.Min) / s.Median * 100
			}
			if k := ConfidenceRank(len(v), 0.95); k > 0 {
				s.Low, s.High = v[k-1], v[len(v)-k]
			}
			all = append(all, sample{s, v})
		}
	}
	return all
}

// Median returns the median of a sorted list, which must not be empty.
func Median(sorted []float64) float64 { return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2 }

// ConfidenceRank returns the largest k for which the interval from the k-th smallest to the k-th
// largest of n values contains the true median with the given confidence, whatever the distribution
// of the values. It returns 0 if n is too small or above 1000. A confidence of 95% needs 6 values,
// and a confidence of 99% needs 8 values.
func ConfidenceRank(n int, confidence float64) int {
	if n > 1000 { // 0.5^n is too small for a float64
		return 0
	}
	tail, choose, k := 0.0, 1.0, 0
	for ; k < n/2; k++ {
		tail += choose * math.Pow(0.5, float64(n))
		if 2*tail > 1-confidence {
			break
		}
		choose *= float64(n-k) / float64(k+1)
	}
	return k
}

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
