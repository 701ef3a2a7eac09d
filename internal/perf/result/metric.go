package result

import (
	"cmp"
	"math"
	"slices"
)

// Metric is a figure by which runs are compared.
type Metric struct {
	Name   string // as in the JSON document
	Unit   string
	Better int // 1: more is better, -1: less is
	Of     func(s *Stream) (float64, bool)
}

func percentileOf(p float64) func(*Stream) (float64, bool) {
	return func(s *Stream) (float64, bool) { return s.Latency.At(p), s.Latency.Enough(p) }
}

// Metrics are the metrics of Compare and Summarize.
var Metrics = []Metric{
	{"latency_p50_ns", "ns", -1, percentileOf(50)},
	{"latency_p99_ns", "ns", -1, percentileOf(99)},
	{"gbit_s", "Gb/s", 1, func(s *Stream) (float64, bool) { return s.GbitS, true }},
	{"ops_s", "ops/s", 1, func(s *Stream) (float64, bool) { return s.OpsS, true }},
}

// applies reports whether a case measures the metric: latency where it is measured, else rates.
func (m *Metric) applies(c *Case) bool {
	latency := m.Better < 0
	return latency == (c.Mode == Latency || latency && c.Rate > 0)
}

// Key returns the part of a case that makes its figures comparable: everything but its length.
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
	Spread float64 `json:"spread_percent"`          // of max - min, in percent of the median
	Low    float64 `json:"median_95_low,omitempty"` // the true median is between these with 95% confidence; from 6 runs on
	High   float64 `json:"median_95_high,omitempty"`
	Short  bool    `json:"too_short,omitempty"` // one of the runs was, see TooShort
}

// Summarize returns the metrics of every case, over all its runs.
func Summarize(runs []Run) []Summary {
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
	var all []Summary
	for _, key := range keys {
		for _, m := range Metrics {
			v := values[key][m.Name]
			if len(v) == 0 {
				continue
			}
			slices.Sort(v)
			s := Summary{Case: cases[key], Metric: m.Name, Runs: len(v), Median: median(v), Min: v[0],
				Max: v[len(v)-1], Short: short[key]}
			if s.Median > 0 {
				s.Spread = (s.Max - s.Min) / s.Median * 100
			}
			if k := confidenceRank(len(v)); k > 0 {
				s.Low, s.High = v[k-1], v[len(v)-k]
			}
			all = append(all, s)
		}
	}
	return all
}

// confidenceRank returns the largest k for which the k-th smallest and k-th largest of n values
// enclose the true median with 95% confidence, for any distribution; 0 if n is too small.
func confidenceRank(n int) int {
	if n > 1000 { // 0.5^n is no number any more
		return 0
	}
	tail, choose, k := 0.0, 1.0, 0
	for ; k < n/2; k++ {
		tail += choose * math.Pow(0.5, float64(n))
		if 2*tail > 0.05 {
			break
		}
		choose *= float64(n-k) / float64(k+1)
	}
	return k
}

// Change is the difference of one metric of one case between two documents.
type Change struct {
	Case     Case
	Metric   Metric
	Old, New float64
	Percent  float64 // of the old value
	Worse    bool    // by more than the threshold
	Improved bool    // by more than the threshold
	Short    bool    // measured for so short a time, before or after, that it is neither
}

// Comparison is the result of Compare.
type Comparison struct {
	Changes []Change
	OnlyOld []Case
	OnlyNew []Case
}

// Worse counts the changes for the worse beyond the threshold.
func (c *Comparison) Worse() (n int) {
	for i := range c.Changes {
		if c.Changes[i].Worse {
			n++
		}
	}
	return n
}

// Compare compares the medians of two documents case by case. Changes up to threshold percent do
// not count.
func Compare(before, after *Document, threshold float64) Comparison {
	var out Comparison
	old := map[Case]map[string]Summary{}
	var order []Case
	for _, s := range Summarize(before.Runs) {
		key := s.Case.Key()
		if old[key] == nil {
			old[key] = map[string]Summary{}
			order = append(order, key)
		}
		old[key][s.Metric] = s
	}
	seen := map[Case]bool{}
	for _, s := range Summarize(after.Runs) {
		key := s.Case.Key()
		was, both := old[key]
		if !both {
			if !seen[key] {
				out.OnlyNew = append(out.OnlyNew, s.Case)
			}
			seen[key] = true
			continue
		}
		seen[key] = true
		past, both := was[s.Metric]
		if !both {
			continue // too few samples for it
		}
		m := Metrics[slices.IndexFunc(Metrics, func(m Metric) bool { return m.Name == s.Metric })]
		c := Change{Case: s.Case, Metric: m, Old: past.Median, New: s.Median, Short: past.Short || s.Short}
		if c.Old > 0 {
			c.Percent = (c.New - c.Old) / c.Old * 100
		}
		better := c.Percent * float64(cmp.Compare(m.Better, 0))
		c.Worse, c.Improved = !c.Short && better < -threshold, !c.Short && better > threshold
		out.Changes = append(out.Changes, c)
	}
	for _, key := range order {
		if !seen[key] {
			out.OnlyOld = append(out.OnlyOld, key)
		}
	}
	return out
}
