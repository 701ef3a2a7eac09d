package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// perftestShape describes how one of perftest's programs synchronizes with its peer around the
// measurement.
type perftestShape struct {
	// The ends exchange the descriptions of their first queue pairs to wait for each other. The field
	// before is how often they do this before the exchange of all queue pairs. The field after is how
	// often they do it after connecting.
	before, after int

	report bool // it exchanges figures after the measurement
	silent bool // it sends nothing at the end
}

// shapeOf returns the shape of the program for the case's test and mode.
func shapeOf(c *result.Case) perftestShape {
	switch {
	case c.Test == result.Send:
		return perftestShape{after: 2}
	case c.Mode == result.Latency && c.Test == result.Write:
		return perftestShape{before: 1, after: 1, silent: true}
	case c.Mode == result.Latency:
		return perftestShape{before: 1, after: 1}
	}
	return perftestShape{after: 1, report: true}
}

// PerftestPlan returns an error if none of perftest's programs can be the peer for the plan.
// Otherwise it adapts the plan's case: perftest has no warm-up, so the program's first iterations
// count as datperf's warm-up.
func PerftestPlan(plan *Plan) error {
	if len(plan.Cases) != 1 || plan.Repeats != 1 {
		return fmt.Errorf("--peer perftest: %d runs; one of perftest's programs is there for one case, once",
			len(plan.Cases)*plan.Repeats)
	}
	c := &plan.Cases[0]
	switch {
	case c.Test == result.SendImm, c.Test == result.WriteImm:
		return fmt.Errorf("--test %s with --peer perftest: no program of perftest does it", c.Test)
	case c.Layer != result.Cverbs:
		return fmt.Errorf("--layer %s with --peer perftest: its queue pairs are connected without a connection manager; "+
			"use --layer cverbs", c.Layer)
	case c.Duration > 0:
		return errors.New("--duration with --peer perftest: both ends must have the same --iters")
	case c.Verify:
		return errors.New("--verify with --peer perftest: its payload is not datperf's")
	case c.Direction == result.Both:
		return errors.New("--direction both with --peer perftest: one direction at a time")
	case c.Mode == result.Latency && c.QPs != 1:
		return fmt.Errorf("--qps %d with --mode lat and --peer perftest: its latency programs have one", c.QPs)
	case c.Connect != "":
		return fmt.Errorf("--connect %s with --peer perftest: leave --connect out, addresses are exchanged", c.Connect)
	case c.SRQ:
		return errors.New("--srq with --peer perftest: not supported")
	case c.Iters < 5:
		return fmt.Errorf("--iters %d with --peer perftest: must be at least 5", c.Iters)
	}
	// In bandwidth tests perftest counts iterations per queue pair, and datperf counts those of all
	// queue pairs together.
	total := c.Iters
	if c.Mode == result.Bandwidth {
		total *= int64(c.QPs)
	}
	c.Warmup = min(c.Warmup, total/4)
	c.Iters = total - c.Warmup
	if c.Lossy() && c.RxDepth >= perftestReceives { // so that no message is lost for lack of a receive
		c.RxDepth = max(c.RxDepth, int(min(total/int64(c.QPs), perftestMostReceives)))
	}
	return nil
}

// perftestReceives is the number of receives that perftest posts by default. perftestMostReceives
// is the most receives that this end posts on a transport that may lose messages.
const perftestReceives, perftestMostReceives = 512, 16000

// errPerftestEnded is the error if Client.Finish ended a run with a program of perftest. Such a run
// has no results, because the program reports them only after all operations.
var errPerftestEnded = errors.New("ended early, without results: perftest does not shorten a run")

// Perftest measures the plan's case against one of perftest's programs. Both ends exchange their
// settings over conn, which Perftest closes. If the argument server is true, this end is perftest's
// server and measures only the messages that it receives. If there is nothing to measure, the
// document has no run.
func (cl *Client) Perftest(ctx context.Context, conn net.Conn, plan Plan, server bool) (*result.Document, error) {
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-cl.Finish:
			cancel(errPerftestEnded)
		case <-ctx.Done():
		}
	}()
	doc := result.NewDocument(cl.Version)
	c := plan.Cases[0]
	x := &exchange{conn: conn, client: !server}
	defer x.closeWith(ctx)()
	run, err := cl.perftest(ctx, x, &c, doc)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return doc, fmt.Errorf("%s: %w", c.Name(), err)
	}
	if len(run.Flows()) == 0 {
		return doc, nil
	}
	doc.Runs = append(doc.Runs, *run)
	if f := cl.Watcher.Run; f != nil {
		f(run)
	}
	return doc, run.Validate()
}

