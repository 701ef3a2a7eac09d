package result

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/assert"
)

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
	}{
		{"64", []int{64}}, {"2,4K,1M", []int{2, 4096, 1 << 20}}, {"2-16", []int{2, 4, 8, 16}}, {"3-20", []int{3, 6, 12}},
		{"1KiB", []int{1024}}, {"1kb", []int{1024}}, {"1G", []int{1 << 30}}, {"64B", []int{64}},
	} {
		got, err := ParseSizes(c.text)
		assert.NilError(t, err, c.text)
		assert.DeepEqual(t, got, c.want)
	}
	all, err := ParseSizes("all")
	assert.NilError(t, err)
	assert.Equal(t, len(all), 23)
	for _, bad := range []string{"", "0", "-1", "1.5", "2G", "K", "4-2", "1,,2", "9999999999999999999999", "1Q", "2--4"} {
		_, err := ParseSizes(bad)
		assert.ErrorContains(t, err, "size", bad)
	}
}

func TestBytesIsExact(t *testing.T) {
	for n, want := range map[int]string{1: "1B", 1000: "1000B", 1024: "1KiB", 1536: "1536B", 64 << 10: "64KiB",
		1 << 20: "1MiB", 1 << 30: "1GiB"} {
		assert.Equal(t, Bytes(n), want)
		back, err := ParseBytes(want)
		assert.NilError(t, err)
		assert.Equal(t, back, n)
	}
}

// Two cases have different names if they differ in a flag that takes a list.
func TestNames(t *testing.T) {
	names := map[string]string{}
	for what, set := range map[string]func(*Case){
		"usual": func(*Case) {}, "test": func(c *Case) { c.Test = Write }, "mode": func(c *Case) { c.Mode = Latency },
		"layer": func(c *Case) { c.Layer = Cverbs }, "transport": func(c *Case) { c.Transport = UC },
		"direction": func(c *Case) { c.Direction = In }, "poll": func(c *Case) { c.Poll = Event },
		"size": func(c *Case) { c.Size = 1 }, "qps": func(c *Case) { c.QPs = 2 }, "depth": func(c *Case) { c.Depth = 16 },
		"batch": func(c *Case) { c.Batch = 8 }, "large batch": func(c *Case) { c.Batch = 512 },
		"threads": func(c *Case) { c.Threads = 2 },
	} {
		c := Default()
		c.Mode = Bandwidth
		set(&c)
		c.Complete()
		other, seen := names[c.Name()]
		assert.Assert(t, !seen, "%s and %s: %s", what, other, c.Name())
		names[c.Name()] = what
	}
	for name, what := range names {
		assert.Equal(t, strings.Contains(name, "depth"), what == "depth", name)
	}
}

// After Complete a case is valid, for every test, and a full send queue contains a signalled
// request. In a latency run, whatever depth is given, it contains one that is not the last: the
// answer to the last request may come before its completion.
func TestCompleteIsValid(t *testing.T) {
	for _, test := range Tests {
		for _, mode := range Modes {
			for _, depth := range []int{0, 1, 2, 7, 128, 16384} {
				for _, batch := range []int{1, 2, 64} {
					c := Default()
					c.Test, c.Mode, c.Depth, c.Batch, c.Size = test, mode, depth, batch, 64
					if mode == Latency || depth > 0 && batch > depth {
						c.Batch = 1
					}
					c.Complete()
					assert.NilError(t, c.Validate(), "%+v", c)
					assert.Assert(t, c.Signal <= c.Depth-c.Batch+1, "%+v", c)
					if mode == Latency {
						assert.Assert(t, c.Signal < c.Depth, "%+v", c)
						assert.Equal(t, c.Depth, latencyDepth)
						c.Signal = latencyDepth
						assert.ErrorContains(t, c.Validate(), "--signal 64: must be from 1 to 63")
					}
				}
			}
		}
	}
}

func run(layer string, mode string, p50, gbit float64) Run {
	c := Default()
	c.Layer, c.Mode, c.Size = layer, mode, 64
	c.Complete()
	s := &Stream{GbitS: gbit, OpsS: gbit * 10}
	if mode == Latency {
		s.Latency = &Distribution{Percentiles: []Percentile{{50, p50}, {99, p50 * 2}}}
	}
	return Run{Case: c, Client: &End{Initiated: s}, Server: &End{}}
}

