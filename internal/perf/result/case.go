// Package result has the types of datperf's measurements: settings, results, and the document with
// both. Times are in nanoseconds and sizes in bytes unless a field's name has another unit.
package result

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Case is the complete setting of one measurement. Both ends use the same Case.
type Case struct {
	Test      string  `json:"test"`                // one of Tests, or transaction
	Mode      string  `json:"mode"`                // lat or bw
	Layer     string  `json:"layer"`               // udat or cverbs
	Transport string  `json:"transport,omitempty"` // uc or ud; empty: rc
	Direction string  `json:"direction"`           // out: the client initiates; in: the server does; both
	Size      int     `json:"size_bytes"`
	Iters     int64   `json:"iterations"` // operations measured, over all queue pairs; 0 where Duration counts
	Duration  Seconds `json:"duration_s"`
	Warmup    int64   `json:"warmup_iterations"` // operations before the measurement starts
	Depth     int     `json:"depth"`             // requests outstanding per queue pair
	RxDepth   int     `json:"rx_depth"`          // receives posted per queue pair, or in all with SRQ
	Batch     int     `json:"batch"`             // requests per post
	Signal    int     `json:"signal_every"`      // one signalled request in so many
	QPs       int     `json:"queue_pairs"`
	Threads   int     `json:"threads,omitempty"` // of the client, each with its own queue pairs; 0: one
	SRQ       bool    `json:"srq"`
	Inline    int     `json:"inline_bytes"` // largest inline request; -1: whatever the device grants
	ReadDepth int     `json:"read_depth"`   // reads and atomics outstanding per queue pair
	Poll      string  `json:"poll"`         // busy, event or adaptive
	Spin      Seconds `json:"spin_s"`       // adaptive: how long to poll before parking
	Verify    bool    `json:"verify"`
	HugePages bool    `json:"hugepages"`        // the registered memory is of huge pages
	DMABuf    string  `json:"dmabuf,omitempty"` // the registered memory is a dmabuf of this provider
	Buffers   int     `json:"buffers"`          // message buffers of a queue pair; 0: one for each in flight
	Steps     string  `json:"steps,omitempty"`  // of a transaction
	Rate      float64 `json:"rate_per_s"`       // open loop: operations per second; 0: closed loop
	Arrival   string  `json:"arrival"`          // open loop: constant or poisson
	Interval  Seconds `json:"interval_s"`
	Stall     Seconds `json:"stall_s"` // an initiator whose outstanding requests make no progress for so long gives up
	Knobs
}

// Values of the enumerations of Case.
const (
	Send, SendImm, Write, WriteImm, Read       = "send", "send-imm", "write", "write-imm", "read"
	FetchAdd, CmpSwap                          = "fetch-add", "cmp-swap"
	Transaction                                = "transaction"
	Latency, Bandwidth                         = "lat", "bw"
	UDAT, Cverbs                               = "udat", "cverbs"
	RC, UC, UD                                 = "rc", "uc", "ud" // in a Case rc is empty
	Out, In, Both                              = "out", "in", "both"
	Busy, Event, Adaptive                      = "busy", "event", "adaptive"
	Constant, Poisson                          = "constant", "poisson"
	maxSize                                    = 1 << 30
	maxDepth, MaxQPs                           = 16384, 4096
	maxIters                             int64 = 1 << 40
)

// maxCompletions is the largest number of completions in flight at an end.
const maxCompletions = 1 << 20

// Allowed values of the enumerations.
var (
	Tests      = []string{Send, SendImm, Write, WriteImm, Read, FetchAdd, CmpSwap}
	AllTests   = append(Tests[:len(Tests):len(Tests)], Transaction)
	Modes      = []string{Latency, Bandwidth}
	Layers     = []string{UDAT, Cverbs}
	Transports = []string{RC, UC, UD}
	Directions = []string{Out, In, Both}
	Polls      = []string{Busy, Event, Adaptive}
	Arrivals   = []string{Constant, Poisson}
)

