// Package result defines the types of datperf's measurements: the settings, the results, and the
// document that contains both. Times are in nanoseconds and sizes in bytes, unless a field's name
// contains another unit.
package result

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Case contains all settings of one measurement. Both ends use the same Case.
type Case struct {
	Test      string  `json:"test"`                // one of Tests
	Mode      string  `json:"mode"`                // lat or bw
	Layer     string  `json:"layer"`               // udat, cverbs, or tcp (plain TCP, to compare)
	Transport string  `json:"transport,omitempty"` // uc or ud; empty: rc
	Connect   string  `json:"connect,omitempty"`   // exchange; empty: cm
	Direction string  `json:"direction"`           // who initiates: the client (out), the server (in) or both ends (both)
	Size      int     `json:"size_bytes"`
	Iters     int64   `json:"iterations"` // operations to measure on all queue pairs together; 0 if Duration is set
	Duration  Seconds `json:"duration_s"`
	Warmup    int64   `json:"warmup_iterations"` // operations before the measurement starts
	Depth     int     `json:"depth"`             // requests in flight per queue pair
	RxDepth   int     `json:"rx_depth"`          // receives posted per queue pair, or in the SRQ
	Batch     int     `json:"batch"`             // requests per post
	Signal    int     `json:"signal_every"`      // one in this number of requests is signalled
	QPs       int     `json:"queue_pairs"`
	Threads   int     `json:"threads,omitempty"` // threads of the client, each with its own queue pairs; 0: one
	SRQ       bool    `json:"srq"`
	Inline    int     `json:"inline_bytes"` // largest message to send inline; -1: the largest that the device grants
	ReadDepth int     `json:"read_depth"`   // reads and atomics in flight per queue pair
	Poll      string  `json:"poll"`         // busy, event or adaptive
	Verify    bool    `json:"verify"`
	HugePages bool    `json:"hugepages"`  // the registered memory consists of huge pages
	Buffers   int     `json:"buffers"`    // message buffers of a queue pair; 0: one for each request in flight
	Rate      float64 `json:"rate_per_s"` // open loop: operations per second; 0: closed loop
	Interval  Seconds `json:"interval_s"`
	Stall     Seconds `json:"stall_s"` // an initiator gives up if its requests make no progress for this time
	Knobs
}

// Values of the enumerations of Case.
const (
	Send, SendImm, Write, WriteImm, Read       = "send", "send-imm", "write", "write-imm", "read"
	FetchAdd, CmpSwap                          = "fetch-add", "cmp-swap"
	Latency, Bandwidth                         = "lat", "bw"
	UDAT, Cverbs, TCP                          = "udat", "cverbs", "tcp"
	RC, UC, UD                                 = "rc", "uc", "ud" // in a Case rc is empty
	CM, Exchange                               = "cm", "exchange" // in a Case cm is empty
	Out, In, Both                              = "out", "in", "both"
	Busy, Event, Adaptive                      = "busy", "event", "adaptive"
	maxSize                                    = 1 << 30
	maxDepth, MaxQPs                           = 16384, 4096
	maxIters                             int64 = 1 << 40
)

// latencyDepth is the value of Depth in latency runs. Only one operation is under way at a time.
// The rest of the depth is for requests whose completions are suppressed, or come after the peer's
// answer.
const latencyDepth = 64

// maxCompletions is the largest number of requests and receives in flight at an end.
const maxCompletions = 1 << 20

// Allowed values of the enumerations of Case.
var (
	Tests      = []string{Send, SendImm, Write, WriteImm, Read, FetchAdd, CmpSwap}
	Modes      = []string{Latency, Bandwidth}
	Layers     = []string{UDAT, Cverbs} // without TCP, which has no RDMA
	Transports = []string{RC, UC, UD}
	Connects   = []string{CM, Exchange}
	Directions = []string{Out, In, Both}
	Polls      = []string{Busy, Event, Adaptive}
)

// AtomicSize is the size of an atomic operation in bytes.
const AtomicSize = 8

// Default returns the default case. The caller must then call Complete, which sets the defaults
// that depend on other values.
func Default() Case {
	return Case{
		Test: Send, Mode: Latency, Layer: UDAT, Direction: Out, QPs: 1, Inline: -1, ReadDepth: 16,
		Poll:   Busy,
		Warmup: -1, Interval: Seconds(time.Second), Stall: Seconds(30 * time.Second),
	}
}

