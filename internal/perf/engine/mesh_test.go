package engine

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// meshServer starts a server that measures to others, and returns its address.
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

// hanging answers the first hello like a server, and nothing more.
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

// A mesh measures each pair in both orders. A server that was not told that it may refuses, and a
// host that is not there is a cell with the reason; the others are measured.
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
			case p.From == refusing:
				want = "without --allow-mesh"
			case p.From == gone || p.To == gone:
				want = "no datperf server to be reached"
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

// A host that hangs costs the time limit, and is a cell with the reason.
func TestMeshHangs(t *testing.T) {
	a, silent := meshServer(t, &Server{DialPeer: dialPeer}), hanging(t)
	m := meshOf(a, silent)
	m.Plan.Cases, m.Timeout = m.Plan.Cases[:1], time.Second
	doc, err := m.Run(t.Context())
	assert.NilError(t, err)
	pairs := doc.Mesh.Matrices[0].Pairs
	assert.Equal(t, pairs[0].Error, "gave up after 1s (--pair-timeout)")
	assert.Equal(t, pairs[1].Error, "no message from the server for 1s")
}

// A mesh that is told to finish keeps what it has, and fills the rest with the reason.
func TestMeshFinish(t *testing.T) {
	a, b := meshServer(t, &Server{DialPeer: dialPeer}), meshServer(t, &Server{DialPeer: dialPeer})
	m := meshOf(a, b)
	finish := make(chan struct{})
	m.Finish = finish
	m.Watch = func(n, of int, _ *result.Pair) {
		assert.Equal(t, of, 4)
		if n == 1 {
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

// When the client of an order goes away the server ends the measurement, and has its memory back.
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
