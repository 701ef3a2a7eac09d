package result

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A completed case is valid, whatever the test, and has a signalled request in every full window.
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

func TestCompare(t *testing.T) {
	before := &Document{Runs: []Run{run(UDAT, Latency, 1000, 1), run(UDAT, Bandwidth, 0, 100),
		run(Cverbs, Latency, 900, 1)}}
	after := &Document{Runs: []Run{run(UDAT, Latency, 1100, 1), run(UDAT, Bandwidth, 0, 104),
		run(Cverbs, Bandwidth, 0, 1)}}
	after.Runs[0].Case.Iters = 77 // how long it was measured makes no other case
	c := Compare(before, after, 5)
	assert.Equal(t, c.Worse(), 2) // p50 and p99
	assert.Equal(t, len(c.Changes), 4)
	assert.Equal(t, c.Changes[0].Metric.Name, "latency_p50_ns")
	assert.Assert(t, cmp.Equal(c.Changes[0].Percent, 10.0))
	assert.Assert(t, !c.Changes[2].Worse && !c.Changes[2].Improved)
	assert.Equal(t, len(c.OnlyOld), 1)
	assert.Equal(t, len(c.OnlyNew), 1)
	wide := Compare(before, after, 15)
	assert.Equal(t, wide.Worse(), 0)
	// Less bandwidth is worse, more latency is: the other way round both improve.
	back := Compare(after, before, 3)
	assert.Equal(t, back.Worse(), 2)
	assert.Assert(t, back.Changes[0].Improved && back.Changes[2].Worse)
}

// What was measured too briefly, before or after, is neither worse nor better; a percentile without
// samples enough is not compared at all.
func TestCompareTooShort(t *testing.T) {
	one := func(p50, gbit float64, elapsed Seconds, count int64) *Document {
		d := &Document{Runs: []Run{run(UDAT, Latency, p50, 1), run(UDAT, Bandwidth, 0, gbit)}}
		for i := range d.Runs {
			d.Runs[i].Client.Initiated.Elapsed = elapsed
		}
		d.Runs[0].Client.Initiated.Latency.Count = count
		return d
	}
	long, short := Seconds(20*time.Millisecond), Seconds(2*time.Millisecond)
	c := Compare(one(1000, 100, long, 1000), one(2000, 50, long, 1000), 5)
	assert.Equal(t, c.Worse(), 4) // p50, p99, bandwidth, rate
	for _, brief := range [][2]Seconds{{short, long}, {long, short}, {short, short}} {
		c := Compare(one(1000, 100, brief[0], 1000), one(2000, 50, brief[1], 1000), 5)
		assert.Equal(t, c.Worse(), 0)
		assert.Equal(t, len(c.Changes), 4)
		for _, ch := range c.Changes {
			assert.Assert(t, ch.Short && !ch.Improved, "%+v", ch)
		}
	}
	for _, counts := range [][2]int64{{99, 1000}, {1000, 99}} {
		c := Compare(one(1000, 100, long, counts[0]), one(2000, 50, long, counts[1]), 5)
		assert.Equal(t, len(c.Changes), 3, "%+v", c.Changes)
	}
}

// A percentile needs so many samples that one at least lies beyond it.
func TestEnough(t *testing.T) {
	for p, least := range map[float64]int64{50: 2, 75: 4, 90: 10, 95: 20, 99: 100, 99.9: 1000, 99.99: 10_000,
		99.999: 100_000} {
		assert.Assert(t, (&Distribution{Count: least}).Enough(p), "p%g of %d", p, least)
		assert.Assert(t, !(&Distribution{Count: least - 1}).Enough(p), "p%g of %d", p, least-1)
	}
	assert.Assert(t, !(*Distribution)(nil).Enough(50))
}

func TestSummarizeTakesTheMedian(t *testing.T) {
	s := Summarize([]Run{run(UDAT, Latency, 300, 1), run(UDAT, Latency, 100, 1), run(UDAT, Latency, 200, 1)})
	assert.Equal(t, s[0].Runs, 3)
	assert.Equal(t, s[0].Median, 200.0)
	assert.Equal(t, s[0].Min, 100.0)
	assert.Equal(t, s[0].Max, 300.0)
	assert.Equal(t, s[0].Spread, 100.0)
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

// The ranks are those of the tables of the sign test.
func TestConfidence(t *testing.T) {
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 10: 2, 20: 6, 100: 40} {
		assert.Equal(t, confidenceRank(n), want, "%d values", n)
	}
}