// runs returns a document with runs of a latency case and of a bandwidth case. The n-th run of each
// has the n-th of the times or rates as its figure.
func runs(times, rates []float64) *Document {
	d := &Document{}
	for _, t := range times {
		d.Runs = append(d.Runs, run(UDAT, Latency, t, 1))
	}
	for _, r := range rates {
		d.Runs = append(d.Runs, run(UDAT, Bandwidth, 0, r))
	}
	return d
}

// around returns n values from v-width to v+width.
func around(v, width float64, n int) (all []float64) {
	for i := range n {
		all = append(all, v-width+2*width*float64(i)/float64(n-1))
	}
	return all
}

// A change counts if it exceeds the threshold for all true values within the intervals.
func TestCompare(t *testing.T) {
	verdicts := func(c Comparison) (all []string) {
		for _, ch := range c.Changes {
			all = append(all, ch.Metric+" "+ch.Verdict)
		}
		return all
	}
	all := func(latency, bandwidth string) []string {
		return []string{"latency_p50_ns " + latency, "latency_p99_ns " + latency, "gbit_s " + bandwidth, "ops_s " + bandwidth}
	}
	old := runs(around(1000, 10, 6), around(100, 1, 6))
	for name, c := range map[string]struct {
		now                *Document
		latency, bandwidth string
		outcome            string
	}{
		"itself":         {old, Same, Same, Same},
		"worse":          {runs(around(1100, 10, 6), around(90, 1, 6)), Worse, Worse, Worse},
		"better":         {runs(around(900, 10, 6), around(110, 1, 6)), Better, Better, Better},
		"one is worse":   {runs(around(900, 10, 6), around(90, 1, 6)), Better, Worse, Worse},
		"noisy":          {runs(around(1100, 90, 6), around(90, 9, 6)), Undecided, Undecided, Undecided},
		"noisy, though":  {runs(around(1500, 200, 6), around(40, 9, 6)), Worse, Worse, Worse},
		"a little worse": {runs(around(1020, 10, 6), around(98, 1, 6)), Same, Same, Same},
		"the edge":       {runs(around(1050, 10, 6), around(95, 1, 6)), Undecided, Undecided, Undecided},
		"few runs":       {runs(around(2000, 1, 2), around(10, 0.1, 2)), Undecided, Undecided, Undecided},
	} {
		got := Compare(old, c.now, 5, 0)
		assert.DeepEqual(t, verdicts(got), all(c.latency, c.bandwidth))
		assert.Equal(t, got.Outcome, c.outcome, name)
		for _, ch := range got.Changes {
			assert.Equal(t, ch.Why != "", ch.Verdict == Undecided, "%s: %+v", name, ch)
			assert.Assert(t, ch.Verdict == Undecided || ch.Least <= ch.Percent && ch.Percent <= ch.Most, "%s: %+v", name, ch)
		}
	}
	// Single runs are undecided, unless their noise is given.
	one, two := runs([]float64{1000}, []float64{100}), runs([]float64{1300}, []float64{99})
	two.Runs[0].Case.Iters = 77 // how long it was measured makes no other case
	assert.DeepEqual(t, verdicts(Compare(one, two, 5, 0)), all(Undecided, Undecided))
	assert.DeepEqual(t, verdicts(Compare(one, two, 5, 1)), all(Worse, Same))
	assert.DeepEqual(t, verdicts(Compare(one, two, 5, 20)), all(Undecided, Undecided))
	assert.Assert(t, math.Abs(Compare(one, two, 5, 0).Changes[0].Percent-30) < 1e-9)
}

// If the new document lacks cases, the outcome is Missing, unless a figure is worse.
func TestCompareMissing(t *testing.T) {
	old, now := runs(around(1000, 1, 6), around(100, 1, 6)), runs(around(1000, 1, 6), nil)
	c := Compare(old, now, 5, 0)
	assert.Equal(t, c.Outcome, Missing)
	assert.DeepEqual(t, c.Missing, []string{"udat send bw, 64B"})
	assert.Equal(t, Compare(now, old, 5, 0).Outcome, Same)
	assert.DeepEqual(t, Compare(now, old, 5, 0).Added, []string{"udat send bw, 64B"})
	assert.Equal(t, Compare(old, runs(around(2000, 1, 6), nil), 5, 0).Outcome, Worse)
	assert.Equal(t, Compare(old, runs([]float64{1000}, nil), 5, 0).Outcome, Missing)
}