// UDMABuf is the provider of dmabufs that are memory of the process: /dev/udmabuf. The others are
// heaps in /dev/dma_heap.
const UDMABuf = "udmabuf"

// AtomicSize is the only size of an atomic operation.
const AtomicSize = 8

// Default returns the default case; Complete fills in the values that depend on others.
func Default() Case {
	return Case{
		Test: Send, Mode: Latency, Layer: UDAT, Direction: Out, QPs: 1, Inline: -1, ReadDepth: 16,
		Poll: Busy, Spin: Seconds(50 * time.Microsecond), Arrival: Constant,
		Warmup: -1, Interval: Seconds(time.Second), Stall: Seconds(30 * time.Second),
	}
}

// PerftestBuffers returns the number of messages, each on its own cache line, in the 4 KiB buffer
// that perftest uses cyclically.
func PerftestBuffers(size int) int { return max(1, 4096/max(size, 64)) }

// Atomic reports whether the test's operations are atomics.
func (c *Case) Atomic() bool { return Atomic(c.Test) }

// Atomic reports whether an operation is an atomic: 8 bytes.
func Atomic(op string) bool { return op == FetchAdd || op == CmpSwap }

// TwoSided reports whether the test consumes receives at the target.
func (c *Case) TwoSided() bool {
	return c.Test == Send || c.Test == SendImm || c.Test == WriteImm || c.Test == Transaction
}

// Lossy reports whether the transport may lose messages.
func (c *Case) Lossy() bool { return c.Transport != "" }

// PingPong reports whether the target answers each message; latency is then half a round trip.
func (c *Case) PingPong() bool {
	return c.Mode == Latency && c.Test != Transaction && (c.TwoSided() || c.Test == Write)
}

// Complete replaces default values (0; -1 for Warmup) by ones computed from the rest of the case.
func (c *Case) Complete() {
	switch {
	case c.Test == Transaction:
		c.completeSteps()
	case c.Atomic():
		c.Size = AtomicSize
	case c.Size == 0 && c.Mode == Latency:
		c.Size = 2
	case c.Size == 0:
		c.Size = 64 << 10
	}
	if c.Mode == Latency {
		c.Batch = cmp.Or(c.Batch, 1)
		c.Depth = cmp.Or(c.Depth, 64) // room for requests whose completions are suppressed
		c.RxDepth = cmp.Or(c.RxDepth, 64)
	}
	c.Batch = cmp.Or(c.Batch, 1)
	c.Depth = cmp.Or(c.Depth, max(128, min(c.Batch*2, maxDepth)))
	// Fewer for each of many queue pairs: all their completions must fit into one queue.
	c.RxDepth = cmp.Or(c.RxDepth, min(max(2*c.Depth, min(512, 1<<16/max(c.QPs, 1))), maxDepth))
	if c.Signal == 0 {
		c.Signal = max(1, min(64, c.Depth/4))
	}
	c.Signal = min(c.Signal, int(c.mostSignal()))
	if c.Iters == 0 && c.Duration == 0 {
		c.Iters = 1000
		if c.Mode == Bandwidth {
			c.Iters = 5000
		}
	}
	if c.Warmup < 0 {
		c.Warmup = 100
		if c.Mode == Bandwidth {
			c.Warmup = int64(c.Depth) * int64(c.QPs)
		}
		if c.Iters > 0 {
			c.Warmup = min(c.Warmup, max(c.Iters/4, 1))
		}
	}
}

// mostSignal is the largest Signal: a full window always has a signalled request, and latency tests
// signal every one.
func (c *Case) mostSignal() int64 {
	if c.Rate > 0 || c.Verify {
		return 1
	}
	return int64(max(1, c.Depth-c.Batch+1))
}

