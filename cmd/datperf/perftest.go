package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// perftestPort is the port that perftest's programs use.
const perftestPort = 18515

// perftestFlags are the flags of perftest's programs that mean something here.
type perftestFlags struct {
	device, connection, atomic, size      string
	port, ibPort, gid                     int
	iters, seconds                        int
	qps, tx, rx, list, mod, inline, reads int
	all, both, events, srq, gbits         bool
	layer                                 string
}

func (p *perftestFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&p.device, "ib-dev", "d", "", "device")
	f.IntVarP(&p.ibPort, "ib-port", "i", 1, "port of the device")
	f.IntVarP(&p.port, "port", "p", perftestPort, "TCP port")
	f.StringVarP(&p.size, "size", "s", "", "message size")
	f.BoolVarP(&p.all, "all", "a", false, "sizes from 2 to 2^23")
	f.IntVarP(&p.iters, "iters", "n", 0, "iterations")
	f.IntVarP(&p.seconds, "duration", "D", 0, "seconds")
	f.IntVarP(&p.qps, "qp", "q", 1, "queue pairs")
	f.IntVarP(&p.tx, "tx-depth", "t", 128, "requests outstanding")
	f.IntVarP(&p.rx, "rx-depth", "r", 512, "receives posted")
	f.IntVarP(&p.list, "post_list", "l", 1, "requests per post")
	f.IntVarP(&p.mod, "cq-mod", "Q", 0, "one signalled request in so many")
	f.IntVarP(&p.inline, "inline_size", "I", -1, "largest inline request")
	f.IntVarP(&p.reads, "outs", "o", 16, "reads and atomics under way")
	f.BoolVarP(&p.both, "bidirectional", "b", false, "both directions")
	f.BoolVarP(&p.events, "events", "e", false, "event-driven")
	f.BoolVar(&p.srq, "use-srq", false, "shared receive queue")
	f.StringVarP(&p.connection, "connection", "c", "RC", "RC, the only one here")
	f.StringVarP(&p.atomic, "atomic_type", "A", "FETCH_AND_ADD", "FETCH_AND_ADD or CMP_AND_SWAP")
	f.IntVarP(&p.gid, "gid-index", "x", -1, "refused: the connection manager chooses, by address")
	f.BoolVar(&p.gbits, "report_gbits", false, "Gb/sec instead of MiB/sec")
	f.BoolP("CPU-freq", "F", false, "accepted: clocks are those of the kernel")
	f.BoolP("rdma_cm", "R", false, "accepted: always so")
	f.StringVar(&p.layer, "layer", result.Cverbs, "cverbs or udat (not perftest's)")
}

// plan translates the flags.
func (p *perftestFlags) plan(test, mode string) (engine.Plan, error) {
	plan := engine.Plan{Repeats: 1}
	switch {
	case p.connection != "RC":
		return plan, usagef("--connection %s: only RC is supported", p.connection)
	case p.gid >= 0:
		return plan, usagef("--gid-index %d: the connection manager chooses the GID, by the address that the client connects to", p.gid)
	case p.all && p.size != "":
		return plan, usagef("--all and --size: only one of them")
	case p.iters < 0 || p.seconds < 0:
		return plan, usagef("--iters and --duration must be positive")
	}
	c := result.Default()
	c.Test, c.Mode, c.Layer, c.QPs, c.SRQ, c.ReadDepth = test, mode, p.layer, p.qps, p.srq, p.reads
	c.Iters, c.Duration, c.Signal, c.Inline = int64(p.iters), result.Seconds(time.Duration(p.seconds)*time.Second), p.mod, p.inline
	if strings.HasPrefix(strings.ToUpper(p.atomic), "CMP") && c.Atomic() {
		c.Test = result.CmpSwap
	}
	if p.events {
		c.Poll = result.Event
	}
	if p.both {
		c.Direction = result.Both
	}
	if mode == result.Bandwidth {
		c.Depth, c.RxDepth, c.Batch = p.tx, p.rx, p.list
	}
	if c.Iters == 0 && c.Duration == 0 && test != result.Write {
		c.Iters = 1000
	}
	text := p.size
	if p.all {
		text = "all"
	}
	sizes := []int{0}
	if text != "" {
		var err error
		if sizes, err = result.ParseSizes(text); err != nil {
			return plan, usagef("--size: %w", err)
		}
	}
	for _, n := range sizes {
		c := c
		c.Size = n
		c.Complete()
		plan.Cases = append(plan.Cases, c)
		if c.Atomic() {
			break
		}
	}
	if err := plan.Validate(); err != nil {
		return plan, &usageError{err}
	}
	return plan, nil
}

func (a *app) perftest(args []string) error {
	names := slices.Sorted(maps.Keys(report.PerftestNames))
	if len(args) == 0 || report.PerftestNames[args[0]] == [2]string{} {
		return usagef("datperf perftest needs the name of one of perftest's programs: %s", strings.Join(names, ", "))
	}
	program, kind := args[0], report.PerftestNames[args[0]]
	f := a.flags("perftest "+program, "[HOST]", "Do as perftest's "+program+" does: serve one client, or measure against HOST. Both ends are datperf.")
	var p perftestFlags
	p.register(f)
	if err := parse(f, args[1:], -1, ""); err != nil {
		return err
	}
	nargs := f.NArg()
	if nargs > 1 {
		return usagef("%s needs at most a HOST; %d arguments were given", f.Name(), nargs)
	}
	if err := checkPort(p.port); err != nil {
		return err
	}
	device := p.device
	if p.ibPort > 1 {
		device = fmt.Sprintf("%s/%d", device, p.ibPort)
	}
	if nargs == 0 {
		return a.serve(&engine.Server{Device: device, Clients: 1}, "", p.port)
	}
	plan, err := p.plan(kind[0], kind[1])
	if err != nil {
		return err
	}
	out := &outputs{perftest: true, gbits: p.gbits}
	return a.runPlan(append([]string{"datperf", "perftest"}, args...), device, plan, out, func(cl *engine.Client, plan engine.Plan) (*result.Document, error) {
		conn, err := engine.Dial(a.ctx, f.Arg(0), p.port)
		if err != nil {
			return nil, err
		}
		return cl.Run(a.ctx, conn, plan)
	})
}
