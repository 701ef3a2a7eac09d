package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func sample(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	assert.NilError(t, err)
	return string(data)
}

func TestPerftestLatencyIsTypicalInNanoseconds(t *testing.T) {
	for name, want := range map[string]float64{"ib_send_lat.txt": 11360, "ib_read_lat.txt": 37010} {
		v, err := perftestLatency(sample(t, name))
		assert.NilError(t, err)
		assert.Assert(t, math.Abs(v-want) < 1e-6, "%s: %g", name, v)
	}
}

func TestPerftestBandwidthIsAverage(t *testing.T) {
	bytes, messages, err := perftestBandwidth(sample(t, "ib_write_bw.txt"))
	assert.NilError(t, err)
	assert.Equal(t, bytes, 69.62*(1<<20))
	assert.Assert(t, math.Abs(messages-1114) < 1e-6, "%g", messages)
}

func TestPerftestRefusesOtherOutput(t *testing.T) {
	for _, text := range []string{"", "Couldn't connect to 10.0.0.1:18515\n", strings.Split(sample(t, "ib_send_lat.txt"), " 2   ")[0]} {
		_, err := perftestLatency(text)
		assert.ErrorContains(t, err, "perftest: no row of figures")
	}
	_, err := perftestLatency(sample(t, "ib_write_bw.txt"))
	assert.ErrorContains(t, err, "no t_typical")
	_, _, err = perftestBandwidth(sample(t, "ib_send_lat.txt"))
	assert.ErrorContains(t, err, "no BW average")
	_, err = perftestLatency(strings.Replace(sample(t, "ib_send_lat.txt"), "11.36", "fast", 1))
	assert.ErrorContains(t, err, `"fast"`)
}

func TestDapltestRaw(t *testing.T) {
	d, err := dapltestRaw(sample(t, "dapltest.txt"))
	assert.NilError(t, err)
	assert.Equal(t, d.Ops, 33240.26)
	assert.Assert(t, math.Abs(d.Latency-22510) < 1e-6, "%g", d.Latency)
	for text, want := range map[string]string{
		"DT_cs_Client: bad\n":                         "no line of raw figures",
		"raw: RW, 500, 2\n":                           "3 figures",
		"raw: RW, 1, 2, 1, 1, 0.0, 0.0, 0, 5.0, 0, 0": "cannot be",
	} {
		_, err := dapltestRaw(text)
		assert.ErrorContains(t, err, want)
	}
}

func TestHundredthsComeWithoutLeadingZero(t *testing.T) {
	for text, want := range map[string]float64{"3.5": 3.05, " 52.60 ": 52.60, "7": 7, "22.51": 22.51} {
		v, err := hundredths(text)
		assert.NilError(t, err)
		assert.Assert(t, math.Abs(v-want) < 1e-9, "%q gives %g", text, v)
	}
	_, err := hundredths("x.5")
	assert.ErrorContains(t, err, "invalid syntax")
}

func TestCmtimeSteps(t *testing.T) {
	steps, err := parseCmtime(sample(t, "cmtime.txt"))
	assert.NilError(t, err)
	assert.Equal(t, len(steps), 8)
	assert.Equal(t, stepMs(steps, "connect"), 280.96)
	assert.Equal(t, stepMs(steps, "resolve addr"), 5.28)
	_, err = parseCmtime("create qp    :  16.26  3.04  118.00  325.22\n")
	assert.ErrorContains(t, err, `"connect"`)
}

func TestGoBench(t *testing.T) {
	all, err := parseGoBench(sample(t, "gobench.txt"))
	assert.NilError(t, err)
	names := map[string]goBenchmark{}
	for _, b := range all {
		names[b.Name] = b
	}
	for _, want := range []string{"NullCall", "NullC/1", "NullC/32", "NullCverbs/1", "NullCverbs/32", "NullUdat/1", "NullUdat/32"} {
		assert.Assert(t, names[want].NsOp > 0, "%s is not there: %v", want, names)
	}
	assert.Equal(t, names["NullUdat/32"].Allocs, 0.0)
	one, err := parseGoBench("BenchmarkX/1-8   \t 100\t 12.5 ns/op\t 3 B/op\t 2 allocs/op\t 7 MB/s\n")
	assert.NilError(t, err)
	assert.DeepEqual(t, one, []goBenchmark{{"X/1", 12.5, 2, map[string]float64{"B/op": 3, "MB/s": 7}}})
	_, err = parseGoBench("PASS\n")
	assert.ErrorContains(t, err, "no benchmark")
}

func TestKeyValues(t *testing.T) {
	m, err := keyValues("min_ns=1.5 p50_ns=2\n", "p50_ns")
	assert.NilError(t, err)
	assert.Equal(t, m["p50_ns"], 2.0)
	_, err = keyValues("min_ns=1.5", "p50_ns")
	assert.ErrorContains(t, err, "no p50_ns")
	_, err = keyValues("p50_ns=nan", "p50_ns")
	assert.ErrorContains(t, err, "no number")
}

func TestDatperfDocument(t *testing.T) {
	_, err := parseDatperf("usage")
	assert.ErrorContains(t, err, "no JSON document")
	_, err = parseDatperf(`{"schema":"datperf/1","runs":[]}`)
	assert.ErrorContains(t, err, "0 runs")
	_, err = parseDatperf(`{"schema":"datperf/1","runs":[{"settings":{},"client":{},"server":{}}]}`)
	assert.ErrorContains(t, err, "nothing was measured")
	d, err := parseDatperf(`{"schema":"datperf/1","runs":[{"settings":{"layer":"udat"},"client":{"initiated":{"ops_s":5}},"server":{}}]}`)
	assert.NilError(t, err)
	total := d.Runs[0].Total()
	assert.Equal(t, total.OpsS, 5.0)
}

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-1": {0, 1}, "2-4,8,10-11": {2, 3, 4, 8, 10, 11}} {
		got, err := parseCPUs(list)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, want)
	}
	for _, list := range []string{"", "x", "3-1", "1,,2", "1-"} {
		_, err := parseCPUs(list)
		assert.ErrorContains(t, err, "no list of processors", "%q", list)
	}
}
