package main

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
)

// planFlags are the flags that determine a plan. Some flags take lists; the plan contains every
// combination of the listed values.
type planFlags struct {
	tests, modes, layers, transports, directions, polls []string
	sizes, connect                                      string
	qps, depths, batches                                []int
	repeats                                             int
	duration, interval, stall                           time.Duration
	forever                                             bool
	rate                                                rate
	base                                                result.Case
}

func (p *planFlags) register(c *cobra.Command) {
	d := result.Default()
	p.base = d
	p.interval, p.stall = time.Duration(d.Interval), time.Duration(d.Stall)
	lists := map[string][]string{}
	list := func(f *pflag.FlagSet, v *[]string, name, short, value, of string, values []string) {
		f.StringSliceVarP(v, name, short, []string{value}, of+": "+strings.Join(values, ", ")+"; or all")
		lists[name] = append(values[:len(values):len(values)], "all")
	}
	addFlags(c, "What to measure: datperf runs every combination of the values of lists", func(f *pflag.FlagSet) {
		list(f, &p.tests, "test", "t", result.Send, "`tests`", result.Tests)
		list(f, &p.modes, "mode", "m", result.Latency, "`modes`, latency or bandwidth", result.Modes)
		list(f, &p.layers, "layer", "l", result.UDAT, "through which `libraries`; tcp is plain TCP, to compare",
			result.Layers)
		list(f, &p.transports, "transport", "", result.RC,
			"`transports`, reliable connections, or with cverbs also unreliable ones and datagrams", result.Transports)
		list(f, &p.directions, "direction", "", result.Out,
			"`directions`; the client initiates (out), or the server (in)", result.Directions)
		f.StringVarP(&p.sizes, "size", "s", "", "message `sizes`: 64, 4K, 1M, a list, a sweep in powers of two (2-1M), "+
			"or all (2-8M) (default 2 for lat, 64K for bw)")
		f.BoolVar(&p.base.Verify, "verify", false, "compare every byte of the payload (it costs time)")
	})
	addFlags(c, "How long", func(f *pflag.FlagSet) {
		f.Int64VarP(&p.base.Iters, "iters", "n", 0, "`operations` to measure, instead of a time")
		f.VarP((*seconds)(&p.duration), "duration", "D", "`time` to measure: 10s, 1m, or a number of seconds (default 1s)")
		f.BoolVar(&p.forever, "forever", false,
			"measure until interrupted (30 days at most), a line for each interval")
		f.Int64Var(&p.base.Warmup, "warmup", d.Warmup, "`operations` before the measurement "+
			"(default 100 for lat, one depth for bw; at most a quarter of --iters)")
		f.IntVar(&p.repeats, "repeat", 1, "`runs` of each case")
		f.VarP((*seconds)(&p.interval), "interval", "i",
			"length of an interval, a `time` as for --duration; if given, each interval is printed")
		f.Var((*seconds)(&p.stall), "stall", "give up when nothing completes for this `time`")
		computed(f, "warmup")
	})
	addFlags(c, "Load", func(f *pflag.FlagSet) {
		f.IntSliceVarP(&p.qps, "qps", "q", []int{1}, "queue pairs, a list of `numbers`")
		f.IntSliceVarP(&p.depths, "depth", "d", []int{0},
			"bw: requests outstanding per queue pair, a list of `numbers` (default 128, or twice --batch)")
		f.IntSliceVar(&p.batches, "batch", []int{1}, "bw: requests per post, a list of `numbers`")
		f.Var(&p.rate, "rate", "open loop: `operations` per second, or bits of payload as 10Gb/s or 500Mb/s, "+
			"whether or not earlier ones have completed (default closed loop)")
		computed(f, "depth")
	})
	addFlags(c, "Queues, polling and memory", func(f *pflag.FlagSet) {
		list(f, &p.polls, "poll", "", result.Busy, "how to `wait`", result.Polls)
		f.IntVar(&p.base.Signal, "signal", 0,
			"one signalled request in this `number` (default a quarter of the depth, at most 64)")
		f.IntVar(&p.base.RxDepth, "rx-depth", 0,
			"`receives` posted per queue pair, or in the shared queue (default 64 for lat; 512 for bw, or twice the depth)")
		f.BoolVar(&p.base.SRQ, "srq", false, "one shared receive queue for all queue pairs")
		f.IntVar(&p.base.ReadDepth, "read-depth", d.ReadDepth,
			"RDMA `reads` and atomics under way per queue pair, as far as the devices permit")
		f.IntVar(&p.base.Inline, "inline", d.Inline,
			"cverbs: `bytes` of the largest request to send inline (default what the device grants)")
		f.IntVar(&p.base.Buffers, "buffers", 0, "messages of a queue pair go through this `number` of buffers at each end "+
			"(default one for each that may be outstanding)")
		f.BoolVar(&p.base.HugePages, "hugepages", false, "registered memory of huge pages, at both ends")
		computed(f, "inline")
	})
	addFlags(c, "Path", func(f *pflag.FlagSet) {
		f.StringVar(&p.connect, "connect", result.CM, "`how` queue pairs are connected: cm (the connection manager), or "+
			"exchange (cverbs: over the control connection, without rdma_cm and IP addresses of the device)")
		lists["connect"] = result.Connects
		registerKnobs(f, &p.base.Knobs)
	})
	for name, values := range lists {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// The map given contains flags that take a number. The default of such a flag is computed, or is
// "no limit". For each flag the map contains two texts for an error message: what the number must
// be, and what applies if the flag is not given.
var given = map[string]struct{ least, without string }{
	"iters":     {"must be at least 1", defaultText},
	"duration":  {"must be more than 0", defaultText},
	"rx-depth":  {"must be at least 1", defaultText},
	"signal":    {"must be at least 1", defaultText},
	"buffers":   {"must be at least 1", defaultText},
	"depth":     {"must be from 1", "without the flag it is 128"},
	"batch":     {"must be from 1", "without the flag it is 1"},
	"warmup":    {"must be at least 0", defaultText},
	"inline":    {"must be at least 0", defaultText},
	"rate":      {"must be more than 0", "without the flag the loop is closed"},
	"min-bw":    {"must be more than 0", limitText},
	"min-rate":  {"must be more than 0", limitText},
	"max-p50":   {"must be more than 0", limitText},
	"max-p99":   {"must be more than 0", limitText},
	"max-p99.9": {"must be more than 0", limitText},
}

const (
	defaultText = "without the flag there is a default"
	limitText   = "without the flag there is no limit"
)

// checkGiven returns an error if a flag was given a value that means the same as no flag: an empty
// text, for example from an unset shell variable, or the number that stands for the default.
func checkGiven(f *pflag.FlagSet) (err error) {
	f.Visit(func(one *pflag.Flag) {
		v, kind := one.Value.String(), one.Value.Type()
		empty := v == "" && kind == "string" || v == "[]" && strings.HasSuffix(kind, "Slice")
		rule, known := given[one.Name]
		switch {
		case err != nil || one.Name == "title":
		case empty:
			err = usagef(`--%s "": must not be empty; omit the flag if you do not need it`, one.Name)
		case notFinite(one):
			err = usagef("--%s %s: must be a number", one.Name, v)
		case known && meansDefault(one):
			err = usagef("--%s %s: %s; %s", one.Name, cmp.Or(strings.Trim(v, "[]"), "0"), rule.least, rule.without)
		}
	})
	return err
}

// meansDefault reports whether the value of a flag stands for the flag's default: 0, or a negative
// number. For --warmup and --inline, 0 is an ordinary value.
func meansDefault(f *pflag.Flag) bool {
	for v := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
		zero := v == "" || v == "0" || v == "0s"
		if strings.HasPrefix(v, "-") || zero && f.Name != "warmup" && f.Name != "inline" {
			return true
		}
	}
	return false
}

// notFinite reports whether the value of a flag is NaN or infinite. strconv accepts both as
// numbers.
func notFinite(f *pflag.Flag) bool {
	v, err := strconv.ParseFloat(f.Value.String(), 64)
	return f.Value.Type() == "float64" && err == nil && (math.IsNaN(v) || math.IsInf(v, 0))
}

// seconds is the value of a duration flag. If the text has no unit, it is a number of seconds.
type seconds time.Duration

func (s *seconds) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

func (s *seconds) Type() string { return "duration" }

func (s *seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if ns := n * float64(time.Second); math.Abs(ns) < math.MaxInt64 {
			*s = seconds(math.Round(ns))
			return nil
		}
		return errors.New("out of range")
	}
	d, err := time.ParseDuration(text)
	if err == nil {
		*s = seconds(d)
	}
	return err
}

