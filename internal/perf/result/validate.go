package result

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// OneOf returns an error that names the flag and its values, unless value is one of them. The
// argument value must be the text of the flag and not a field of a Case, because a Case contains ""
// for the values rc and cm.
func OneOf(flag, value string, of []string) error {
	if slices.Contains(of, value) {
		return nil
	}
	return fmt.Errorf("--%s %q: must be one of %s", flag, value, strings.Join(of, ", "))
}

// Validate returns an error if the case cannot be run. The error names the flag and its limit.
func (c *Case) Validate() error {
	for _, e := range []struct {
		flag, value string
		of          []string
	}{
		{"test", c.Test, Tests}, {"mode", c.Mode, Modes}, {"layer", c.Layer, append(Layers[:len(Layers):len(Layers)], TCP)},
		{"direction", c.Direction, Directions}, {"poll", c.Poll, Polls},
	} {
		if err := OneOf(e.flag, e.value, e.of); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		flag                    string
		value, unset, low, high int64 // unset is the value if the flag is not given; it equals low if there is no such value
	}{
		{"size", int64(c.Size), 1, 1, maxSize}, {"iters", c.Iters, 0, 1, maxIters}, {"warmup", c.Warmup, 0, 0, maxIters},
		{"depth", int64(c.Depth), 1, 1, maxDepth}, {"rx-depth", int64(c.RxDepth), 1, 1, maxDepth},
		{"batch", int64(c.Batch), 1, 1, int64(c.Depth)}, {"signal", int64(c.Signal), 1, 1, c.mostSignal()},
		{"qps", int64(c.QPs), 1, 1, MaxQPs}, {"inline", int64(c.Inline), -1, 0, 1 << 16},
		{"read-depth", int64(c.ReadDepth), 1, 1, 255}, {"buffers", int64(c.Buffers), 0, 1, maxDepth},
	} {
		if r.value != r.unset && (r.value < r.low || r.value > r.high) {
			return fmt.Errorf("--%s %d: must be from %d to %d", r.flag, r.value, r.low, r.high)
		}
	}
	for _, d := range []struct {
		flag      string
		value     Seconds
		low, high time.Duration
	}{
		{"duration", c.Duration, 1, 30 * 24 * time.Hour},
		{"interval", c.Interval, 10 * time.Millisecond, time.Hour}, {"stall", c.Stall, 100 * time.Millisecond, time.Hour},
	} {
		v, unset := time.Duration(d.value), d.flag == "duration" && d.value == 0
		if !unset && (v < d.low || v > d.high) {
			return fmt.Errorf("--%s %v: must be from %v to %v", d.flag, v, d.low, d.high)
		}
	}
	if err := c.Knobs.validate(); err != nil {
		return err
	}
	return c.validateTogether()
}

// validateTogether returns an error if the case combines values that do not go together.
func (c *Case) validateTogether() error {
	switch {
	case c.Iters == 0 && c.Duration == 0:
		return fmt.Errorf("--iters 0: must be at least 1 where there is no --duration")
	case c.Iters > 0 && c.Duration > 0:
		return fmt.Errorf("--iters and --duration: only one of them ends a measurement")
	case int64(c.QPs)*int64(c.Depth+c.RxDepth) > maxCompletions:
		return fmt.Errorf("--qps %d with --depth %d and --rx-depth %d: %d completions outstanding, the limit is %d",
			c.QPs, c.Depth, c.RxDepth, c.QPs*(c.Depth+c.RxDepth), maxCompletions)
	case c.Connect != "" && c.Connect != Exchange:
		return fmt.Errorf("--connect %q: must be one of %s", c.Connect, strings.Join(Connects, ", "))
	case c.Connect == Exchange && c.Layer != Cverbs:
		return fmt.Errorf("--connect exchange with --layer %s: DAT connects by the connection manager; use --layer cverbs",
			c.Layer)
	case c.Layer == TCP && (c.Test != Send || c.SRQ || c.HugePages || c.Lossy() || c.Inline >= 0):
		return errors.New("--layer tcp: plain TCP has --test send alone, no --srq, --hugepages, --inline or --transport")
	case c.Lossy():
		if err := c.validateLossy(); err != nil {
			return err
		}
	}
	switch {
	case c.Atomic() && c.Size != AtomicSize:
		return fmt.Errorf("--size %d: an atomic operation has %d bytes", c.Size, AtomicSize)
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
	case !(c.Rate >= 0 && c.Rate <= 1e9):
		return fmt.Errorf("--rate %g: must be more than 0, and at most 1e9 operations per second", c.Rate)
	case c.Rate > 0 && c.Batch != 1:
		return fmt.Errorf("--rate with --batch %d: an open loop posts operations one by one as they fall due", c.Batch)
	case c.Inline >= 0 && c.Layer == UDAT:
		return fmt.Errorf("--inline with --layer udat: udat sends inline whatever the device grants; use --layer cverbs")
	}
	return nil
}

// validateLossy returns an error if the case uses something that its transport does not support.
// The transport is uc or ud.
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