func (cl *Client) perftest(ctx context.Context, x *exchange, c *result.Case, doc *result.Document) (*result.Run,
	error) {
	local, _ := netip.ParseAddrPort(x.conn.LocalAddr().String())
	chosen, err := cl.chooseVerbs(local.Addr())
	if err != nil {
		return nil, err
	}
	doc.Client = gatherFacts(chosen, cl.Version, cl.CPU)
	version, err := x.versions()
	if err != nil {
		return nil, err
	}
	doc.Server = result.Facts{Host: x.conn.RemoteAddr().String(), Version: "perftest " + version,
		Fabric: fabricVerbs, Device: "unknown", Chosen: "perftest does not tell"}
	if err := able(c, "client", &doc.Client); err != nil {
		return nil, err
	}
	if f := cl.Watcher.Begin; f != nil {
		f(&doc.Client, &doc.Server)
	}
	if f := cl.Watcher.Case; f != nil {
		f(1, 1, c, 1)
	}
	_, port := chosen.verbsPort()
	cycle, err := x.number("buffer size", 4096)
	if err != nil {
		return nil, err
	}
	if _, err := x.number("cache line size", 64); err != nil {
		return nil, err
	}
	if cycle < 0 || cycle > 1<<20 {
		return nil, fmt.Errorf("perftest, buffer size: %d, must be at most 1 MiB", cycle)
	}
	own, _ := cverbs.MTUOf(c.MTU.Or(doc.Client.MTU))
	mtu, err := x.mtu(own)
	if err != nil {
		return nil, err
	}
	if c.Transport == result.UD && c.Size > mtu.Bytes() {
		return nil, fmt.Errorf("--size %d with --transport ud: a datagram is one packet; the MTU of the path is %d", c.Size,
			mtu.Bytes())
	}
	c.Buffers = max(1, max(cycle, 4096)/max(c.Size, 64))
	lay, _, err := fit(c)
	if err != nil {
		return nil, err
	}
	l, err := openCverbs(c, lay, chosen)
	if err != nil {
		return nil, err
	}
	defer l.close()
	fillMemory(&lay, l.bytes())
	p := &perftestPeer{exchange: x, l: l, c: c, mtu: mtu, port: port, index: doc.Client.GIDIndex}
	if err := p.connect(); err != nil {
		return nil, err
	}
	return p.measure(ctx, cl, chosen.Fabric)
}

func (cl *Client) chooseVerbs(local netip.Addr) (choice, error) {
	own := cl.Setup
	own.AnyNode = true // as its peer, which runs where the scheduler puts it
	chosen, err := own.choose(local)
	if err == nil && chosen.Fabric != fabricVerbs {
		err = fmt.Errorf("--peer perftest: %s has no verbs beneath it", chosen.Name)
	}
	return chosen, err
}

// perftestPeer is a link to one of perftest's programs.
type perftestPeer struct {
	*exchange
	l     *cverbsLink
	c     *result.Case
	mtu   cverbs.MTU
	port  uint8
	index int // index of this end's GID
	own   []queuePair
}

// connect exchanges the queue pairs and connects them.
func (p *perftestPeer) connect() error {
	attr, err := p.l.ctx.QueryPort(p.port)
	if err != nil {
		return err
	}
	p.gids = attr.LinkLayer == cverbs.LinkLayerEthernet
	gid := cverbs.GID{}
	if p.gids {
		table, err := p.l.ctx.GIDTable()
		if err != nil {
			return err
		}
		for _, e := range table {
			if e.Port == p.port && e.Index == p.index {
				gid = e.GID
			}
		}
	}
	for i, qp := range p.l.qps {
		p.own = append(p.own, queuePair{
			lid: uint32(attr.LID), reads: uint32(p.c.ReadDepth), num: qp.Num(), psn: rand.Uint32N(1 << 24), gid: gid,
			remote: remote{Addr: p.l.mr.Addr() + uint64(p.l.lay.rx.at(i, 0)), Key: p.l.mr.RKey()},
		})
	}
	shape := shapeOf(p.c)
	if err := p.wait("start", shape.before); err != nil {
		return err
	}
	peers, err := p.queuePairs("queue pairs", p.own)
	if err != nil {
		return err
	}
	for i := range peers {
		if err := p.connectQP(i, &peers[i]); err != nil {
			return fmt.Errorf("queue pair %d, to %06x at %v: %w", i, peers[i].num, peers[i].gid, err)
		}
		p.l.peers = append(p.l.peers, peers[i].remote)
	}
	p.l.setRemote(remote{})
	if err := postFirstReceives(p.c, p.l); err != nil {
		return err
	}
	// The programs exchange their queue pairs again here and in wait. The purpose of an exchange
	// differs between programs. For this end only the number of exchanges matters.
	if _, err := p.queuePairs("connected", p.own); err != nil {
		return err
	}
	return p.wait("ready", shape.after)
}