// rate is the value of --rate: operations per second, or bits per second.
type rate struct {
	text string
	n    float64
	bits bool
}

func (r *rate) String() string {
	if r.n == 0 {
		return "0"
	}
	return r.text
}

func (r *rate) Type() string { return "rate" }

func (r *rate) Set(text string) error {
	number, bits := strings.CutSuffix(text, "b/s")
	unit := 1.
	if at := strings.IndexAny(number, "kMG"); bits && at > 0 && at == len(number)-1 {
		unit = map[byte]float64{'k': 1e3, 'M': 1e6, 'G': 1e9}[number[at]]
		number = number[:at]
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return cmp.Or(err, errors.New("not finite"))
	}
	*r = rate{text, n * unit, bits}
	return nil
}

// plan returns a plan with all combinations of the flags' values. The layer varies fastest, so that
// cases that differ only in the layer follow one another.
func (p *planFlags) plan() (engine.Plan, error) {
	plan := engine.Plan{Repeats: p.repeats}
	sizes := []int{0}
	if p.sizes != "" {
		var err error
		if sizes, err = result.ParseSizes(p.sizes); err != nil {
			return plan, usagef("--size: %w", err)
		}
	}
	if err := result.OneOf("connect", p.connect, result.Connects); err != nil {
		return plan, &usageError{err}
	}
	if p.forever {
		if p.duration > 0 || p.base.Iters > 0 || p.repeats > 1 {
			return plan, usagef("--forever with --duration, --iters or --repeat: it never comes to their end")
		}
		p.duration = 30 * 24 * time.Hour
	}
	p.base.Rate = p.rate.n
	p.base.Connect = strings.TrimPrefix(p.connect, result.CM)
	p.base.Duration = result.Seconds(p.duration)
	p.base.Interval, p.base.Stall = result.Seconds(p.interval), result.Seconds(p.stall)
	all := func(given, values []string) []string {
		if len(given) == 1 && given[0] == "all" {
			return values
		}
		return given
	}
	cases := []result.Case{p.base}
	cases = multiply(cases, all(p.modes, result.Modes), func(c *result.Case, v string) { c.Mode = v })
	cases = multiply(cases, all(p.tests, result.Tests), func(c *result.Case, v string) { c.Test = v })
	cases = multiply(cases, all(p.transports, result.Transports), func(c *result.Case, v string) {
		c.Transport = strings.TrimPrefix(v, result.RC)
	})
	cases = multiply(cases, all(p.directions, result.Directions), func(c *result.Case, v string) { c.Direction = v })
	cases = multiply(cases, all(p.polls, result.Polls), func(c *result.Case, v string) { c.Poll = v })
	cases = multiply(cases, p.qps, func(c *result.Case, v int) { c.QPs = v })
	cases = multiply(cases, p.depths, func(c *result.Case, v int) { c.Depth = v })
	cases = multiply(cases, p.batches, func(c *result.Case, v int) { c.Batch = v })
	cases = multiply(cases, sizes, func(c *result.Case, v int) { c.Size = v })
	cases = multiply(cases, all(p.layers, result.Layers), func(c *result.Case, v string) { c.Layer = v })
	seen := map[result.Case]bool{}
	for i := range cases {
		c := &cases[i]
		c.Complete()
		if p.rate.bits && c.Size > 0 {
			c.Rate = p.rate.n / 8 / float64(c.Size)
		}
		if !seen[*c] { // atomics have one size, whatever --size says
			seen[*c] = true
			plan.Cases = append(plan.Cases, *c)
		}
	}
	if p.forever && len(plan.Cases) > 1 {
		return plan, usagef("--forever: %d cases; it never comes to the second", len(plan.Cases))
	}
	if len(plan.Cases) > maxCases {
		return plan, usagef("the lists multiply to %d cases, the limit is %d", len(plan.Cases), maxCases)
	}
	if err := plan.Validate(); err != nil {
		return plan, &usageError{err}
	}
	return plan, nil
}

