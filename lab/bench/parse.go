package main

import (
	"bufio"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/lab/process"
)

// perftestRow returns the line of headings and the first row of values of perftest's table. A
// heading may contain blanks, but each heading ends in its unit.
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
			v, err := strconv.ParseFloat(strings.TrimPrefix(f, "-"), 64) // perftest prints -nan if there are few iterations
			if err != nil {
				return heading, nil, fmt.Errorf("perftest: %q in %q is no number", f, line)
			}
			values = append(values, v)
		}
		return heading, values, nil
	}
	return heading, nil, fmt.Errorf("perftest: no row of figures: %s", process.LastLines(text, 2))
}

// perftestLatency returns the column t_typical, the median, in nanoseconds.
func perftestLatency(text string) (float64, error) {
	heading, v, err := perftestRow(text)
	if err != nil {
		return 0, err
	}
	// #bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%
	if !strings.Contains(heading, "t_typical[usec]") || len(v) < 5 {
		return 0, fmt.Errorf("perftest: no t_typical[usec] under %q", heading)
	}
	return v[4] * 1000, nil
}

// perftestBandwidth returns the average bandwidth in bytes per second. perftest prints MB of 2^20
// bytes with two decimals. For small messages that is too coarse, so perftestBandwidth computes the
// bandwidth from the message rate, which has more digits.
func perftestBandwidth(text string, size int) (float64, error) {
	heading, v, err := perftestRow(text)
	if err != nil {
		return 0, err
	}
	// #bytes #iterations BW_peak BW_average MsgRate
	if !strings.Contains(heading, "BW average[MB/sec]") || !strings.Contains(heading, "MsgRate[Mpps]") || len(v) < 5 {
		return 0, fmt.Errorf("perftest: no BW average[MB/sec] and MsgRate[Mpps] under %q", heading)
	}
	if size < 4096 {
		return v[4] * 1e6 * float64(size), nil
	}
	return v[3] * (1 << 20), nil
}

// dapl contains the figures that dapltest's performance test prints.
type dapl struct {
	Ops     float64 // operations per second, many in flight
	Latency float64 // mean of operations one at a time, in ns
}

// dapltestRaw parses the line "raw: op, iterations, size, segments, pipeline, cpu, ops/s, MB/s,
// latency, post, reap".
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
	return d, fmt.Errorf("dapltest: no line of raw figures: %s", process.LastLines(text, 2))
}

// hundredths parses a number that dapltest prints. dapltest prints the hundredths after the point
// without a leading zero: "3.5" means 3.05.
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

// cmtimeStep is a line of cmtime's table: the time that a step took for all connections.
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
			return nil, fmt.Errorf("cmtime: no time for the step %q: %s", need, process.LastLines(text, 2))
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

// parseDatperf parses the document that datperf prints to its standard output.
func parseDatperf(text string) (*result.Document, error) {
	d, err := result.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("datperf: %w", err)
	}
	if len(d.Runs) == 0 {
		return nil, errors.New("datperf: no run in its document")
	}
	return d, nil
}
