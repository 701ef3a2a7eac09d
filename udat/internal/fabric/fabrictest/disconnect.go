package fabrictest

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// Disconnect flushes this end's queue pair and notifies the peer. The peer's queue pair stays
// connected until the peer disconnects too.
func testDisconnect(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	for _, active := range []bool{true, false} {
		a, b := n.pair(settings{})
		if !active {
			a, b = b, a
		}
		for i := range 4 {
			a.recv(uint64(i), 0, 8)
			b.recv(uint64(i), 0, 8)
		}
		assert.NilError(t, a.conn.Disconnect())
		assert.NilError(t, a.conn.Disconnect())
		flushed(t, a.rcq, 4)
		b.event(fabric.EventDisconnected)
		if n.dev.Attr().PeerToPeer { // otherwise the iWARP driver has ended the queue pair by itself
			awaitNone(t, b.rcq)
		}
		assert.NilError(t, b.conn.Disconnect())
		flushed(t, b.rcq, 4)
		a.event(fabric.EventDisconnected)
		assert.NilError(t, a.conn.Disconnect())
		assert.NilError(t, b.conn.Disconnect())
		a.noEvent()
		b.noEvent()
		assert.NilError(t, a.conn.Close())
		assert.NilError(t, b.conn.Close())
		assert.ErrorIs(t, a.conn.Close(), fabric.ErrClosed)
		assert.ErrorIs(t, a.conn.Disconnect(), fabric.ErrClosed)
	}
}

func testDisconnectBoth(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	for range 10 {
		a, b := n.pair(settings{})
		a.recv(0, 0, 8)
		b.recv(0, 0, 8)
		ends := []*end{a, b}
		together(2, func(i int) { ends[i].conn.Disconnect() })
		flushed(t, a.rcq, 1)
		flushed(t, b.rcq, 1)
		together(2, func(i int) { ends[i].conn.Close() })
	}
}

// A call of Disconnect before the peer has answered ends the attempt to connect. The handler still
// receives exactly one outcome.
func testDisconnectAttempt(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	s := n.listen()
	a, b := n.newEnd(settings{}), n.newEnd(settings{})
	a.recv(0, 0, 8)
	a.connect(s, fabric.ConnectParams{})
	r := s.request()
	assert.NilError(t, a.conn.Disconnect())
	flushed(t, a.rcq, 1)
	time.Sleep(grace)
	b.accept(r, fabric.AcceptParams{})
	a.event(fabric.EventFailed)
	b.failAccept()
	a.noEvent()
}

// If the peer goes away in the middle of a transfer, every work request still completes once.
func testPeerGone(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.iwarp() {
		t.Skip("iWARP does not wait for receives")
	}
	const work = 10
	a, b := n.pair(settings{})
	b.recv(0, 0, 8)
	for i := range work {
		a.send(fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 8)
		a.recv(uint64(i), 0, 8)
	}
	awaitOne(t, a.scq, 0, fabric.StatusSuccess)
	assert.NilError(t, b.conn.Close())
	assert.NilError(t, b.qp.Close())
	a.event(fabric.EventDisconnected)
	assert.NilError(t, a.conn.Disconnect())
	for i, wc := range complete(t, a.scq, work-1) {
		assert.Equal(t, wc.ID, uint64(i+1))
		assert.Assert(t, wc.Status != fabric.StatusSuccess)
	}
	flushed(t, a.rcq, work)
}

// Close is possible at any time; afterwards the handler is not called.
func testCloseInEveryState(t *testing.T, cfg Config) {
	run := func(name string, f func(t *testing.T, n *node, s *service, a, b *end)) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, cfg, fabric.Options{})
			s, a, b := n.listen(), n.newEnd(settings{}), n.newEnd(settings{})
			a.recv(0, 0, 8)
			a.connect(s, fabric.ConnectParams{})
			f(t, n, s, a, b)
		})
	}
	run("at once", func(t *testing.T, n *node, s *service, a, b *end) {
		assert.NilError(t, a.conn.Close())
		a.noEvent()
		select {
		case r := <-s.requests:
			assert.NilError(t, r.Reject(nil, false))
		default:
		}
		if wcs, err := await(a.rcq, 1, grace); err == nil && n.iwarp() {
			assert.Equal(t, wcs[0].Status, fabric.StatusFlush) // the driver had the queue pair already
			return
		}
		awaitNone(t, a.rcq)
		n.join(a, b) // the attempt has left the queue pair as it was
	})
	run("requested", func(t *testing.T, n *node, s *service, a, b *end) {
		r := s.request()
		assert.NilError(t, a.conn.Close())
		assert.NilError(t, r.Reject(nil, false))
		a.noEvent()
	})
	run("accepted", func(t *testing.T, n *node, s *service, a, b *end) {
		b.accept(s.request(), fabric.AcceptParams{})
		assert.NilError(t, b.conn.Close())
		select { // rejected, or established and ended, depending on how far the reply came
		case <-a.events:
		case <-time.After(patience):
			t.Fatal("the active end hears nothing")
		}
	})
	run("established", func(t *testing.T, n *node, s *service, a, b *end) {
		b.accept(s.request(), fabric.AcceptParams{})
		a.event(fabric.EventEstablished)
		b.event(fabric.EventEstablished)
		assert.NilError(t, a.conn.Close())
		flushed(t, a.rcq, 1)
		b.event(fabric.EventDisconnected)
		assert.NilError(t, b.conn.Close())
		a.noEvent()
		b.noEvent()
	})
	run("disconnecting", func(t *testing.T, n *node, s *service, a, b *end) {
		b.accept(s.request(), fabric.AcceptParams{})
		a.event(fabric.EventEstablished)
		b.event(fabric.EventEstablished)
		assert.NilError(t, a.conn.Disconnect())
		assert.NilError(t, a.conn.Close())
		b.event(fabric.EventDisconnected)
		select {
		case ev := <-a.events: // the handler may have begun before Close
			assert.Equal(t, ev.Kind, fabric.EventDisconnected)
		case <-time.After(grace):
		}
		a.noEvent()
	})
	run("with its queue pair gone", func(t *testing.T, n *node, s *service, a, b *end) {
		b.accept(s.request(), fabric.AcceptParams{})
		a.event(fabric.EventEstablished)
		b.event(fabric.EventEstablished)
		assert.NilError(t, a.qp.Close())
		assert.NilError(t, a.conn.Disconnect())
		b.event(fabric.EventDisconnected)
		assert.NilError(t, a.conn.Close())
	})
	run("attempt with its queue pair gone", func(t *testing.T, n *node, s *service, a, b *end) {
		r := s.request()
		assert.NilError(t, a.qp.Close())
		b.accept(r, fabric.AcceptParams{})
		if n.iwarp() {
			a.event(fabric.EventUnreachable) // the driver used the queue pair; the attempt ends because TCP gets no answer
		} else {
			a.event(fabric.EventFailed)
		}
		b.failAccept()
	})
}
