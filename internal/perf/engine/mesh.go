package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// measurePeer measures a case from this server to another one, for a client. A failure of the
// measurement is an answer; the error is one of the client's conversation.
func (s *Server) measurePeer(ctx context.Context, k *control, m *message, who string) error {
	switch {
	case s.DialPeer == nil:
		return errors.New("this server measures to no other: it was started without --allow-mesh")
	case m.Case == nil:
		return errors.New("a mesh message without a case")
	}
	s.log("%s: measures %s to %s", who, m.Case.Name(), m.Peer)
	run, err := s.runPeer(ctx, k, m)
	if err != nil {
		return k.send(message{Kind: msgMesh, Text: err.Error()})
	}
	s.cases.Add(1)
	run.Client.Intervals, run.Server.Intervals = nil, nil
	return k.send(message{Kind: msgMesh, Run: raw(run)})
}

// runPeer ends when the client goes away.
func (s *Server) runPeer(ctx context.Context, k *control, m *message) (*result.Run, error) {
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
	conn, err := s.DialPeer(ctx, m.Peer)
	if err != nil {
		return nil, err
	}
	cl := Client{Device: s.Device, Version: s.Version, GID: s.GID, CPU: s.CPU, memory: s.memory}
	doc, err := cl.Run(ctx, conn, plan)
	if err != nil {
		return nil, err
	}
	return &doc.Runs[0], nil
}

// Mesh measures every pair of several servers, in both orders, one pair after the other.
type Mesh struct {
	Hosts []string // addresses of control ports, with ports; each differs from the others
	Plan  Plan     // each of its cases makes a matrix; Repeats is 1
	// Timeout bounds the measurement of a case between two hosts, beside the case's duration.
	Timeout time.Duration
	Dial    func(ctx context.Context, address string) (net.Conn, error)
	Version string
	Finish  <-chan struct{}                    // closed: end now, keep results so far; may be nil
	Watch   func(n, of int, pair *result.Pair) // after each pair and case; may be nil

	mesh *result.Mesh
	done int // pairs and cases
}

// Validate refuses what is no mesh.
func (m *Mesh) Validate() error {
	switch n := len(m.Hosts); {
	case n < 2 || n > result.MaxMeshHosts:
		return fmt.Errorf("%d hosts: must be from 2 to %d", n, result.MaxMeshHosts)
	case m.Plan.Repeats != 1:
		return fmt.Errorf("--repeat %d: a mesh measures each pair once", m.Plan.Repeats)
	case m.Timeout < time.Second || m.Timeout > time.Hour:
		return fmt.Errorf("--pair-timeout %v: must be from %v to %v", m.Timeout, time.Second, time.Hour)
	}
	seen := map[string]bool{}
	for _, h := range m.Hosts {
		if seen[h] {
			return fmt.Errorf("%s is given twice", h)
		}
		seen[h] = true
	}
	return m.Plan.Validate()
}

// Run measures. A pair that fails has its error in the matrix, and so has each pair with a host
// that is not reached. The error is ErrFinished, or the context's.
func (m *Mesh) Run(ctx context.Context) (*result.Document, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-m.Finish:
			cancel(ErrFinished)
		case <-stopped:
		}
	}()
	m.mesh = &result.Mesh{Hosts: make([]result.MeshHost, len(m.Hosts))}
	doc := &result.Document{Schema: result.Schema, Version: m.Version, Started: time.Now().UTC().Truncate(time.Second),
		Units: result.Units, Runs: []result.Run{}, Mesh: m.mesh}
	for _, c := range m.Plan.Cases {
		m.mesh.Matrices = append(m.mesh.Matrices, result.Matrix{Case: c})
	}
	var asking sync.WaitGroup
	for i, address := range m.Hosts {
		asking.Go(func() { m.mesh.Hosts[i] = m.ask(ctx, address) })
	}
	asking.Wait()
	for i := range m.Hosts {
		m.row(ctx, i)
	}
	return doc, context.Cause(ctx)
}

// ask returns the facts of a host.
func (m *Mesh) ask(ctx context.Context, address string) result.MeshHost {
	h := result.MeshHost{Address: address}
	k, facts, err := m.open(ctx, address, 0)
	if err != nil {
		h.Error = err.Error()
		return h
	}
	defer k.close()
	k.send(message{Kind: msgBye})
	h.Facts = facts
	return h
}