// PerftestBuffers returns the number of messages that fit into perftest's cyclic buffer of 4 KiB.
// Each message begins on its own cache line.
func PerftestBuffers(size int) int { return max(1, 4096/max(size, 64)) }

// Atomic reports whether the test's operations are atomics.
func (c *Case) Atomic() bool { return Atomic(c.Test) }

// Atomic reports whether an operation is an atomic.
func Atomic(op string) bool { return op == FetchAdd || op == CmpSwap }

// TwoSided reports whether the test consumes receives at the target.
func (c *Case) TwoSided() bool {
	return c.Test == Send || c.Test == SendImm || c.Test == WriteImm
}

// Lossy reports whether the transport may lose messages.
func (c *Case) Lossy() bool { return c.Transport != "" }

// PingPong reports whether the target answers each message. If so, the latency is half of the round
// trip.
func (c *Case) PingPong() bool {
	return c.Mode == Latency && (c.TwoSided() || c.Test == Write)
}

// Complete sets the fields that have no value yet (0, or -1 for Warmup) to defaults computed from
// the other fields.
func (c *Case) Complete() {
	switch {
	case c.Atomic():
		c.Size = AtomicSize
	case c.Size == 0 && c.Mode == Latency:
		c.Size = 2
	case c.Size == 0:
		c.Size = 64 << 10
	}
	if c.Mode == Latency {
		c.Batch = cmp.Or(c.Batch, 1)
		c.Depth = latencyDepth
		c.RxDepth = cmp.Or(c.RxDepth, 64)
	}
	c.Batch = cmp.Or(c.Batch, 1)
	c.Depth = cmp.Or(c.Depth, c.usualDepth())
	// With many queue pairs each one has fewer receives, because all completions must fit into one
	// queue.
	c.RxDepth = cmp.Or(c.RxDepth, min(max(2*c.Depth, min(512, 1<<16/max(c.QPs, 1))), maxDepth))
	if c.Signal == 0 {
		c.Signal = max(1, min(64, c.Depth/4))
	}
	c.Signal = min(c.Signal, int(c.mostSignal()))
	if c.Iters == 0 && c.Duration == 0 {
		c.Duration = usualDuration
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

// usualDuration is how long a run measures by default. It is long enough for hundreds of thousands
// of operations of a NIC, and for compare.
const usualDuration = Seconds(time.Second)

// usualDepth returns the default of Depth in a bandwidth run.
func (c *Case) usualDepth() int { return max(128, min(c.Batch*2, maxDepth)) }

// ChosenDepth returns Depth if it is not the default of a bandwidth run, and 0 otherwise.
func (c *Case) ChosenDepth() int {
	if c.Mode == Latency || c.Depth == c.usualDepth() {
		return 0
	}
	return c.Depth
}

// mostSignal returns the largest valid Signal. With this value, a full send queue still contains a
// signalled request. In open loops and with verification every request must be signalled.
func (c *Case) mostSignal() int64 {
	if c.Rate > 0 || c.Verify {
		return 1
	}
	if c.Mode == Latency { // a signalled request may complete after the peer's answer, when the next one is posted
		return latencyDepth - 1
	}
	return int64(max(1, c.Depth-c.Batch+1))
}

// Name returns a short description of the case.
func (c *Case) Name() string {
	what := fmt.Sprintf("%s %s %s, %s", c.Layer, c.Test, c.Mode, Bytes(c.Size))
	return strings.Join(append([]string{what}, c.Unusual()...), ", ")
}

// Unusual returns the settings that differ from their defaults, apart from layer, test, mode and
// size.
func (c *Case) Unusual() (all []string) {
	add := func(differs bool, format string, args ...any) {
		if differs {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(c.Lossy(), "%s", c.Transport)
	add(c.Connect != "", "%s", c.Connect)
	add(c.QPs > 1, "%d QPs", c.QPs)
	add(c.Threads > 1, "%d threads", c.Threads)
	add(c.ChosenDepth() > 0, "depth %d", c.Depth)
	add(c.Batch > 1, "batch %d", c.Batch)
	add(c.SRQ, "SRQ")
	add(c.Direction != Out, "%s", c.Direction)
	add(c.Poll != Busy, "%s", c.Poll)
	add(c.Rate > 0, "%g/s", c.Rate)
	for _, k := range c.Knobs.list() {
		add(true, "%s %d", k.flag, k.n)
	}
	return all
}
