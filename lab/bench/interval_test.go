package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func counting(n int) (v []float64) {
	for i := range n {
		v = append(v, float64(i+1))
	}
	return v
}

// The ranks agree with the tables of the binomial distribution.
func TestIntervalRanks(t *testing.T) {
	for _, c := range []struct {
		n          int
		confidence float64
		low, high  float64 // 0: none
	}{
		{0, shown, 0, 0}, {1, shown, 0, 0}, {5, shown, 0, 0}, {6, shown, 1, 6}, {8, shown, 1, 8}, {9, shown, 2, 8},
		{20, shown, 6, 15}, {25, shown, 8, 18}, {100, shown, 40, 61},
		{7, enough, 0, 0}, {8, enough, 1, 8}, {20, enough, 4, 17}, {100, enough, 37, 64},
	} {
		low, high, ok := interval(counting(c.n), c.confidence)
		assert.Equal(t, ok, c.low > 0, "%+v", c)
		assert.Equal(t, [2]float64{low, high}, [2]float64{c.low, c.high}, "%+v", c)
	}
}

// The interval contains the true median in at least 95 of 100 runs, even if most of the noise is on
// one side.
func TestIntervalCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const runs = 4000
	for _, n := range []int{6, 11, 40} {
		inside := 0
		for range runs {
			v := make([]float64, n)
			for i := range v {
				v[i] = 1 + r.ExpFloat64()
			}
			slices.Sort(v)
			low, high, ok := interval(v, shown)
			assert.Assert(t, ok)
			if m := 1.6931; low <= m && m <= high {
				inside++
			}
		}
		assert.Assert(t, inside > runs*94/100, "%d of %d with %d values", inside, runs, n)
		assert.Assert(t, inside < runs || n > 6, "an interval that is never wrong is too wide")
	}
}

func TestVerdicts(t *testing.T) {
	around := func(middle, width float64, n int) (v []float64) {
		for i := range n {
			v = append(v, middle+width*(float64(i)/float64(n-1)-0.5))
		}
		return v
	}
	for name, c := range map[string]struct {
		ratios []float64
		atMost bool
		goal   float64
		want   string
	}{
		"below a limit":               {around(1, 0.02, 12), true, 1.05, met},
		"above a limit":               {around(1.1, 0.02, 12), true, 1.05, missed},
		"straddles the limit":         {around(1.05, 0.02, 12), true, 1.05, undecided},
		"wide":                        {around(1, 0.9, 12), true, 1.05, undecided},
		"wide, but far":               {around(2, 0.9, 12), true, 1.05, missed},
		"above what is wanted":        {around(1, 0.02, 12), false, 0.9, met},
		"below what is wanted":        {around(0.8, 0.02, 12), false, 0.9, missed},
		"straddles what is wanted":    {around(0.9, 0.02, 12), false, 0.9, undecided},
		"five rounds, all below":      {around(1, 0.02, 5), true, 1.05, undecided},
		"six rounds, all below":       {around(1, 0.02, 6), true, 1.05, met},
		"six rounds, one above":       {append(around(1, 0.02, 5), 1.2), true, 1.05, undecided},
		"twelve rounds, one above":    {append(around(1, 0.02, 11), 9), true, 1.05, met},
		"all the same, as the limit":  {[]float64{1, 1, 1, 1, 1, 1}, true, 1, met},
		"all the same, as the wanted": {[]float64{1, 1, 1, 1, 1, 1}, false, 1, met},
		"no round":                    {nil, true, 1, undecided},
		"shown as 1.10 to 1.11":       {around(1.107, 0.0132, 6), true, 1.1, undecided},
		"shown as 1.09 to 1.10":       {around(1.097, 0.0132, 6), true, 1.1, met},
		"shown as 0.89 to 0.90":       {around(0.893, 0.0132, 6), false, 0.9, undecided},
	} {
		assert.Equal(t, estimated(c.ratios, shown).verdict(c.atMost, c.goal), c.want, name)
	}
	// Ending the rounds needs more confidence than a verdict.
	six := around(1, 0.02, 6)
	assert.Equal(t, estimated(six, enough).verdict(true, 1.05), undecided)
	assert.Equal(t, estimated(append(six, 1, 1), enough).verdict(true, 1.05), met)
}