// Validate returns an error, with the flag and its limit, for a case that cannot be run.
func (c *Case) Validate() error {
	for _, e := range []struct {
		flag, value string
		of          []string
	}{
		{"test", c.Test, AllTests}, {"mode", c.Mode, Modes}, {"layer", c.Layer, Layers},
		{"direction", c.Direction, Directions}, {"poll", c.Poll, Polls}, {"arrival", c.Arrival, Arrivals},
	} {
		if !slices.Contains(e.of, e.value) {
			return fmt.Errorf("--%s %q: must be one of %s", e.flag, e.value, strings.Join(e.of, ", "))
		}
	}
	for _, r := range []struct {
		flag             string
		value, low, high int64
	}{
		{"size", int64(c.Size), 1, maxSize}, {"iters", c.Iters, 0, maxIters}, {"warmup", c.Warmup, 0, maxIters},
		{"depth", int64(c.Depth), 1, maxDepth}, {"rx-depth", int64(c.RxDepth), 1, maxDepth},
		{"batch", int64(c.Batch), 1, int64(c.Depth)}, {"signal", int64(c.Signal), 1, c.mostSignal()},
		{"qps", int64(c.QPs), 1, MaxQPs}, {"inline", int64(c.Inline), -1, 1 << 16},
		{"read-depth", int64(c.ReadDepth), 1, 255},
		{"buffers", int64(c.Buffers), 0, maxDepth},
	} {
		if r.value < r.low || r.value > r.high {
			return fmt.Errorf("--%s %d: must be from %d to %d", r.flag, r.value, r.low, r.high)
		}
	}
	for _, d := range []struct {
		flag      string
		value     Seconds
		low, high time.Duration
	}{
		{"duration", c.Duration, 0, 30 * 24 * time.Hour}, {"spin", c.Spin, 0, time.Second},
		{"interval", c.Interval, 10 * time.Millisecond, time.Hour}, {"stall", c.Stall, 100 * time.Millisecond, time.Hour},
	} {
		if time.Duration(d.value) < d.low || time.Duration(d.value) > d.high {
			return fmt.Errorf("--%s %v: must be from %v to %v", d.flag, time.Duration(d.value), d.low, d.high)
		}
	}
	if err := c.Knobs.validate(); err != nil {
		return err
	}
	if err := c.validateTogether(); err != nil || c.Test != Transaction {
		return err
	}
	return c.validateSteps()
}

// validateTogether refuses invalid combinations of values.
func (c *Case) validateTogether() error {
	switch {
	case c.Iters == 0 && c.Duration == 0:
		return fmt.Errorf("--iters 0: must be at least 1 where there is no --duration")
	case c.Iters > 0 && c.Duration > 0:
		return fmt.Errorf("--iters and --duration: only one of them ends a measurement")
	case int64(c.QPs)*int64(c.Depth+c.RxDepth) > maxCompletions:
		return fmt.Errorf("--qps %d with --depth %d and --rx-depth %d: %d completions outstanding, the limit is %d",
			c.QPs, c.Depth, c.RxDepth, c.QPs*(c.Depth+c.RxDepth), maxCompletions)
	case c.Lossy():
		if err := c.validateLossy(); err != nil {
			return err
		}
	}
	switch {
	case c.DMABuf != "" && (c.HugePages || c.Layer != Cverbs):
		return fmt.Errorf("--memory dmabuf:%s: with --layer cverbs only, and without --hugepages", c.DMABuf)
	case strings.Contains(c.DMABuf, "/") || len(c.DMABuf) > 64:
		return fmt.Errorf("--memory dmabuf:%.64s: must be %s or the name of a heap in /dev/dma_heap", c.DMABuf, UDMABuf)
	case c.Atomic() && c.Size != AtomicSize:
		return fmt.Errorf("--size %d: an atomic operation has %d bytes", c.Size, AtomicSize)
	case c.Test != Transaction && c.Steps != "":
		return fmt.Errorf("--steps with --test %s: only a transaction has steps", c.Test)
	case c.Test == Transaction && (c.Mode != Latency || c.Direction != Out):
		return fmt.Errorf("--test transaction with --mode %s, --direction %s: transactions are begun by the client, one "+
			"at a time (--mode lat --direction out)", c.Mode, c.Direction)
	case c.Mode == Latency && c.Direction == Both:
		return fmt.Errorf("--direction both with --mode lat: two ping-pongs disturb each other; measure out and in")
	case c.Mode == Latency && c.Test == Write && c.Poll != Busy:
		return fmt.Errorf("--poll %s with the latency of write: an RDMA write makes no event at its target; use "+
			"write-imm, or --poll busy", c.Poll)
	case c.Mode == Latency && c.Batch != 1:
		return fmt.Errorf("--batch %d with --mode lat: one operation is under way at a time", c.Batch)
	case c.Buffers > 0 && c.Verify:
		return fmt.Errorf("--buffers %d with --verify: every outstanding message has memory of its own then", c.Buffers)
	case c.SRQ && !c.TwoSided():
		return fmt.Errorf("--srq with %s: the test uses no receives", c.Test)
	case c.Rate < 0 || c.Rate > 1e9:
		return fmt.Errorf("--rate %g: must be from 0 to 1e9 operations per second", c.Rate)
	case c.Rate > 0 && c.Batch != 1:
		return fmt.Errorf("--rate with --batch %d: an open loop posts operations one by one as they fall due", c.Batch)
	case c.Inline >= 0 && c.Layer == UDAT:
		return fmt.Errorf("--inline with --layer udat: udat sends inline whatever the device grants; use --layer cverbs")
	}
	return nil
}