// maxCases is the largest number of cases of a plan.
const maxCases = 10000

func multiply[T any](cases []result.Case, values []T, set func(*result.Case, T)) []result.Case {
	var out []result.Case
	for _, c := range cases {
		for _, v := range values {
			set(&c, v)
			out = append(out, c)
		}
	}
	return out
}

// registerKnobs adds the flags for the settings of a connection's path. They apply to both ends.
func registerKnobs(f *pflag.FlagSet, k *result.Knobs) {
	f.Var(result.KnobFlag{Knob: &k.TOS}, "tos", "IP type of service of the packets, or traffic class: DSCP << 2, 0 to 255")
	f.Var(result.KnobFlag{Knob: &k.TOS, Scale: 4, Most: 63}, "dscp", "the upper six bits of --tos, 0 to 63")
	f.Var(result.KnobFlag{Knob: &k.SL}, "sl", "service level, on RoCE the VLAN priority, 0 to 15")
	f.Var(result.KnobFlag{Knob: &k.MTU}, "mtu", "path MTU: 256, 512, 1024, 2048 or 4096")
	f.Var(result.KnobFlag{Knob: &k.Retry}, "retry",
		"how often a request without an acknowledgement is sent again, 0 to 7 (default 7, on soft-RoCE 6)")
	f.Var(result.KnobFlag{Knob: &k.Timeout}, "timeout",
		"wait for an acknowledgement: 4.096 us << N, 1 to 31, or 0 without end (default: the connection manager's)")
	f.Var(result.KnobFlag{Knob: &k.RNR}, "rnr",
		"how often a message without a receive is sent again, 0 to 6, or 7 without end (default 7)")
}

