package result

import (
	"math"
	"math/rand/v2"
	"testing"

	"gotest.tools/v3/assert"
)

// TestPairRank: k-1 is the critical value of the test of Mann and Whitney, two-sided, 5%, as
// statistical tables have it. With too few runs there is none. The normal distribution meets the
// exact one where it takes over.
func TestPairRank(t *testing.T) {
	for _, c := range []struct{ m, n, critical int }{
		{2, 8, 0}, {3, 5, 0}, {4, 4, 0}, {4, 10, 5}, {5, 5, 2}, {5, 6, 3}, {6, 6, 5}, {7, 7, 8}, {8, 8, 13}, {9, 9, 17},
		{10, 10, 23}, {15, 15, 64}, {20, 20, 127}, {1, 20, -1}, {2, 7, -1}, {3, 3, -1}, {3, 4, -1},
	} {
		assert.Equal(t, pairRank(c.m, c.n)-1, c.critical, "%d and %d runs", c.m, c.n)
		assert.Equal(t, pairRank(c.n, c.m)-1, c.critical, "%d and %d runs", c.n, c.m)
	}
	exact, normal := pairRank(30, 30), pairRank(30, 31)
	assert.Assert(t, normal >= exact && normal-exact < 20, "%d, %d", exact, normal)
	assert.Assert(t, pairRank(1000, 1000) < 500000)
}

// TestRatio: the estimate for the data of Hollander and Wolfe (permeability of the chorioamnion) is
// the published one, 0.305, as a factor; and the interval covers it.
func TestRatio(t *testing.T) {
	factors := func(all ...float64) []float64 {
		for i := range all {
			all[i] = math.Exp(all[i])
		}
		return all
	}
	term := factors(0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46)
	early := factors(1.15, 0.88, 0.90, 0.74, 1.21)
	estimate, low, high, ok := ratio(early, term)
	assert.Assert(t, ok && math.Abs(math.Log(estimate)-0.305) < 1e-9, "%v", math.Log(estimate))
	assert.Assert(t, low < estimate && estimate < high)
	back, lowBack, highBack, _ := ratio(term, early)
	for _, one := range []float64{estimate * back, low * highBack, high * lowBack} {
		assert.Assert(t, math.Abs(one-1) < 1e-12)
	}
	_, _, _, ok = ratio(term[:3], early[:4])
	assert.Assert(t, !ok)
}

// TestPower: how often Compare decides, and is right, at noises and numbers of runs that occur. The
// figures that the two medians' intervals, put end to end, gave for 2% and 6 runs were: same 56%,
// worse 53%.
func TestPower(t *testing.T) {
	const pairs = 400
	random := rand.New(rand.NewPCG(1, 2))
	rate := func(noise float64, n int, change float64, verdict string) float64 {
		count := 0
		for range pairs {
			draw := func(mean float64) (all []float64) {
				for range n {
					all = append(all, mean*(1+noise*random.NormFloat64()))
				}
				return all
			}
			c := Compare(runs(draw(1000), nil), runs(draw(1000*change), nil), 5, 0)
			if c.Changes[0].Verdict == verdict {
				count++
			}
		}
		return float64(count) / pairs
	}
	for _, c := range []struct {
		noise, change float64
		runs          int
		verdict       string
		least, most   float64
	}{
		{0.01, 1, 6, Same, 0.99, 1}, {0.01, 1.07, 6, Worse, 0.75, 1}, {0.01, 1.1, 6, Worse, 0.99, 1},
		{0.02, 1, 6, Same, 0.93, 1}, {0.02, 1.1, 6, Worse, 0.88, 1}, {0.02, 1, 10, Same, 0.99, 1},
		{0.04, 1.1, 6, Worse, 0.35, 1},
		{0.02, 1, 6, Worse, 0, 0.01}, {0.02, 1.08, 6, Same, 0, 0.01}, {0.02, 1.05, 6, Worse, 0, 0.05},
	} {
		got := rate(c.noise, c.runs, c.change, c.verdict)
		t.Logf("noise %g, %d runs, factor %g: %s %.3f", c.noise, c.runs, c.change, c.verdict, got)
		assert.Check(t, got >= c.least && got <= c.most, "noise %g, %d runs, factor %g: %s in %.3f", c.noise, c.runs,
			c.change, c.verdict, got)
	}
}