// open begins a conversation with a host.
func (m *Mesh) open(ctx context.Context, address string, cases int) (*control, *result.Facts, error) {
	conn, err := m.Dial(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	k := newControl(conn, "server")
	facts, err := m.greet(ctx, k, cases)
	if err != nil {
		k.close()
		return nil, nil, err
	}
	return k, facts, nil
}

func (m *Mesh) greet(ctx context.Context, k *control, cases int) (*result.Facts, error) {
	if err := k.send(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Version: m.Version,
		Cases: cases}); err != nil {
		return nil, err
	}
	welcome, err := k.expectFor(min(helloTime, m.Timeout), ctx.Done(), msgWelcome)
	if err != nil {
		return nil, err
	}
	if welcome.Magic != magic || welcome.Protocol != Protocol {
		return nil, fmt.Errorf("the server speaks protocol %d, this client %d: use the same version of datperf everywhere",
			welcome.Protocol, Protocol)
	}
	return readRaw[result.Facts](welcome.Facts)
}

// endedEarly is the error of a pair that was not measured before the end.
const endedEarly = "not measured: ended early"

// row measures from one host to all others.
func (m *Mesh) row(ctx context.Context, from int) {
	host := &m.mesh.Hosts[from]
	var k *control
	defer func() {
		if k != nil {
			k.send(message{Kind: msgBye})
			k.close()
		}
	}()
	refused := host.Error // of all pairs from now on
	for to := range m.mesh.Hosts {
		if to == from {
			continue
		}
		for i := range m.mesh.Matrices {
			pair := result.Pair{From: host.Address, To: m.mesh.Hosts[to].Address}
			switch other := m.mesh.Hosts[to].Error; {
			case ctx.Err() != nil:
				pair.Error = endedEarly
			case refused != "":
				pair.Error = refused
			case other != "":
				pair.Error = other
			default:
				var err error
				if k == nil {
					k, _, err = m.open(ctx, host.Address, len(m.Hosts)*len(m.Plan.Cases))
				}
				if err == nil {
					pair.Run, err = m.pair(ctx, k, pair.To, &m.Plan.Cases[i])
				}
				var ordered *orderError
				if err != nil {
					pair.Error = err.Error()
				}
				if ctx.Err() != nil {
					pair.Error = endedEarly
				}
				if err != nil && !errors.As(err, &ordered) { // the conversation is over
					if k != nil {
						k.close()
						k = nil
					}
					if !errors.Is(err, errPairTime) {
						refused = pair.Error
					}
				}
			}
			m.add(i, pair)
		}
	}
}

func (m *Mesh) add(matrix int, pair result.Pair) {
	all := &m.mesh.Matrices[matrix].Pairs
	*all = append(*all, pair)
	m.done++
	if m.Watch != nil {
		n := len(m.Hosts)
		m.Watch(m.done, n*(n-1)*len(m.Plan.Cases), &(*all)[len(*all)-1])
	}
}

// orderError is why a host could not measure to another one; it takes further orders.
type orderError struct{ text string }

func (e *orderError) Error() string { return e.text }

// errPairTime is the error of a measurement between two hosts that took too long.
var errPairTime = errors.New("gave up")

// pair orders one measurement.
func (m *Mesh) pair(ctx context.Context, k *control, to string, c *result.Case) (*result.Run, error) {
	if err := k.send(message{Kind: msgMesh, Peer: to, Case: c}); err != nil {
		return nil, err
	}
	patience := m.Timeout + time.Duration(c.Duration)
	timed, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("%w after %v (--pair-timeout)", errPairTime, patience))
	defer cancel()
	answer, err := k.expectFor(2*patience, timed.Done(), msgMesh)
	switch {
	case errors.Is(err, errStopped):
		return nil, context.Cause(timed)
	case err != nil:
		return nil, err
	case answer.Run == nil:
		return nil, &orderError{cmp.Or(answer.Text, "it gave no reason")}
	}
	run, err := readRaw[result.Run](answer.Run)
	if err == nil {
		err = run.Validate()
	}
	if err == nil && run.Case.Mode != c.Mode {
		err = errors.New("another case than was ordered")
	}
	if err != nil {
		return nil, fmt.Errorf("the server's run: %w", err)
	}
	return run, nil
}
