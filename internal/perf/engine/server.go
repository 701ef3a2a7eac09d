package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Server runs the plans of its clients. It serves up to MaxClients clients at the same time.
type Server struct {
	Setup
	Log     func(text string) // one line for people; may be nil
	Clients int               // number of clients to serve before the server ends; 0: any number
	// MaxClients limits the number of clients at the same time (0: DefaultMaxClients). MaxMemory
	// limits the memory for all their cases together, in bytes (0: DefaultMaxMemory).
	MaxClients int
	MaxMemory  int64
	// DialPeer connects to the control port of another server. It is called when a client orders
	// this server to measure to another server. If DialPeer is nil, the server refuses such orders.
	DialPeer func(ctx context.Context, address string) (net.Conn, error)

	quitting chan struct{}
	quit     sync.Once
	once     sync.Once // runs prepare once
	served   atomic.Int64
	failed   atomic.Int64
	cases    atomic.Int64
	seats    *seats // nil: no limit
	memory   *budget
	lobby    Lobby

	examining sync.Mutex
}

// DefaultPort is the port of the control connection.
const DefaultPort = 18516

// Check returns the facts of the server's device, or an error if the server has no device.
func (s *Server) Check() (result.Facts, error) {
	chosen, err := s.choose(netip.Addr{})
	if err != nil {
		return result.Facts{}, err
	}
	return gatherFacts(chosen, s.Version, s.CPU), nil
}

func (s *Server) prepare() {
	s.once.Do(func() {
		s.quitting = make(chan struct{})
		s.seats = &seats{most: cmp.Or(s.MaxClients, DefaultMaxClients), taken: map[*seat]struct{}{}}
		s.memory = &budget{limit: cmp.Or(s.MaxMemory, DefaultMaxMemory())}
	})
}

// Stats contains the figures of a server.
type Stats struct {
	Clients, MaxClients         int   // clients being served, and their limit
	Served, Failed, Cases       int64 // since the start: clients served, conversations that ended with an error, cases
	MemoryBytes, MaxMemoryBytes int64 // memory of the cases of all clients, and its limit
}

// Stats returns the server's figures. It may be called before, during and after Serve.
func (s *Server) Stats() Stats {
	s.prepare()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return Stats{s.seats.count(), s.seats.most, s.served.Load(), s.failed.Load(), s.cases.Load(), s.memory.used,
		s.memory.limit}
}

// Ready returns why the server cannot serve one more client, or nil if it can.
func (s *Server) Ready() error {
	switch st := s.Stats(); {
	case closed(s.quitting):
		return errors.New("it has served its clients")
	case st.Clients == st.MaxClients:
		return fmt.Errorf("it serves %s already", result.Count(st.Clients, "client"))
	}
	chosen, err := s.choose(netip.Addr{})
	if err == nil && !chosen.Active {
		err = fmt.Errorf("%s is down", chosen.Name)
	}
	return err
}

// Serve accepts clients. When ctx is done, Serve ends the clients' runs, closes the listener and
// returns nil. When the last of Clients clients has come, Serve closes the listener, and returns
// nil when all clients have finished. Otherwise it returns the error of Accept.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	s.prepare()
	served := make(chan struct{})
	defer close(served)
	go func() {
		select {
		case <-s.quitting:
			ln.Close()
			s.lobby.closeAll()
		case <-served:
		}
	}()
	defer ln.Close()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || closed(s.quitting) {
				return nil
			}
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() { // out of descriptors, for example
				s.log("%v", err)
				time.Sleep(100 * time.Millisecond)
				continue
			}
			return err
		}
		s.lobby.Enter(conn)
		clients.Go(func() { s.serve(ctx, conn) })
	}
}

func (s *Server) log(format string, args ...any) {
	if s.Log != nil {
		s.Log(fmt.Sprintf(format, args...))
	}
}

// serve talks to the client of one connection until the connection ends.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	k := newControl(conn, "client")
	shutdown := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(shutdown, func() {
		k.sendFor(message{Kind: msgError, Text: errShutdown.Error()}, time.Second) // before its connections break
		cancel(errShutdown)
	})()
	defer k.close()
	defer s.lobby.Leave(conn)
	who := "client"
	if a := conn.RemoteAddr(); a.Network() != "pipe" {
		who = "client " + a.String()
	}
	cases, err := s.converse(ctx, cancel, k, who)
	switch {
	case err == nil:
		s.log("%s: done, %s", who, result.Count(cases, "case"))
	case context.Cause(ctx) == errShutdown:
		s.log("%s: ended, this server is shutting down", who)
	case ctx.Err() != nil:
		s.log("%s: %v", who, k.fail(context.Cause(ctx)))
	default:
		k.fail(err)
		s.failed.Add(1)
		s.log("%s: %v", who, err)
	}
}

