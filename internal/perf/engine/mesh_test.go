package engine

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// meshServer starts a server that measures to other servers, and returns its address.
func meshServer(t *testing.T, s *Server) string {
	s.Device = victim()
	dial, stop := serve(t, s)
	t.Cleanup(stop)
	conn := dial()
	defer conn.Close()
	return conn.RemoteAddr().String()
}

func dialPeer(ctx context.Context, address string) (net.Conn, error) {
	return Dial(ctx, address, DefaultPort, nil)
}

func meshOf(hosts ...string) *Mesh {
	m := &Mesh{Hosts: hosts, Timeout: time.Minute, Dial: dialPeer}
	for _, mode := range result.Modes {
		c := result.Default()
		c.Mode, c.Iters = mode, 20
		c.Complete()
		m.Plan.Cases = append(m.Plan.Cases, c)
	}
	m.Plan.Repeats = 1
	return m
}

// hanging starts a server that answers the first hello and nothing more.
func hanging(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for first := true; ; first = false {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			if first {
				k := newControl(conn, "client")
				k.send(message{Kind: msgWelcome, Magic: magic, Protocol: Protocol, Facts: raw(result.Facts{})})
			}
		}
	}()
	return ln.Addr().String()
}

// TestMesh measures each pair of hosts in both orders. A pair contains the error if its first
// server has no DialPeer or one of its hosts is unreachable; all other pairs are measured.
func TestMesh(t *testing.T) {
	a, b := meshServer(t, &Server{DialPeer: dialPeer}), meshServer(t, &Server{DialPeer: dialPeer})
	refusing := meshServer(t, &Server{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	gone := ln.Addr().String()
	ln.Close()
	doc, err := meshOf(a, b, refusing, gone).Run(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(doc.Mesh.Matrices), 2)
	for _, mx := range doc.Mesh.Matrices {
		assert.Equal(t, len(mx.Pairs), 4*3)
		for _, p := range mx.Pairs {
			want := ""
			switch {
			case p.From == gone || p.To == gone:
				want = "no datperf server to be reached"
			case p.From == refusing:
				want = "without --allow-mesh"
			}
			if want != "" {
				assert.Assert(t, p.Run == nil && strings.Contains(p.Error, want), "%v", p)
				continue
			}
			assert.Assert(t, p.Run != nil, "%v", p)
			assert.Equal(t, p.Run.Case.Mode, mx.Case.Mode)
			v, ok := p.Figure()
			assert.Assert(t, ok && v > 0)
		}
	}
	failed, all := doc.Mesh.Failed()
	assert.Equal(t, failed, 2*8)
	assert.Equal(t, all, 2*12)
}

// A host that hangs takes the whole time limit. Its pair gets the reason as its error.
func TestMeshHangs(t *testing.T) {
	a, silent := meshServer(t, &Server{DialPeer: dialPeer}), hanging(t)
	m := meshOf(a, silent)
	m.Plan.Cases, m.Timeout = m.Plan.Cases[:1], time.Second
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	pairs := doc.Mesh.Matrices[0].Pairs
	assert.Equal(t, pairs[0].Error, "gave up after 1s (--pair-timeout)")
	assert.Equal(t, pairs[1].Error, "not measured again: gave up after 1s (--pair-timeout)")
}

// A mesh that is told to finish keeps the results so far. The other pairs get the reason as their
// error.
func TestMeshFinish(t *testing.T) {
	a, b := meshServer(t, &Server{DialPeer: dialPeer}), meshServer(t, &Server{DialPeer: dialPeer})
	m := meshOf(a, b)
	finish := make(chan struct{})
	m.Finish = finish
	m.Watch = func(p MeshProgress) {
		assert.Equal(t, p.Steps, 4)
		if p.Step == 1 {
			close(finish)
			time.Sleep(100 * time.Millisecond)
		}
	}
	doc, err := m.Run(t.Context())
	assert.Assert(t, errors.Is(err, ErrFinished), "%v", err)
	pairs := doc.Mesh.Matrices[0].Pairs
	assert.Assert(t, pairs[0].Run != nil)
	assert.Equal(t, pairs[1].Error, "not measured: ended early")
}

// If the client of an order disconnects, the server ends the measurement and frees its memory.
func TestMeshOrphan(t *testing.T) {
	s := &Server{DialPeer: dialPeer}
	a, b := meshServer(t, s), meshServer(t, &Server{})
	conn, err := dialPeer(t.Context(), a)
	assert.NilError(t, err)
	k := newTalk(t, conn)
	k.hello()
	c := result.Default()
	c.Mode, c.Duration = result.Bandwidth, result.Seconds(time.Hour)
	c.Complete()
	k.say(message{Kind: msgMesh, Peer: b, Case: &c})
	for until := time.Now().Add(soon); s.Stats().MemoryBytes == 0; time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "the server does not begin")
	}
	conn.Close()
	for until := time.Now().Add(soon); s.Stats().MemoryBytes > 0; time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "the server goes on without its client")
	}
}

