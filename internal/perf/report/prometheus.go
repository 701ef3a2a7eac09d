package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/godat/godat/internal/perf/result"
)

// Prometheus collects the metrics of runs and writes them in the text format of Prometheus. Its
// methods may be called concurrently.
type Prometheus struct {
	mu   sync.Mutex
	c    *result.Case
	runs int
	ends map[string]*endTotals
}

// endTotals contains the totals of the operations that one end initiated.
type endTotals struct {
	ops, bytes       int64
	runOps, runBytes int64 // in the current run
	last             result.Interval
	counters         result.Counters // counters of the port
}

// NewPrometheus returns an empty Prometheus.
func NewPrometheus() *Prometheus { return &Prometheus{ends: map[string]*endTotals{}} }

// Case begins a run.
func (p *Prometheus) Case(c *result.Case) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c = c
	for _, e := range p.ends {
		e.runOps, e.runBytes, e.last = 0, 0, result.Interval{}
	}
}

// Interval adds an interval of an end.
func (p *Prometheus) Interval(iv *result.Interval) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.end(iv.End)
	e.last = *iv
	e.add(iv.Ops, iv.Bytes)
}

// Run ends a run and adds the operations after its last interval.
func (p *Prometheus) Run(r *result.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs++
	for _, f := range r.Flows() {
		name := "client"
		if f.Direction == result.In {
			name = "server"
		}
		e := p.end(name)
		e.add(max(f.Stream.Ops-e.runOps, 0), max(f.Stream.Bytes-e.runBytes, 0))
	}
	if r.Client != nil {
		p.end("client").count(r.Client.Counters)
	}
	if r.Server != nil {
		p.end("server").count(r.Server.Counters)
	}
}

// maxCounters limits the number of counters of an end, because the names of the counters come from
// the peer.
const maxCounters = 512

// count adds the changes of a port's counters in a run. It skips changes that are not positive,
// names that contain characters that the kernel does not use, and new names beyond maxCounters.
func (e *endTotals) count(run result.Counters) {
	if e.counters == nil {
		e.counters = result.Counters{}
	}
	for name, n := range run {
		_, known := e.counters[name]
		if n > 0 && (known || len(e.counters) < maxCounters) && !strings.ContainsFunc(name, func(r rune) bool {
			return !strings.ContainsRune(counterLetters, r)
		}) {
			e.counters[name] += n
		}
	}
}

const counterLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

func (p *Prometheus) end(name string) *endTotals {
	if p.ends[name] == nil {
		p.ends[name] = &endTotals{}
	}
	return p.ends[name]
}

func (e *endTotals) add(ops, bytes int64) {
	e.ops, e.runOps = e.ops+ops, e.runOps+ops
	e.bytes, e.runBytes = e.bytes+bytes, e.runBytes+bytes
}

// WriteText writes the text format, version 0.0.4.
func (p *Prometheus) WriteText(w io.Writer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	each := func(name string, of func(e *endTotals) (float64, bool)) {
		for _, who := range []string{"client", "server"} {
			if e := p.ends[who]; e != nil {
				if v, ok := of(e); ok {
					fmt.Fprintf(&b, "%s{end=%q} %g\n", name, who, v)
				}
			}
		}
	}
	family("datperf_runs_total", "counter", "Runs that are over.")
	fmt.Fprintf(&b, "datperf_runs_total %d\n", p.runs)
	if c := p.c; c != nil {
		family("datperf_case_info", "gauge", "What runs, or has run last.")
		fmt.Fprintf(&b, "datperf_case_info{test=%q,mode=%q,layer=%q,direction=%q,poll=%q,"+
			"size_bytes=\"%d\",queue_pairs=\"%d\",depth=\"%d\",batch=\"%d\"} 1\n",
			c.Test, c.Mode, c.Layer, c.Direction, c.Poll, c.Size, c.QPs, c.Depth, c.Batch)
	}
	family("datperf_operations_total", "counter", "Operations that this end has initiated, without warm-up.")
	each("datperf_operations_total", func(e *endTotals) (float64, bool) { return float64(e.ops), true })
	family("datperf_payload_bytes_total", "counter", "Payload of these operations.")
	each("datperf_payload_bytes_total", func(e *endTotals) (float64, bool) { return float64(e.bytes), true })
	family("datperf_payload_bits_per_second", "gauge", "Payload per second in the last interval.")
	each("datperf_payload_bits_per_second", func(e *endTotals) (float64, bool) { return e.last.GbitS * 1e9, true })
	family("datperf_latency_seconds", "gauge", "Latency in the last interval: median, 99th percentile, maximum.")
	for _, who := range []string{"client", "server"} {
		e := p.ends[who]
		if e == nil || e.last.P50 == 0 {
			continue
		}
		for _, q := range []struct {
			name string
			ns   float64
		}{{"0.5", e.last.P50}, {"0.99", e.last.P99}, {"1", e.last.Max}} {
			fmt.Fprintf(&b, "datperf_latency_seconds{end=%q,quantile=%q} %g\n", who, q.name, q.ns/1e9)
		}
	}
	family("datperf_port_counter_total", "counter",
		"What the runs added to the kernel's counters of the port and its network device, in the kernel's units.")
	for _, who := range []string{"client", "server"} {
		if e := p.ends[who]; e != nil {
			for _, name := range slices.Sorted(maps.Keys(e.counters)) {
				fmt.Fprintf(&b, "datperf_port_counter_total{end=%q,counter=%q} %d\n", who, name, e.counters[name])
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