// validateLossy refuses what a transport without acknowledgements has not.
func (c *Case) validateLossy() error {
	if c.Transport != UC && c.Transport != UD {
		return fmt.Errorf("--transport %q: must be one of %s", c.Transport, strings.Join(Transports, ", "))
	}
	for _, k := range c.Knobs.list() {
		if k.flag == "retry" || k.flag == "timeout" || k.flag == "rnr" || k.flag == "mtu" && c.Transport == UD {
			return fmt.Errorf("--%s %d with --transport %s: it has no such setting", k.flag, k.n, c.Transport)
		}
	}
	switch {
	case c.Layer != Cverbs:
		return fmt.Errorf("--transport %s with --layer %s: DAT is reliable and connected; use --layer cverbs", c.Transport,
			c.Layer)
	case c.Test != Send && (c.Test != Write || c.Transport == UD):
		return fmt.Errorf("--transport %s with --test %s: rc has all tests, uc has send and write, ud has send", c.Transport,
			c.Test)
	case c.Verify:
		return fmt.Errorf("--transport %s with --verify: lost messages would be taken for wrong ones", c.Transport)
	case c.SRQ:
		return fmt.Errorf("--transport %s with --srq: not supported", c.Transport)
	}
	return nil
}

// Name returns a short description of the case.
func (c *Case) Name() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s, %s", c.Layer, c.Test, c.Mode, cmp.Or(c.Steps, Bytes(c.Size)))
	if c.Lossy() {
		fmt.Fprintf(&b, ", %s", c.Transport)
	}
	if c.QPs > 1 {
		fmt.Fprintf(&b, ", %d QPs", c.QPs)
	}
	if c.Threads > 1 {
		fmt.Fprintf(&b, ", %d threads", c.Threads)
	}
	if c.SRQ {
		b.WriteString(", SRQ")
	}
	if c.Direction != Out {
		fmt.Fprintf(&b, ", %s", c.Direction)
	}
	if c.Poll != Busy {
		fmt.Fprintf(&b, ", %s", c.Poll)
	}
	if c.Rate > 0 {
		fmt.Fprintf(&b, ", %g/s %s", c.Rate, c.Arrival)
	}
	for _, k := range c.Knobs.list() {
		fmt.Fprintf(&b, ", %s %d", k.flag, k.n)
	}
	return b.String()
}
