package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// goBenchmark is a line of `go test -bench`.
type goBenchmark struct {
	Name   string // without "Benchmark" and the number of processors
	NsOp   float64
	Allocs float64 // per operation; -1 where not reported
	Extra  map[string]float64
}

var benchmarkLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// parseGoBench reads the output of `go test -bench`.
func parseGoBench(text string) ([]goBenchmark, error) {
	var all []goBenchmark
	for line := range strings.Lines(text) {
		m := benchmarkLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		b := goBenchmark{Name: m[1], Allocs: -1, Extra: map[string]float64{}}
		f := strings.Fields(m[2])
		for i := 0; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark %s: %w", b.Name, err)
			}
			switch f[i+1] {
			case "ns/op":
				b.NsOp = v
			case "allocs/op":
				b.Allocs = v
			default:
				b.Extra[f[i+1]] = v
			}
		}
		if b.NsOp == 0 {
			return nil, fmt.Errorf("benchmark %s: there is no ns/op in %q", b.Name, line)
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no benchmark in the output: %s", lastLines(text, 3))
	}
	return all, nil
}

// column gives the value under a heading in the output of perftest's programs. Headings and values are set in columns of words
// that may have blanks in them, but each ends in the unit.
func perftestRow(text string) (heading string, values []float64, err error) {
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if strings.HasPrefix(line, "#bytes") {
			heading = line
			continue
		}
		if heading == "" || line == "" {
			continue
		}
		for _, f := range strings.Fields(line) {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return heading, nil, fmt.Errorf("perftest: %q in %q is no number", f, line)
			}
			values = append(values, v)
		}
		return heading, values, nil
	}
	return heading, nil, fmt.Errorf("perftest: no row of figures: %s", lastLines(text, 2))
}

// perftestLatency gives t_typical, the median, in nanoseconds.
func perftestLatency(text string) (float64, error) {
	heading, v, err := perftestRow(text)
	if err != nil {
		return 0, err
	}
	// #bytes #iterations t_min t_max t_typical t_avg ...
	if !strings.Contains(heading, "t_typical[usec]") || len(v) < 6 {
		return 0, fmt.Errorf("perftest: no t_typical[usec] under %q", heading)
	}
	return v[4] * 1000, nil
}

// perftestBandwidth gives the average bandwidth in bytes and messages per second. MB are 2^20 bytes there.
func perftestBandwidth(text string) (bytes, messages float64, err error) {
	heading, v, err := perftestRow(text)
	if err != nil {
		return 0, 0, err
	}
	// #bytes #iterations BW_peak BW_average MsgRate
	if !strings.Contains(heading, "BW average[MB/sec]") || !strings.Contains(heading, "MsgRate[Mpps]") || len(v) < 5 {
		return 0, 0, fmt.Errorf("perftest: no BW average[MB/sec] and MsgRate[Mpps] under %q", heading)
	}
	return v[3] * (1 << 20), v[4] * 1e6, nil
}

// dapl is what dapltest's performance test prints.
type dapl struct {
	Ops     float64 // per second, pipelined
	Latency float64 // mean of one at a time, ns
}

// dapltestRaw reads the line "raw: op, iterations, size, segments, pipeline, cpu, ops/s, MB/s, latency, post, reap".
func dapltestRaw(text string) (d dapl, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "raw:")
		if !ok {
			continue
		}
		f := strings.Split(rest, ",")
		if len(f) != 11 {
			return d, fmt.Errorf("dapltest: %d figures in %q, not 11", len(f), line)
		}
		if d.Ops, err = hundredths(f[6]); err != nil {
			return d, err
		}
		us, err := hundredths(f[8])
		d.Latency = us * 1000
		if err == nil && (d.Ops <= 0 || us <= 0) {
			err = fmt.Errorf("dapltest: figures that cannot be in %q", line)
		}
		return d, err
	}
	return d, fmt.Errorf("dapltest: no line of raw figures: %s", lastLines(text, 2))
}

// hundredths reads a number of dapltest, which prints whole units, a point, and the hundredths without leading zero: 3.5 is 3.05.
func hundredths(s string) (float64, error) {
	s = strings.TrimSpace(s)
	whole, part, found := strings.Cut(s, ".")
	w, err := strconv.ParseFloat(whole, 64)
	if err != nil || !found {
		return w, err
	}
	h, err := strconv.ParseFloat(part, 64)
	return w + h/100, err
}

// cmtimeStep is a line of cmtime's table: the time all connections took for a step.
type cmtimeStep struct {
	Name string
	Ms   float64
}

var cmtimeLine = regexp.MustCompile(`^([a-z ]+?)\s*:\s+([0-9.]+)\s`)

func parseCmtime(text string) ([]cmtimeStep, error) {
	var steps []cmtimeStep
	for line := range strings.Lines(text) {
		if m := cmtimeLine.FindStringSubmatch(line); m != nil {
			ms, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, fmt.Errorf("cmtime: %w", err)
			}
			steps = append(steps, cmtimeStep{m[1], ms})
		}
	}
	for _, need := range []string{"create qp", "connect", "disconnect"} {
		if stepMs(steps, need) <= 0 {
			return nil, fmt.Errorf("cmtime: no time for the step %q: %s", need, lastLines(text, 2))
		}
	}
	return steps, nil
}

func stepMs(steps []cmtimeStep, name string) float64 {
	for _, s := range steps {
		if s.Name == name {
			return s.Ms
		}
	}
	return 0
}

// parseDatperf reads a document of datperf from its standard output.
func parseDatperf(text string) (*result.Document, error) {
	d := new(result.Document)
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, fmt.Errorf("datperf: no JSON document: %w", err)
	}
	if d.Schema != result.Schema || len(d.Runs) == 0 {
		return nil, fmt.Errorf("datperf: schema %q with %d runs, want %q", d.Schema, len(d.Runs), result.Schema)
	}
	for i := range d.Runs {
		if len(d.Runs[i].Flows()) == 0 {
			return nil, fmt.Errorf("datperf: nothing was measured in run %d", i+1)
		}
	}
	return d, nil
}

// keyValues reads "name=number" words, as the small C programs print them.
func keyValues(text string, need ...string) (map[string]float64, error) {
	m := map[string]float64{}
	for _, f := range strings.Fields(text) {
		if k, v, ok := strings.Cut(f, "="); ok {
			x, err := strconv.ParseFloat(v, 64)
			if err != nil || math.IsNaN(x) {
				return nil, fmt.Errorf("%q is no number", f)
			}
			m[k] = x
		}
	}
	for _, k := range need {
		if _, ok := m[k]; !ok {
			return nil, errors.New("no " + k + " in the output: " + lastLines(text, 2))
		}
	}
	return m, nil
}