// wait exchanges the description of the first queue pair, the given number of times. Each exchange
// makes both ends wait until the peer has reached the same point.
func (p *perftestPeer) wait(what string, times int) error {
	for range times {
		if _, err := p.queuePairs(what, p.own[:1]); err != nil {
			return err
		}
	}
	return nil
}

func (p *perftestPeer) connectQP(i int, peer *queuePair) error {
	at := cverbs.AHAttr{DLID: uint16(peer.lid), IsGlobal: p.gids}
	if p.gids {
		at.DGID, at.SGIDIndex = peer.gid, uint8(p.index)
	}
	return p.l.connectDirect(i, direct{at: at, mtu: p.mtu, num: peer.num, recvPSN: peer.psn, sendPSN: p.own[i].psn,
		reads: uint8(min(uint32(p.c.ReadDepth), peer.reads))})
}

// measure runs this end's loop, and then exchanges the messages with which the program ends.
func (p *perftestPeer) measure(ctx context.Context, cl *Client, fabric string) (*result.Run, error) {
	c := p.c
	sh := newShared()
	sh.foreign = true
	sh.setExpect([]uint64{uint64(c.Iters + c.Warmup)})
	defer context.AfterFunc(ctx, func() { sh.abort(context.Cause(ctx)) })()
	if !p.client && (c.Test != result.Write || c.Mode != result.Latency) {
		c.Direction = result.In
	}
	run := &result.Run{Case: *c, Notes: result.Notes{"the peer is perftest " + p.version}}
	// With ib_write_lat the server posts the first write. A client waits for that write. Then it
	// measures its own writes, each of which the server answers. At the end the client posts one
	// more write, which has no answer and is not measured. So a client measures one write less than
	// it posts after the warm-up.
	begins := c.Test == result.Write && c.Mode == result.Latency
	if begins && p.client {
		c.Iters--
	}
	w := newWorker(c, p.l.lay, p.l, sh, p.client || begins, fabric, func(iv result.Interval) {
		if f := cl.Watcher.Interval; f != nil {
			f(iv)
		}
	}, func([]uint64) {})
	shape := shapeOf(c)
	passive := !p.client && !c.TwoSided() && !c.PingPong()
	var err error
	if begins && p.client {
		if err := w.awaitMark(0); err != nil {
			return nil, err
		}
	}
	if !passive {
		if run.Client, err = (&session{cpu: cl.CPU}).loop(w); err != nil {
			return nil, err
		}
	}
	if begins && p.client {
		if err := w.lastMarked(); err != nil {
			return nil, err
		}
	}
	if run.Client != nil && run.Client.Received != nil && !p.client {
		run.Server = &result.End{Initiated: run.Client.Received} // measured at this end
	}
	if shape.report {
		if err := p.wait("end", 1); err != nil {
			return nil, err
		}
		own := perftestReport{size: uint64(c.Size), iters: uint64(c.Iters + c.Warmup)}
		if run.Client != nil && run.Client.Initiated != nil {
			s := run.Client.Initiated
			own.peak, own.average, own.messages = s.MiBS, s.MiBS, s.OpsS/1e6
		}
		peer, err := p.report(own)
		if err != nil {
			return nil, err
		}
		if passive {
			if err := peer.check(); err != nil {
				return nil, err
			}
			run.Server = &result.End{Initiated: &result.Stream{
				Ops: int64(own.iters), Bytes: int64(own.iters) * int64(c.Size), MiBS: peer.average,
				GbitS: peer.average * 8 * (1 << 20) / 1e9, OpsS: peer.messages * 1e6,
			}}
		}
	}
	if shape.silent {
		return run, nil
	}
	if err := p.wait("end", 1); err != nil {
		return nil, err
	}
	p.done() // an error does not matter: the peer may have ended
	return run, nil
}
