package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/doctor"
	"github.com/godat/godat/internal/perf/result"
)

// Plan is what a client measures: cases, each repeated.
type Plan struct {
	Cases   []result.Case
	Repeats int // at least 1
}

// Validate refuses a plan with a case that cannot be run, before anything runs.
func (p *Plan) Validate() error {
	if len(p.Cases) == 0 {
		return errors.New("the plan has no cases")
	}
	if p.Repeats < 1 || p.Repeats > 1000 {
		return fmt.Errorf("--repeat %d: must be from 1 to 1000", p.Repeats)
	}
	for i := range p.Cases {
		c := p.Cases[i]
		if _, _, err := fit(&c); err != nil {
			return err
		}
	}
	return nil
}

// Watcher receives a plan's progress. Any of its functions may be nil. Calls are serialized.
type Watcher struct {
	Begin    func(client, server *result.Facts)          // once, after the hellos
	Case     func(n, of int, c *result.Case, repeat int) // before each run
	Interval func(result.Interval)                       // during a run
	Run      func(*result.Run)                           // after each run
}

// Client runs plans against a server.
type Client struct {
	Device  string // to measure from; empty: the one with the address that reaches the server, or the best
	Version string
	GID     *result.Knob    // entry of the device's GID table to use; nil: the connection manager's choice
	CPU     *int            // to pin the measuring loop to
	Finish  <-chan struct{} // closed: end the plan now, keep results so far; may be nil
	Watcher Watcher
	// Examine, if not nil, has the server examine its host before the first case, and receives what
	// it found.
	Examine func([]doctor.Finding)

	start  func(context.Context) error // of RunThreads: called when a case's connections are up; may be nil
	memory *budget                     // of a server that measures to another one
}

// dialTime bounds connecting to a server.
const dialTime = 10 * time.Second

// Dial connects to a server's control port: a host name or address, with or without a port. secret
// is that of Secure, or nil.
func Dial(ctx context.Context, address string, port int, secret *tls.Config) (net.Conn, error) {
	conn, err := dial(ctx, "datperf server", " (start one there with: datperf server)", address, port)
	if err != nil {
		return nil, err
	}
	return secureClient(ctx, conn, secret)
}

// DialPerftest connects to one of perftest's programs.
func DialPerftest(ctx context.Context, address string, port int) (net.Conn, error) {
	return dial(ctx, "program of perftest", " (start one there, for example: ib_send_lat)", address, port)
}

func dial(ctx context.Context, what, advice, address string, port int) (net.Conn, error) {
	host := address
	if h, p, err := net.SplitHostPort(address); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("address %q: the port must be from 1 to 65535", address)
		}
		host, port = h, int(n)
	}
	host = strings.Trim(host, "[]")
	if host == "" {
		return nil, fmt.Errorf("address %q: there is no host in it", address)
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("no %s to be reached at %s, port %d: %w%s", what, host, port, shortDial(err), advice)
	}
	return conn, nil
}

// shortDial removes from a dial error what the caller's text repeats.
func shortDial(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		var sys *os.SyscallError
		if errors.As(op.Err, &sys) {
			return sys.Err
		}
		return op.Err
	}
	return err
}

// Run measures the plan over a control connection, which it closes, and returns the results; with
// an error, the results before it.
func (cl *Client) Run(ctx context.Context, conn net.Conn, plan Plan) (*result.Document, error) {
	doc := &result.Document{Schema: result.Schema, Version: cl.Version, Started: time.Now().UTC().Truncate(time.Second),
		Units: result.Units, Runs: []result.Run{}}
	if err := plan.Validate(); err != nil {
		conn.Close()
		return doc, err
	}
	k := newControl(conn, "server")
	defer k.close()
	err := cl.converse(ctx, k, plan, doc)
	if err != nil && !errors.Is(err, ErrFinished) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		k.fail(err)
	}
	return doc, err
}

func (cl *Client) converse(ctx context.Context, k *control, plan Plan, doc *result.Document) error {
	chosen, err := choose(cl.Device, k.localAddr())
	if err == nil {
		err = chosen.useGID(cl.GID)
	}
	if err != nil {
		return err
	}
	doc.Client = gatherFacts(chosen, cl.Version, cl.CPU)
	total := len(plan.Cases) * plan.Repeats
	if err := k.send(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Version: cl.Version,
		Facts: raw(doc.Client), Cases: total}); err != nil {
		return err
	}
	welcome, err := k.expect(ctx.Done(), msgWelcome)
	if err != nil {
		return err
	}
	if welcome.Magic != magic || welcome.Protocol != Protocol {
		return fmt.Errorf("the server speaks protocol %d, this client %d: use the same version of datperf at both ends",
			welcome.Protocol, Protocol)
	}
	facts, err := readRaw[result.Facts](welcome.Facts)
	if err != nil {
		return fmt.Errorf("the server's welcome lacks its facts: %w", err)
	}
	doc.Server = *facts
	if err := compatible(plan, &doc.Client, &doc.Server); err != nil {
		return err
	}
	if f := cl.Watcher.Begin; f != nil {
		f(&doc.Client, &doc.Server)
	}
	if err := cl.examine(ctx, k); err != nil {
		return err
	}
	ses := &session{ctl: k, chosen: chosen, client: true, cpu: cl.CPU, start: cl.start, memory: cl.memory,
		finish: cl.Finish, watch: cl.Watcher.Interval}
	n := 0
	for _, c := range plan.Cases {
		for repeat := range plan.Repeats {
			if cl.finished() {
				return errors.Join(k.send(message{Kind: msgBye}), ErrFinished)
			}
			n++
			run, err := cl.runCase(ctx, ses, c, doc, n, total, repeat+1)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name(), err)
			}
			if plan.Repeats > 1 {
				run.Repeat = repeat + 1
			}
			doc.Runs = append(doc.Runs, run)
			if f := cl.Watcher.Run; f != nil {
				f(&doc.Runs[len(doc.Runs)-1])
			}
		}
	}
	err = k.send(message{Kind: msgBye})
	if cl.finished() {
		err = errors.Join(err, ErrFinished)
	}
	return err
}

