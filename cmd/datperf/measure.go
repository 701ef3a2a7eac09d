package main

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

func (a *app) client() *cobra.Command {
	c := &cobra.Command{
		Use: "client ADDRESS", Short: "measure against the server at ADDRESS",
		Long: "Measure against the server at ADDRESS: a host name or IP address, and :PORT if it is not the usual one. " +
			"Several addresses of the server, with commas between them, are used by --threads in turn: one for each port.",
		Example: `  datperf client HOST                                       latency of 2-byte sends
  datperf client HOST -t send,write,read -m all -l all      every combination
  datperf client HOST -m bw -s 2-8M --html sweep.html       bandwidth by message size, as a page
  datperf client HOST -m bw -D 10 -i 1 -q 8                 10 s on 8 queue pairs, a line per second
  datperf client HOST --rate 100000 --max-p99 20us          open loop, with a limit
  datperf client 10.0.0.2,10.0.1.2 --threads 2 -m bw        through two ports at the same time`,
	}
	var control controlFlags
	control.register(c.Flags())
	cpu := c.Flags().IntSlice("cpu", nil, "pin the measuring loop to this `processor`")
	threads := c.Flags().Int("threads", 1,
		"bw: share the load among this `number` of threads, each with its own queue pairs")
	peer := c.Flags().String("peer", peerDatperf, peerUsage)
	return a.measure(c, func(cl *engine.Client, plan engine.Plan, args []string) (*result.Document, error) {
		if err := checkCPUs(*cpu, 1); err != nil {
			return nil, err
		}
		cl.CPU = nth(*cpu, 0)
		if cl.Device == "mem0" {
			return nil, usagef("--device mem0: it is inside one process, no server can be reached by it; use datperf local")
		}
		if err := checkPeer(*peer); err != nil {
			return nil, err
		}
		addresses := strings.Split(args[0], ",")
		if n := len(addresses); n > 1 && (*peer != peerDatperf || *threads%n != 0) {
			return nil, usagef("%s: threads use %d addresses in turn; --threads must be a multiple of %d, without --peer",
				args[0], n, n)
		}
		if *peer != peerDatperf {
			if *threads != 1 {
				return nil, usagef("--threads %d with --peer %s: its programs have one", *threads, *peer)
			}
			if !c.Flags().Changed("port") {
				control.port = perftestPort
			}
			if control.secret != "" {
				return nil, usagef("--secret with --peer %s: its exchange is never encrypted", *peer)
			}
			if _, err := control.check(); err != nil {
				return nil, err
			}
			return a.perftestPeer(cl, plan, args, control.port, *peer)
		}
		if err := engine.ThreadsPlan(&plan, *threads); err != nil {
			return nil, &usageError{err}
		}
		if *threads > 1 {
			dial := func(i int) (net.Conn, error) { return control.dial(a.ctx, addresses[i%len(addresses)]) }
			return cl.RunThreads(a.ctx, dial, plan, *threads)
		}
		conn, err := control.dial(a.ctx, args[0])
		if err != nil {
			return nil, err
		}
		return cl.Run(a.ctx, conn, plan)
	})
}

func (a *app) local() *cobra.Command {
	c := &cobra.Command{
		Use: "local", Short: "measure with both ends in this process",
		Long: "Measure with both ends in this process: on mem0, the fabric inside the process, " +
			"or through a verbs device and back.",
		Example: "  datperf local --device mem0 -t all -m all --verify",
	}
	cpu := c.Flags().IntSlice("cpu", nil, "pin the client's loop to this `processor`; of two, the server's to the second")
	return a.measure(c, func(cl *engine.Client, plan engine.Plan, _ []string) (*result.Document, error) {
		if err := checkCPUs(*cpu, 2); err != nil {
			return nil, err
		}
		cl.CPU = nth(*cpu, 0)
		return engine.Local(a.ctx, cl, nth(*cpu, 1), plan)
	})
}

func checkCPUs(cpus []int, most int) error {
	if len(cpus) > most {
		return usagef("--cpu: %d processors were given, %d can be used here", len(cpus), most)
	}
	for _, cpu := range cpus {
		if err := engine.CheckCPU(cpu); err != nil {
			return &usageError{err}
		}
	}
	return nil
}

func nth(list []int, n int) *int {
	if n < len(list) {
		return &list[n]
	}
	return nil
}

type runPlan func(cl *engine.Client, plan engine.Plan, args []string) (*result.Document, error)

// measure is the part that client and local share: everything but how the two ends connect.
func (a *app) measure(c *cobra.Command, run runPlan) *cobra.Command {
	var p planFlags
	var out outputs
	device := deviceFlag(c,
		"verbs `device`, or its IP address, or mem0 (default: the one that reaches the server, or the first active one)")
	gid := gidFlag(c.Flags(), "")
	p.register(c)
	out.register(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		out.intervals = c.Flags().Changed("interval")
		if err := checkKnobs(c.Flags()); err != nil {
			return err
		}
		plan, err := p.plan()
		if err != nil {
			return err
		}
		return a.runPlan(engine.Client{Device: *device, GID: gid}, plan, &out, args, run)
	}
	return c
}

func (a *app) runPlan(cl engine.Client, plan engine.Plan, out *outputs, args []string, run runPlan) (err error) {
	forProgram, err := out.check(plan.Cases)
	if err != nil {
		return err
	}
	people := a.stdout
	if forProgram {
		people = a.stderr
	}
	files, err := out.open(a.stdout)
	if err != nil {
		return err
	}
	written := false
	defer func() {
		if !written {
			files.drop()
		}
	}()
	show := newDisplay(people, a.stderr, out, plan.Repeats)
	if out.ndjson != "" {
		w := io.Writer(a.stdout)
		if out.ndjson != "-" {
			file, err := os.Create(out.ndjson)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			w = file
		}
		show.stream = report.NewStream(w)
	}
	if out.prometheus != "" {
		show.metrics = report.NewPrometheus()
		stop, err := servePrometheus(out.prometheus, show.metrics.WriteText, nil, a.stderr)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	a.finish.gently.Store(true)
	cl.Finish, cl.Version, cl.Watcher = a.finish.now, buildVersion(), show.watcher()
	doc, err := run(&cl, plan, args)
	show.close()
	if doc == nil || err != nil && len(doc.Runs) == 0 {
		return err
	}
	if plan.Repeats > 1 {
		doc.Summary = result.Summarize(doc.Runs)
	}
	doc.Command, doc.Title, doc.Labels = append([]string{"datperf"}, a.args...), out.title, out.labels
	written = true
	if err := errors.Join(err, files.write(doc)); err != nil {
		return err
	}
	return out.judge(doc.Runs, a.stderr)
}