// checkKnobs returns an error if --tos and --dscp are both given, because both set the type of
// service.
func checkKnobs(f *pflag.FlagSet) error {
	if f.Changed("tos") && f.Changed("dscp") {
		return usagef("--tos and --dscp: only one of them")
	}
	return nil
}

// numaValues are the values of --numa.
var numaValues = []string{"near", "any"}

// numaFlag adds --numa, which applies to this end only.
func numaFlag(c *cobra.Command) *string {
	v := c.Flags().String("numa", "near", "`where` the measuring loops of this end run: near (on the processors of the "+
		"device's NUMA node), or any; --cpu goes before it")
	_ = c.RegisterFlagCompletionFunc("numa", cobra.FixedCompletions(numaValues, cobra.ShellCompDirectiveNoFileComp))
	return v
}

// anyNode reports whether the value of --numa is any.
func anyNode(numa string) (bool, error) {
	if err := result.OneOf("numa", numa, numaValues); err != nil {
		return false, &usageError{err}
	}
	return numa == "any", nil
}

// gidFlag adds --gid-index, which applies to this end only.
func gidFlag(f *pflag.FlagSet, short string) *result.Knob {
	k := new(result.Knob)
	f.VarP(result.KnobFlag{Knob: k, Most: 255}, "gid-index", short,
		"`entry` of this end's GID table to use, with its address (default the connection manager's choice)")
	return k
}
