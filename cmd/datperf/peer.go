package main

import (
	"fmt"
	"net"
	"strconv"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
)

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