func (cl *Client) examine(ctx context.Context, k *control) error {
	if cl.Examine == nil {
		return nil
	}
	if err := k.send(message{Kind: msgExamine}); err != nil {
		return err
	}
	m, err := k.expect(ctx.Done(), msgExamine)
	if err != nil {
		return err
	}
	found, err := readRaw[[]doctor.Finding](m.Findings)
	if err != nil {
		return fmt.Errorf("what the server found: %w", err)
	}
	cl.Examine(*found)
	return nil
}

// ErrFinished is the error of a plan that Client.Finish ended early.
var ErrFinished = errors.New("ended early: results up to then are kept")

func (cl *Client) finished() bool {
	select {
	case <-cl.Finish:
		return true
	default:
		return false
	}
}

func (cl *Client) runCase(ctx context.Context, ses *session, c result.Case, doc *result.Document, n, of,
	repeat int) (result.Run, error) {
	_, notes, err := fit(&c)
	if err != nil {
		return result.Run{}, err
	}
	if most := readDepth(&doc.Client, &doc.Server); most > 0 {
		c.ReadDepth = min(c.ReadDepth, most)
	}
	if f := cl.Watcher.Case; f != nil {
		f(n, of, &c, repeat)
	}
	if err := ses.ctl.send(message{Kind: msgCase, Case: &c}); err != nil {
		return result.Run{}, err
	}
	own, peer, err := ses.run(ctx, &c)
	if err != nil {
		return result.Run{}, err
	}
	if cl.finished() {
		notes = append(notes, "ended early, by an interrupt")
	}
	run := result.Run{Case: c, Client: own, Server: peer, Notes: notes}
	return run, run.Validate()
}

// readDepth is the read depth that both devices support, 0 if neither reports one.
func readDepth(a, b *result.Facts) int {
	switch {
	case a.MaxReadDepth == 0:
		return b.MaxReadDepth
	case b.MaxReadDepth == 0:
		return a.MaxReadDepth
	}
	return min(a.MaxReadDepth, b.MaxReadDepth)
}

// compatible refuses a plan that one of the two devices cannot run.
func compatible(plan Plan, client, server *result.Facts) error {
	if client.Fabric != server.Fabric {
		return fmt.Errorf("the client's device %s is on the %s fabric, the server's %s on the %s fabric: they cannot "+
			"reach each other",
			client.Device, client.Fabric, server.Device, server.Fabric)
	}
	for i := range plan.Cases {
		c := &plan.Cases[i]
		for _, end := range []struct {
			who string
			f   *result.Facts
		}{{"client", client}, {"server", server}} {
			if err := able(c, end.who, end.f); err != nil {
				return err
			}
		}
	}
	return nil
}

// able refuses a case that one end's device cannot run.
func able(c *result.Case, who string, f *result.Facts) error {
	packets, iwarp := f.Fabric == fabricVerbs, strings.HasPrefix(f.Detail, "iWARP")
	if err := c.Knobs.Able(packets, iwarp, f.MTU, fmt.Sprintf("the %s's device %s", who, f.Device)); err != nil {
		return err
	}
	switch {
	case c.Layer == result.Cverbs && f.Fabric != fabricVerbs:
		return fmt.Errorf("--layer cverbs: the %s's device %s has no verbs beneath it; use --layer udat, or a verbs device",
			who, f.Device)
	case c.Lossy() && iwarp:
		return fmt.Errorf("--transport %s: the %s's device %s is iWARP, which is reliable and connected", c.Transport, who,
			f.Device)
	case c.Transport == result.UD && f.MTU > 0 && c.Size > f.MTU:
		return fmt.Errorf("--size %d with --transport ud: a datagram is one packet; the MTU of the %s's device %s is %d",
			c.Size, who, f.Device, f.MTU)
	case c.Atomic() && f.Atomics == noAtomics:
		return fmt.Errorf("--test %s: the %s's device %s has no atomics", c.Test, who, f.Device)
	case c.Test == result.WriteImm && iwarp:
		return fmt.Errorf("--test %s: iWARP, as of the %s's device %s, has no immediate data with RDMA write", c.Test, who,
			f.Device)
	case f.MaxMessage > 0 && c.Size > f.MaxMessage:
		return fmt.Errorf("--size %d: the largest message of the %s's device %s is %d", c.Size, who, f.Device, f.MaxMessage)
	case f.MaxQueueDepth > 0 && max(c.Depth, c.RxDepth) > f.MaxQueueDepth:
		return fmt.Errorf("--depth %d, --rx-depth %d: a queue of the %s's device %s holds %d", c.Depth, c.RxDepth, who,
			f.Device, f.MaxQueueDepth)
	}
	return nil
}

// Local runs a plan with both ends in this process. serverCPU, if not nil, is the processor of the
// server's loop.
func Local(ctx context.Context, cl *Client, serverCPU *int, plan Plan) (*result.Document, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, b := net.Pipe()
	chosen, err := choose(cl.Device, netip.Addr{})
	if err == nil {
		err = chosen.useGID(cl.GID)
	}
	if err != nil {
		a.Close()
		b.Close()
		return nil, err
	}
	srv := &Server{chosen: &chosen, Version: cl.Version, CPU: serverCPU}
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.serve(ctx, b)
	}()
	doc, err := cl.Run(ctx, a, plan)
	if err != nil {
		cancel()
	}
	<-served
	return doc, err
}