// manyServers starts servers on mem0 that measure to other servers, and returns their addresses.
func manyServers(t *testing.T, n int) (all []string) {
	for range n {
		all = append(all, meshServer(t, &Server{DialPeer: dialPeer}))
	}
	return all
}

// TestMeshPatterns: each pattern measures all its pairs, in steps of the right size. The document
// lists the pairs in the order of the hosts.
func TestMeshPatterns(t *testing.T) {
	ofNoDevice(t)
	hosts := manyServers(t, 4)
	for _, pattern := range result.Patterns {
		m := meshOf(hosts...)
		m.Pattern, m.Plan.Cases = pattern, m.Plan.Cases[1:]
		c := &m.Plan.Cases[0]
		c.Iters, c.Duration = 0, result.Seconds(50*time.Millisecond)
		c.Complete()
		seen := 0
		m.Watch = func(p MeshProgress) {
			seen += len(p.Pairs)
			assert.Assert(t, p.Step <= p.Steps)
		}
		doc, err := m.Run(t.Context())
		assert.NilError(t, err)
		failed, all := doc.Mesh.Failed()
		assert.Equal(t, failed, 0, "%s: %v", pattern, doc.Mesh.Matrices[0].Pairs)
		assert.Equal(t, all, 12)
		assert.Equal(t, seen, all)
		assert.Equal(t, doc.Mesh.AtOnce, map[string]int{result.Pairs: 2, result.Incast: 3}[pattern])
		assert.Equal(t, doc.Mesh.Steps, len(stepsOf(pattern, 4, 0)))
		for i := 1; i < all; i++ { // sorted by the hosts, in their order
			a, b := doc.Mesh.Matrices[0].Pairs[i-1], doc.Mesh.Matrices[0].Pairs[i]
			place := func(p result.Pair) int { return 4*slices.Index(hosts, p.From) + slices.Index(hosts, p.To) }
			assert.Assert(t, place(a) < place(b), "%s: %v before %v", pattern, a, b)
		}
	}
}

// slowHost accepts orders of a mesh, and takes a time to be ready for each. It reports when it was
// ready and when msgGo came, and answers each order with an error.
func slowHost(t *testing.T, setup time.Duration) (address string, ready, begun <-chan time.Time) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(func() { ln.Close() })
	readies, begins := make(chan time.Time, 10), make(chan time.Time, 10)
	serve := func(conn net.Conn) {
		k := newControl(conn, "client")
		defer k.close()
		k.limit.Store(clientLimit)
		k.send(message{Kind: msgWelcome, Magic: magic, Protocol: Protocol, Facts: raw(result.Facts{})})
		for {
			m, err := k.expectFor(patience, t.Context().Done(), msgMesh, msgHello, msgBye)
			switch {
			case err != nil || m.Kind == msgBye:
				return
			case m.Kind == msgMesh && m.Together:
				time.Sleep(setup)
				readies <- time.Now()
				k.send(message{Kind: msgReady})
				if _, err := k.expectFor(patience, t.Context().Done(), msgGo); err != nil {
					return
				}
				begins <- time.Now()
				k.send(message{Kind: msgMesh, Text: "this one does not measure"})
			}
		}
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return ln.Addr().String(), readies, begins
}

// In each step, the pairs begin when the last of them is connected.
func TestMeshBeginsTogether(t *testing.T) {
	const setup = 200 * time.Millisecond
	a, _, beginsA := slowHost(t, 0)
	b, readyB, _ := slowHost(t, setup)
	c, readyC, _ := slowHost(t, setup)
	m := meshOf(a, b, c)
	m.Pattern, m.Plan.Cases = result.Incast, m.Plan.Cases[1:]
	second := m.Plan.Cases[0]
	second.Size = 4096
	m.Plan.Cases = append(m.Plan.Cases, second)
	for i := range m.Plan.Cases {
		m.Plan.Cases[i].Iters, m.Plan.Cases[i].Duration = 0, result.Seconds(10*time.Millisecond)
		m.Plan.Cases[i].Complete()
	}
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	for range m.Plan.Cases { // the first step is that into a
		<-readyB
		<-readyC
	}
	for _, other := range []<-chan time.Time{readyC, readyB} { // of the steps into b and into c
		for i := range m.Plan.Cases {
			begun, ready := <-beginsA, <-other
			assert.Assert(t, !begun.Before(ready), "case %d began %v before the other pair was ready", i, ready.Sub(begun))
		}
	}
	for i := range m.Plan.Cases {
		assert.Equal(t, doc.Mesh.Matrices[i].Pairs[0].Error, "this one does not measure")
	}
}

