package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// perftestSignalAll is a message size. For larger messages perftest's bandwidth programs signal
// each request.
const perftestSignalAll = 8 << 10

// perftestFlags are those flags of perftest's programs that datperf supports.
type perftestFlags struct {
	device, connection, atomic, size      string
	port, ibPort                          int
	iters, seconds                        int
	qps, tx, rx, list, mod, inline, reads int
	all, both, events, srq, gbits         bool
	reversed, huge, sendImm, writeImm     bool
	limitBW, limitRate                    float64
	layer                                 string
	gid                                   *result.Knob
	knobs                                 result.Knobs
	peer                                  string
	cm                                    bool
}

// accepted lists perftest's flags that ask for something that datperf always does.
var accepted = []struct{ name, short, usage string }{
	{"CPU-freq", "F", "accepted: clocks are those of the kernel"},
	{"comm_rdma_cm", "z", "accepted: always so; refused with --peer perftest"},
	{"noPeak", "N", "accepted: the peak is that of the intervals, and costs nothing"},
	{"use_old_post_send", "", "accepted: always so"},
	{"perform_warm_up", "", "accepted: always so"},
	{"ipv6", "", "accepted: addresses of both kinds are taken"},
	{"ipv6-addr", "", "accepted: addresses of both kinds are taken"},
}

func (p *perftestFlags) register(f *pflag.FlagSet, mode string) {
	f.StringVarP(&p.device, "ib-dev", "d", "", "device")
	f.IntVarP(&p.ibPort, "ib-port", "i", 1, "port of the device")
	f.IntVarP(&p.port, "port", "p", perftestPort, "TCP port")
	f.StringVarP(&p.size, "size", "s", "", "message size (default 2 for lat, 64K for bw)")
	f.BoolVarP(&p.all, "all", "a", false, "sizes from 2 to 2^23")
	f.IntVarP(&p.iters, "iters", "n", 0, "iterations (default 1000; 5000 for ib_write_bw)")
	f.IntVarP(&p.seconds, "duration", "D", 0, "seconds")
	f.IntVarP(&p.qps, "qp", "q", 1, "queue pairs")
	f.IntVarP(&p.tx, "tx-depth", "t", 128, "requests outstanding")
	f.IntVarP(&p.rx, "rx-depth", "r", 512, "receives posted")
	f.IntVarP(&p.list, "post_list", "l", 1, "requests per post")
	f.IntVarP(&p.mod, "cq-mod", "Q", 0,
		"one signalled request in this number (default a quarter of -t, at most 64; 1 beyond 8 KiB)")
	f.IntVarP(&p.inline, "inline_size", "I", -1, "largest inline request; -1: what the device grants")
	f.IntVarP(&p.reads, "outs", "o", 16, "reads and atomics under way")
	f.BoolVarP(&p.both, "bidirectional", "b", false, "both directions")
	f.BoolVarP(&p.events, "events", "e", false, "event-driven")
	f.BoolVar(&p.srq, "use-srq", false, "shared receive queue")
	f.StringVarP(&p.connection, "connection", "c", "RC", "RC, UC or UD")
	f.StringVarP(&p.atomic, "atomic_type", "A", "FETCH_AND_ADD", "FETCH_AND_ADD or CMP_AND_SWAP")
	f.BoolVar(&p.reversed, "reversed", false, "the server sends")
	f.BoolVar(&p.huge, "use_hugepages", false, "memory of huge pages")
	if mode == result.Bandwidth {
		f.Float64VarP(&p.limitBW, "limit_bw", "w", 0, "status 3 if the bandwidth is below this, in the unit printed")
		f.Float64VarP(&p.limitRate, "limit_msgrate", "y", 0,
			"status 3 if the message rate is below this, in millions a second")
	}
	p.gid = gidFlag(f, "x")
	knob := func(k *result.Knob, name, short, usage string) { f.VarP(result.KnobFlag{Knob: k}, name, short, usage) }
	knob(&p.knobs.MTU, "mtu", "m", "path MTU")
	knob(&p.knobs.SL, "sl", "S", "service level")
	knob(&p.knobs.TOS, "tos", "T", "type of service")
	knob(&p.knobs.TOS, "tclass", "", "traffic class, the same as --tos")
	knob(&p.knobs.Timeout, "qp-timeout", "u", "wait for an acknowledgement: 4.096 us << N")
	knob(&p.knobs.Retry, "retry_count", "", "how often a request without an acknowledgement is sent again")
	f.BoolVar(&p.gbits, "report_gbits", false, "Gb/sec instead of MiB/sec")
	f.BoolVarP(&p.cm, "rdma_cm", "R", false, "accepted: always so; refused with --peer perftest")
	f.BoolVar(&p.writeImm, "write_with_imm", false, "ib_write_lat, ib_write_bw: with immediate data")
	f.BoolVar(&p.sendImm, "send_with_imm", false, "ib_send_lat, ib_send_bw: with immediate data")
	for _, a := range accepted {
		f.BoolP(a.name, a.short, false, a.usage)
	}
	f.StringVar(&p.peer, "peer", peerDatperf, peerUsage+"; not a flag of perftest's")
	f.StringVar(&p.layer, "layer", result.Cverbs, "cverbs or udat; not a flag of perftest's")
}