func (s *Server) converse(ctx context.Context, cancel context.CancelCauseFunc, k *control, who string) (cases int,
	err error) {
	hello, err := k.expectFor(helloTime, ctx.Done(), msgHello)
	if err != nil {
		return 0, err
	}
	if hello.Magic != magic {
		return 0, errors.New("not a datperf client")
	}
	if hello.Protocol != Protocol {
		return 0, fmt.Errorf("this server is %s with protocol %d, the client is %s with protocol %d: use the same version "+
			"at both ends",
			orUnknown(s.Version), Protocol, orUnknown(hello.Version), hello.Protocol)
	}
	k.limit.Store(clientLimit)
	k.live(func(text string) { s.log("%s: %s", who, text) })
	var place *seat
	idle := helloTime // without cases a client asks for facts, and stays in the lobby
	if hello.Cases > 0 {
		s.lobby.Leave(k.conn) // before taking a seat, because taking the last seat closes the lobby
		if place, err = s.seat(cancel, hello.Group); err != nil {
			return 0, err
		}
		defer place.leave()
		idle = idleTime
	}
	chosen, err := s.choose(k.localAddr())
	if err != nil {
		return 0, err
	}
	facts := gatherFacts(chosen, s.Version, s.CPU)
	if err := k.send(message{Kind: msgWelcome, Magic: magic, Protocol: Protocol, Version: s.Version,
		Facts: raw(facts)}); err != nil {
		return 0, err
	}
	s.log("%s: %s on %s (%s)", who, result.Count(hello.Cases, "case"), chosen.Name, chosen.why)
	ses := &session{ctl: k, chosen: chosen, counted: countersAt(&chosen), cpu: s.CPU, memory: s.memory,
		disturbed: place.disturbed}
	for {
		place.measures(false)
		m, err := k.expectFor(idle, ctx.Done(), msgCase, msgExamine, msgMesh, msgBye, msgFinish)
		place.measures(true)
		switch {
		case err != nil || m.Kind == msgBye:
			return cases, err
		case m.Kind == msgFinish: // the run had ended before the message came
			continue
		case m.Kind == msgExamine && hello.Cases > 0:
			if err := s.examine(k, chosen.Name); err != nil {
				return cases, err
			}
			continue
		case m.Kind == msgMesh && hello.Cases > 0:
			if err := s.measurePeer(ctx, k, &m, who); err != nil {
				return cases, err
			}
			cases++
			continue
		}
		if m.Case == nil || hello.Cases <= 0 {
			return cases, errors.New("a case message without a case, or after a hello without cases")
		}
		if err := cmp.Or(m.Case.Validate(), able(m.Case, "server", &facts)); err != nil {
			return cases, fmt.Errorf("%s: %w", m.Case.Name(), err)
		}
		if _, _, err := ses.run(ctx, m.Case); err != nil {
			return cases, fmt.Errorf("%s: %w", m.Case.Name(), err)
		}
		cases++
		s.cases.Add(1)
	}
}

// measurePeer measures a case from this server to another server, for a client. If the measurement
// fails, measurePeer sends the reason to the client. The error that it returns means that the
// conversation with the client cannot continue.
func (s *Server) measurePeer(ctx context.Context, k *control, m *message, who string) error {
	switch {
	case s.DialPeer == nil:
		return errors.New("this server measures to no other: it was started without --allow-mesh")
	case m.Case == nil:
		return errors.New("a mesh message without a case")
	}
	s.log("%s: measures %s to %s", who, m.Case.Name(), m.Peer)
	cl := Client{Setup: s.Setup, memory: s.memory}
	run, err := carryOut(ctx, k, m, s.DialPeer, &cl)
	if err != nil {
		return k.send(message{Kind: msgMesh, Text: err.Error()})
	}
	s.cases.Add(1)
	slim(run)
	return k.send(message{Kind: msgMesh, Run: raw(run)})
}

// slim removes from a run the intervals and histograms, which a matrix does not need. A mesh of
// hundreds of hosts has tens of thousands of runs.
func slim(run *result.Run) {
	for _, end := range []*result.End{run.Client, run.Server} {
		end.Intervals = nil
		for _, stream := range []*result.Stream{end.Initiated, end.Received} {
			if stream == nil {
				continue
			}
			for _, d := range []*result.Distribution{stream.Latency, stream.Corrected, stream.RoundTrip} {
				if d != nil {
					d.Histogram = nil
				}
			}
		}
	}
}

func orUnknown(version string) string {
	if version == "" {
		return "datperf of unknown version"
	}
	return "datperf " + strings.TrimPrefix(version, "datperf ")
}

// seat admits a client. The server calls the function end if the client loses its seat to another
// one.
func (s *Server) seat(end func(error), group uint64) (*seat, error) {
	if s.seats == nil {
		return nil, nil
	}
	place, err := s.seats.take(end, group)
	if err != nil {
		return nil, err
	}
	switch n := s.served.Add(1); {
	case s.Clients == 0 || n < int64(s.Clients):
	case n == int64(s.Clients):
		s.quit.Do(func() { close(s.quitting) })
	default:
		place.leave()
		return nil, fmt.Errorf("this server has served its %s", result.Count(s.Clients, "client"))
	}
	return place, nil
}

// carryOut executes an order, the message m: it connects to the server m.Peer as a client, and
// measures the case. The argument k is the control connection to the client that gave the order. If
// m.Together is set, carryOut sends msgReady on k when it is connected to m.Peer, and begins when
// msgGo arrives on k. It stops when k is closed.
func carryOut(ctx context.Context, k *control, m *message,
	dial func(ctx context.Context, address string) (net.Conn, error), cl *Client) (*result.Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-k.gone:
			cancel(k.err)
		case <-ctx.Done():
		}
	}()
	plan := Plan{Cases: []result.Case{*m.Case}, Repeats: 1}
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	if m.Together {
		cl.start = func(ctx context.Context) error {
			if err := k.send(message{Kind: msgReady}); err != nil {
				return err
			}
			_, err := k.expectFor(setupTime, ctx.Done(), msgGo)
			return err
		}
	}
	conn, err := dial(ctx, m.Peer)
	if err != nil {
		return nil, err
	}
	doc, err := cl.Run(ctx, conn, plan)
	if err != nil {
		return nil, err
	}
	return &doc.Runs[0], nil
}