// Pairs that begin together wait only a bounded time for a pair whose host does not answer.
func TestMeshTogether(t *testing.T) {
	ofNoDevice(t)
	t.Parallel()
	hosts := append(manyServers(t, 3), hanging(t))
	m := meshOf(hosts...)
	m.Pattern, m.Timeout, m.Plan.Cases = result.Incast, 20*time.Second, m.Plan.Cases[1:]
	c := &m.Plan.Cases[0]
	c.Iters, c.Duration = 0, result.Seconds(10*time.Millisecond)
	c.Complete()
	begun := time.Now()
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	for _, p := range doc.Mesh.Matrices[0].Pairs {
		broken := p.From == hosts[3] || p.To == hosts[3]
		assert.Assert(t, broken == (p.Run == nil), "%v", p)
	}
	assert.Assert(t, time.Since(begun) < 2*time.Minute)
}

// A host that hangs is given up after patienceHosts others, and named. All other pairs are
// measured.
func TestMeshGivesUp(t *testing.T) {
	ofNoDevice(t)
	t.Parallel()
	hosts := append(manyServers(t, 6), hanging(t), hanging(t))
	m := meshOf(hosts...)
	m.Plan.Cases, m.Timeout = m.Plan.Cases[:1], 5*time.Second // a pair that works meets it on a slow machine too
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	waited := map[string]int{}
	for _, p := range doc.Mesh.Matrices[0].Pairs {
		bad := ""
		for _, h := range hosts[6:] {
			if p.From == h || p.To == h {
				bad = h
			}
		}
		assert.Assert(t, (bad != "") == (p.Run == nil), "%v", p)
		if strings.HasPrefix(p.Error, "gave up") || strings.HasPrefix(p.Error, "no message") {
			waited[bad]++
		}
	}
	for i, h := range doc.Mesh.Hosts {
		assert.Equal(t, strings.HasPrefix(h.Error, "given up: "+h.Address), i >= 6, "%v", h)
		assert.Assert(t, waited[h.Address] <= patienceHosts+1, "%d waits for %s", waited[h.Address], h.Address)
	}
}

// If one of 16 hosts does not listen, it is named, and does not delay the others.
func TestMeshDeadHost(t *testing.T) {
	if testing.Short() {
		t.Skip("240 measurements")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	dead := ln.Addr().String()
	ln.Close()
	hosts := append(manyServers(t, 15), dead)
	m := meshOf(hosts...)
	m.Plan.Cases = m.Plan.Cases[:1]
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	failed, all := doc.Mesh.Failed()
	assert.Equal(t, all, 16*15)
	assert.Equal(t, failed, 2*15)
	assert.Assert(t, strings.Contains(doc.Mesh.Hosts[15].Error, "no datperf server to be reached"))
}

// A mesh waits for a server that cannot be reached yet, but only for a bounded time.
func TestMeshWait(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	late := ln.Addr().String()
	ln.Close()
	a := meshServer(t, &Server{DialPeer: dialPeer})
	m := meshOf(a, late)
	m.Plan.Cases, m.Wait = m.Plan.Cases[:1], 300*time.Millisecond
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	failed, _ := doc.Mesh.Failed()
	assert.Equal(t, failed, 2)
	s := &Server{Setup: Setup{Device: victim()}, DialPeer: dialPeer}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() {
		ln, err := net.Listen("tcp", late)
		if err == nil {
			err = s.Serve(ctx, ln)
		}
		served <- err
	})
	m = meshOf(a, late)
	m.Plan.Cases, m.Wait = m.Plan.Cases[:1], time.Minute
	doc, err = m.Run(t.Context())
	assert.NilError(t, err)
	failed, _ = doc.Mesh.Failed()
	assert.Equal(t, failed, 0, "%v", doc.Mesh.Matrices[0].Pairs)
	stop()
	assert.NilError(t, <-served)
}