// In a mesh each pair is compared, in each direction. A pair that fails in the new document is
// missing.
func TestCompareMesh(t *testing.T) {
	mesh := func(times map[string]float64) *Document {
		m := Matrix{Case: run(UDAT, Latency, 1, 1).Case}
		for _, way := range []string{"ab", "ba", "ac"} {
			p := Pair{From: way[:1], To: way[1:], Error: "no way"}
			if v := times[way]; v > 0 {
				one := run(UDAT, Latency, v, 1)
				p.Run, p.Error = &one, ""
			}
			m.Pairs = append(m.Pairs, p)
		}
		return &Document{Mesh: &Mesh{Matrices: []Matrix{m}}}
	}
	old := mesh(map[string]float64{"ab": 1000, "ba": 1000})
	c := Compare(old, mesh(map[string]float64{"ab": 1000, "ba": 1500, "ac": 1}), 5, 1)
	assert.Equal(t, c.Outcome, Worse)
	assert.Equal(t, len(c.Changes), 4) // p50 and p99 of two pairs
	for _, ch := range c.Changes {
		assert.Equal(t, ch.Verdict == Worse, ch.From == "b", "%+v", ch)
	}
	assert.DeepEqual(t, c.Added, []string{"a -> c, udat send lat, 64B"})
	c = Compare(old, mesh(map[string]float64{"ab": 1000}), 5, 1)
	assert.Equal(t, c.Outcome, Missing)
	assert.DeepEqual(t, c.Missing, []string{"b -> a, udat send lat, 64B: no way"})
}

// A figure is undecided if a run was too short, before or after, or if a percentile has too few
// samples.
func TestCompareTooShort(t *testing.T) {
	one := func(p50, gbit float64, elapsed Seconds, count int64) *Document {
		d := runs([]float64{p50}, []float64{gbit})
		for i := range d.Runs {
			d.Runs[i].Client.Initiated.Elapsed = elapsed
		}
		d.Runs[0].Client.Initiated.Latency.Count = count
		return d
	}
	long, short := Seconds(20*time.Millisecond), Seconds(2*time.Millisecond)
	c := Compare(one(1000, 100, long, 1000), one(2000, 50, long, 1000), 5, 1)
	assert.Equal(t, c.Count(Worse), 4) // p50, p99, bandwidth, rate
	for _, brief := range [][2]Seconds{{short, long}, {long, short}, {short, short}} {
		c := Compare(one(1000, 100, brief[0], 1000), one(2000, 50, brief[1], 1000), 5, 1)
		assert.Equal(t, c.Count(Undecided), 4)
		assert.Equal(t, c.Outcome, Undecided)
		assert.DeepEqual(t, []float64{c.Changes[0].Percent, c.Changes[2].Percent}, []float64{100, -50})
	}
	for n := range 3 { // one of three runs is short, whichever
		d := runs([]float64{1000, 1000, 1000}, nil)
		for i := range d.Runs {
			d.Runs[i].Client.Initiated.Elapsed = long
		}
		d.Runs[n].Client.Initiated.Elapsed = short
		for _, s := range Summarize(d.Runs) {
			assert.Assert(t, s.Short, "run %d", n)
		}
	}
	c = Compare(one(1000, 100, long, 1000), one(1000, 100, long, 99), 5, 1)
	assert.Equal(t, c.Changes[1].Why, "the new document has too few samples for it")
	assert.Equal(t, c.Outcome, Undecided)
	assert.Equal(t, len(Compare(one(1000, 100, long, 99), one(2000, 50, long, 1000), 5, 1).Changes), 3)
}

// A percentile needs so many samples that at least one of them lies beyond it.
func TestEnough(t *testing.T) {
	for p, least := range map[float64]int64{50: 2, 75: 4, 90: 10, 95: 20, 99: 100, 99.9: 1000, 99.99: 10_000,
		99.999: 100_000} {
		assert.Assert(t, (&Distribution{Count: least}).Enough(p), "p%g of %d", p, least)
		assert.Assert(t, !(&Distribution{Count: least - 1}).Enough(p), "p%g of %d", p, least-1)
	}
	assert.Assert(t, !(*Distribution)(nil).Enough(50))
}

