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

func near(t *testing.T, got, want float64) {
	t.Helper()
	assert.Assert(t, math.Abs(got-want) < 1e-6*want, "%g, not %g", got, want)
}

func TestPerftestLatencyInNanoseconds(t *testing.T) {
	for name, want := range map[string]float64{"ib_send_lat.txt": 11360, "ib_read_lat.txt": 37010} {
		p50, err := perftestLatency(sample(t, name))
		assert.NilError(t, err)
		near(t, p50, want)
	}
}

// For small messages the bandwidth is computed from the message rate, which has more digits.
func TestPerftestBandwidth(t *testing.T) {
	for size, want := range map[int]float64{4096: 69.62 * (1 << 20), 64: 1114 * 64} {
		v, err := perftestBandwidth(sample(t, "ib_write_bw.txt"), size)
		assert.NilError(t, err)
		near(t, v, want)
	}
}

func TestPerftestRefusesOtherOutput(t *testing.T) {
	for _, text := range []string{
		"", "Couldn't connect to 10.0.0.1:18515\n", strings.Split(sample(t, "ib_send_lat.txt"), " 2   ")[0],
	} {
		_, err := perftestLatency(text)
		assert.ErrorContains(t, err, "perftest: no row of figures")
	}
	_, err := perftestLatency(sample(t, "ib_write_bw.txt"))
	assert.ErrorContains(t, err, "no t_typical")
	_, err = perftestBandwidth(sample(t, "ib_send_lat.txt"), 64)
	assert.ErrorContains(t, err, "no BW average")
	_, err = perftestLatency(strings.Replace(sample(t, "ib_send_lat.txt"), "11.36", "fast", 1))
	assert.ErrorContains(t, err, `"fast"`)
	p50, err := perftestLatency(strings.Replace(sample(t, "ib_send_lat.txt"), "823.44", "-nan", 1)) // the deviation
	assert.NilError(t, err)
	near(t, p50, 11360)
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

func TestDatperfDocument(t *testing.T) {
	_, err := parseDatperf("usage")
	assert.ErrorContains(t, err, "not a datperf document")
	_, err = parseDatperf(`{"schema":"datperf/1","runs":[]}`)
	assert.ErrorContains(t, err, "no run")
	_, err = parseDatperf(`{"schema":"datperf/1","runs":[{"settings":{"mode":"bw"},"client":{},"server":{}}]}`)
	assert.ErrorContains(t, err, "no measurement")
	d, err := parseDatperf(`{"schema":"datperf/1","runs":[{"settings":{"mode":"bw"},"client":{"initiated":{"ops_s":5}}}]}`)
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

func TestRstreamTime(t *testing.T) {
	ns, err := parseRstream(sample(t, "rstream.txt"))
	assert.NilError(t, err)
	assert.Equal(t, ns, 680410.0)
	_, err = parseRstream("rconnect: Connection refused\n")
	assert.ErrorContains(t, err, "rstream: no row of figures: rconnect: Connection refused")
}

func TestPingpongTime(t *testing.T) {
	const heading = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
	ns, err := parsePingpong(heading + "64      10k     =10k     1.2m        5.81s      0.22     290.68       0.00\n")
	assert.NilError(t, err)
	near(t, ns, 290680)
	for _, text := range []string{"", heading, heading + "64 10k\n", "fi_getinfo: -61 (No data available)\n"} {
		_, err := parsePingpong(text)
		assert.ErrorContains(t, err, "fi_pingpong: no figure", "%q", text)
	}
	for _, us := range []string{"fast", "0"} {
		_, err = parsePingpong(heading + "64      10k     =10k     1.2m        5.81s      0.22     " + us + "     0.00\n")
		assert.Assert(t, err != nil, us)
	}
}
