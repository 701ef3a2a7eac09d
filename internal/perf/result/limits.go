package result

import (
	"fmt"
	"time"
)

// Limits are limits for the figures of runs. A field that is zero sets no limit.
type Limits struct {
	MinGbitS float64       // bandwidth runs only
	MinOpsS  float64       // bandwidth runs only
	MaxP50   time.Duration // runs that measure latency only
	MaxP99   time.Duration
	MaxP999  time.Duration
}

// Validate returns an error if a limit is negative, or if there is a limit for a figure that no
// case measures.
func (l *Limits) Validate(cases []Case) error {
	var latency, bandwidth bool
	for i := range cases {
		timed := cases[i].Mode == Latency || cases[i].Rate > 0
		latency = latency || timed
		bandwidth = bandwidth || cases[i].Mode == Bandwidth
	}
	for _, c := range []struct {
		flag    string
		value   float64
		applies bool
		what    string
	}{
		{"min-bw", l.MinGbitS, bandwidth, "bandwidth (--mode bw)"},
		{"min-rate", l.MinOpsS, bandwidth, "bandwidth (--mode bw)"},
		{"max-p50", float64(l.MaxP50), latency, "latency"}, {"max-p99", float64(l.MaxP99), latency, "latency"},
		{"max-p99.9", float64(l.MaxP999), latency, "latency"},
	} {
		switch {
		case !(c.value >= 0):
			return fmt.Errorf("--%s: must be positive", c.flag)
		case c.value > 0 && !c.applies:
			return fmt.Errorf("--%s: nothing in the plan measures %s", c.flag, c.what)
		}
	}
	return nil
}

// Missed returns a text for every limit that a run misses. For an open loop, the limits apply to
// the corrected latency.
func (l *Limits) Missed(runs []Run) []string {
	var missed []string
	for i := range runs {
		r := &runs[i]
		total := r.Total()
		say := func(format string, args ...any) {
			missed = append(missed, r.Case.Name()+": "+fmt.Sprintf(format, args...))
		}
		if r.Case.Mode == Bandwidth {
			if total.GbitS < l.MinGbitS {
				say("%.3f Gb/s, the limit is %g", total.GbitS, l.MinGbitS)
			}
			if total.OpsS < l.MinOpsS {
				say("%.0f operations per second, the limit is %g", total.OpsS, l.MinOpsS)
			}
		}
		latency := total.Latency
		if total.Corrected != nil {
			latency = total.Corrected
		}
		if latency == nil {
			continue
		}
		for _, c := range []struct {
			p     float64
			limit time.Duration
		}{{50, l.MaxP50}, {99, l.MaxP99}, {99.9, l.MaxP999}} {
			if v := latency.At(c.p); c.limit > 0 && v > float64(c.limit) {
				say("p%g is %s, the limit is %v", c.p, Nanos(v), c.limit)
			}
		}
	}
	return missed
}