// plan translates the flags into a plan.
func (p *perftestFlags) plan(test, mode string) (engine.Plan, error) {
	plan := engine.Plan{Repeats: 1}
	switch {
	case !slices.Contains(result.Transports, strings.ToLower(p.connection)):
		return plan, usagef("--connection %s: must be RC, UC or UD", p.connection)
	case p.both && p.reversed:
		return plan, usagef("--bidirectional and --reversed: only one of them")
	case p.all && p.size != "":
		return plan, usagef("--all and --size: only one of them")
	case p.iters < 0 || p.seconds < 0:
		return plan, usagef("--iters and --duration must be positive")
	}
	c := result.Default()
	c.Test, c.Mode, c.Layer, c.QPs, c.SRQ, c.ReadDepth = test, mode, p.layer, p.qps, p.srq, p.reads
	c.Iters, c.Duration = int64(p.iters), result.Seconds(time.Duration(p.seconds)*time.Second)
	c.Signal, c.Inline = p.mod, p.inline
	c.Transport = strings.TrimPrefix(strings.ToLower(p.connection), result.RC)
	if strings.HasPrefix(strings.ToUpper(p.atomic), "CMP") && c.Atomic() {
		c.Test = result.CmpSwap
	}
	switch {
	case p.writeImm && test != result.Write:
		return plan, usagef("--write_with_imm: this program does not write")
	case p.sendImm && test != result.Send:
		return plan, usagef("--send_with_imm: this program does not send")
	case p.writeImm:
		c.Test = result.WriteImm
	case p.sendImm:
		c.Test = result.SendImm
	}
	if p.events {
		c.Poll = result.Event
	}
	switch {
	case p.both:
		c.Direction = result.Both
	case p.reversed:
		c.Direction = result.In
	}
	c.HugePages, c.Knobs = p.huge, p.knobs
	if mode == result.Bandwidth {
		c.Depth, c.RxDepth, c.Batch = p.tx, p.rx, p.list
	}
	if c.Iters == 0 && c.Duration == 0 {
		c.Iters = 1000
		if test == result.Write && mode == result.Bandwidth {
			c.Iters = 5000
		}
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
		if p.mod == 0 && mode == result.Bandwidth && c.Size > perftestSignalAll {
			c.Signal = 1
		}
		c.Buffers = result.PerftestBuffers(c.Size)
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

// limits returns the limits that perftest's flags set. --limit_bw is in the unit of the printed
// columns.
func (p *perftestFlags) limits() result.Limits {
	gbit := p.limitBW
	if !p.gbits {
		gbit *= 8 * (1 << 20) / 1e9
	}
	return result.Limits{MinGbitS: gbit, MinOpsS: p.limitRate * 1e6}
}

func (a *app) perftest() *cobra.Command {
	names := slices.Sorted(maps.Keys(report.PerftestNames))
	missing := func(*cobra.Command, []string) error {
		return usagef("datperf perftest needs the name of one of perftest's programs: %s", strings.Join(names, ", "))
	}
	c := &cobra.Command{
		Use: "perftest", Short: "take the flags of perftest's ib_send_lat and its like, and print their columns",
		Args: missing, RunE: missing,
	}
	for _, name := range names {
		kind := report.PerftestNames[name]
		c.AddCommand(a.perftestProgram(name, kind[0], kind[1]))
	}
	return c
}

// perftestProgram returns the command that does what one of perftest's programs does.
func (a *app) perftestProgram(program, test, mode string) *cobra.Command {
	c := &cobra.Command{
		Use: program + " [HOST]", Short: "as perftest's " + program, Args: checkArgs,
		Long: "Do as perftest's " + program + " does: serve one client, or measure against HOST. " +
			"Both ends are datperf, or with --peer perftest the other end is " + program + ".",
	}
	var p perftestFlags
	f := c.Flags()
	f.SortFlags = false
	p.register(f, mode)
	c.RunE = func(_ *cobra.Command, args []string) error {
		control := controlFlags{port: p.port}
		if _, err := control.check(); err != nil {
			return err
		}
		device := p.device
		if p.ibPort > 1 {
			device = fmt.Sprintf("%s/%d", device, p.ibPort)
		}
		if err := checkPeer(p.peer); err != nil {
			return err
		}
		if (p.cm || f.Changed("comm_rdma_cm")) && p.peer == peerPerftest {
			return usagef("--rdma_cm and --comm_rdma_cm with --peer perftest: leave them out at both ends")
		}
		own := engine.Setup{Device: device, GID: p.gid}
		if len(args) == 0 && p.peer == peerDatperf {
			return a.serve(&engine.Server{Setup: own, Clients: 1}, "", "", &control)
		}
		plan, err := p.plan(test, mode)
		if err != nil {
			return err
		}
		out := &outputs{perftest: true, gbits: p.gbits, limits: p.limits()}
		client := engine.Client{Setup: own}
		if p.peer != peerDatperf {
			return a.runPerftest(client, plan, out, args, p.port)
		}
		return a.runPlan(client, plan, out, args,
			func(cl *engine.Client, plan engine.Plan, args []string) (*result.Document, error) {
				conn, err := control.dial(a.ctx, args[0])
				if err != nil {
					return nil, err
				}
				return cl.Run(a.ctx, conn, plan)
			})
	}
	return c
}

// The programs that datperf measures against.
const (
	peerDatperf  = "datperf"
	peerPerftest = "perftest"
)

const peerUsage = "`program` at the other end: datperf, or perftest for its ib_send_lat and its like"

func checkPeer(peer string) error {
	if peer != peerDatperf && peer != peerPerftest {
		return usagef("--peer %q: must be %s or %s", peer, peerDatperf, peerPerftest)
	}
	return nil
}

// perftestPeer measures against one of perftest's programs. If args contains an address, this end
// is the client. Otherwise it is the server, for one client.
func (a *app) perftestPeer(cl *engine.Client, plan engine.Plan, args []string, port int) (*result.Document, error) {
	if err := engine.PerftestPlan(&plan); err != nil {
		return nil, &usageError{err}
	}
	if len(args) > 0 {
		conn, err := engine.DialPerftest(a.ctx, args[0], port)
		if err != nil {
			return nil, err
		}
		return cl.Perftest(a.ctx, conn, plan, false)
	}
	var listen net.ListenConfig
	ln, err := listen.Listen(a.ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	fmt.Fprintf(a.stderr, "waiting for one of perftest's programs on %v\n", ln.Addr())
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-a.ctx.Done():
		case <-a.finish.now:
		case <-stop:
		}
		ln.Close()
	}()
	conn, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	return a.servePerftest(cl, conn, plan)
}

func (a *app) servePerftest(cl *engine.Client, conn net.Conn, plan engine.Plan) (*result.Document, error) {
	doc, err := cl.Perftest(a.ctx, conn, plan, true)
	if err == nil && len(doc.Runs) == 0 {
		fmt.Fprintf(a.stderr, "%v is served; it has the figures\n", conn.RemoteAddr())
	}
	return doc, err
}

// runPerftest does what runPlan does, against one of perftest's programs.
func (a *app) runPerftest(cl engine.Client, plan engine.Plan, out *outputs, args []string, port int) error {
	return a.runPlan(cl, plan, out, args,
		func(cl *engine.Client, plan engine.Plan, args []string) (*result.Document, error) {
			return a.perftestPeer(cl, plan, args, port)
		})
}

// perftestPort is the port that perftest's programs use.
const perftestPort = 18515