// The latency of two directions is that of the slower one, the corrected one too; rates add up, and
// the elapsed time is the longer one.
func TestTotalOfDirections(t *testing.T) {
	times := func(p50 float64) *Distribution { return &Distribution{Percentiles: []Percentile{{50, p50}}} }
	slow := Stream{Ops: 1, Bytes: 8, Elapsed: 5, GbitS: 1, MiBS: 2, OpsS: 3, Latency: times(20), Corrected: times(21)}
	fast := Stream{Ops: 10, Bytes: 80, Elapsed: 4, GbitS: 10, MiBS: 20, OpsS: 30, Latency: times(10), Corrected: times(99)}
	for _, ends := range [][2]Stream{{slow, fast}, {fast, slow}} {
		r := Run{Case: Default(), Client: &End{Initiated: &ends[0]}, Server: &End{Initiated: &ends[1]}}
		sum := r.Total()
		assert.DeepEqual(t, []float64{sum.Latency.At(50), sum.Corrected.At(50), sum.GbitS, sum.MiBS, sum.OpsS},
			[]float64{20, 21, 11, 22, 33})
		assert.DeepEqual(t, []int64{sum.Ops, sum.Bytes, int64(sum.Elapsed)}, []int64{11, 88, 5})
	}
}

func TestSummarizeTakesTheMedian(t *testing.T) {
	s := Summarize([]Run{run(UDAT, Latency, 300, 1), run(UDAT, Latency, 100, 1), run(UDAT, Latency, 200, 1)})
	assert.Equal(t, s[0].Runs, 3)
	assert.Equal(t, s[0].Median, 200.0)
	assert.Equal(t, s[0].Min, 100.0)
	assert.Equal(t, s[0].Max, 300.0)
	assert.Equal(t, s[0].Spread, 100.0)
}

// The interval of a median leaves out as many of the lowest runs as of the highest.
func TestSummaryInterval(t *testing.T) {
	var all []Run
	for i := range 12 {
		all = append(all, run(UDAT, Latency, float64(100*(12-i)), 1))
	}
	k := ConfidenceRank(12, 0.95)
	assert.Assert(t, k > 1)
	s := Summarize(all)[0]
	assert.DeepEqual(t, []float64{s.Low, s.High}, []float64{100 * float64(k), 100 * float64(13-k)})
}

func TestLimits(t *testing.T) {
	runs := []Run{run(UDAT, Latency, 1500, 1), run(UDAT, Bandwidth, 0, 90)}
	cases := []Case{runs[0].Case, runs[1].Case}
	l := Limits{MinGbitS: 91, MaxP50: 2 * time.Microsecond, MaxP99: 2 * time.Microsecond}
	assert.NilError(t, l.Validate(cases))
	missed := l.Missed(runs)
	assert.Equal(t, len(missed), 2)
	assert.ErrorContains(t, (&Limits{MinGbitS: 1}).Validate(cases[:1]), "--min-bw: nothing in the plan measures bandwidth")
	assert.ErrorContains(t, (&Limits{MaxP99: 1}).Validate(cases[1:]), "--max-p99: nothing in the plan measures latency")
}

func TestDocumentRoundTrip(t *testing.T) {
	d := &Document{Schema: Schema, Version: "v", Started: time.Unix(1700000000, 0).UTC(), Units: Units,
		Runs: []Run{run(UDAT, Latency, 1000, 1)}}
	var text bytes.Buffer
	assert.NilError(t, d.Write(&text))
	dir := t.TempDir()
	file := filepath.Join(dir, "d.json")
	assert.NilError(t, os.WriteFile(file, text.Bytes(), 0o600))
	back, err := ReadFile(file)
	assert.NilError(t, err)
	assert.DeepEqual(t, back, d, cmpopts.EquateComparable(Knob{}))
	for name, content := range map[string]string{"schema": `{"schema":"datperf/99"}`, "none": `{}`, "text": `hello`,
		"empty": `{"schema":"datperf/1","runs":[{}]}`} {
		file := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := ReadFile(file)
		assert.ErrorContains(t, err, name)
	}
}

// The ranks agree with the tables of the sign test.
func TestConfidence(t *testing.T) {
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 10: 2, 20: 6, 100: 40} {
		assert.Equal(t, ConfidenceRank(n, 0.95), want, "%d values", n)
	}
}
