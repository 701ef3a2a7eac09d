package main

import (
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
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
			if cl.TLS != nil {
				return nil, usagef("--tls-cert with --peer %s: its programs have no TLS", *peer)
			}
			if !c.Flags().Changed("iters") {
				return nil, usagef("--peer %s needs --iters: both ends must have the same number of operations", *peer)
			}
			if _, err := control.check(); err != nil {
				return nil, err
			}
			return a.perftestPeer(cl, plan, args, control.port)
		}
		if err := engine.ThreadsPlan(&plan, *threads); err != nil {
			return nil, &usageError{err}
		}
		if *threads > 1 {
			if c.Flags().Changed("interval") {
				return nil, usagef("--interval with --threads %d: runs of several threads have no intervals", *threads)
			}
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
