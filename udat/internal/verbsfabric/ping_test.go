package verbsfabric

import (
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// pingPair connects two open devices, whose connections can ping each other.
func pingPair(t *testing.T) (a, b *conn) {
	t.Helper()
	near, far := openDevice(t), openDevice(t)
	if near.dev.iwarp {
		t.Skip("iWARP needs no pings")
	}
	return connected(t, near, far)
}

// connected is a connection of two open devices.
func connected(t *testing.T, near, far *opened) (a, b *conn) {
	t.Helper()
	l, requests := far.listen()
	active, events := near.connect(l.Addr())
	established := make(chan fabric.ConnEvent, 16)
	passive, err := receive(t, requests).Accept(far.newQP(), fabric.AcceptParams{},
		func(ev fabric.ConnEvent) { established <- ev })
	assert.NilError(t, err)
	assert.Equal(t, receive(t, events).Kind, fabric.EventEstablished)
	assert.Equal(t, receive(t, established).Kind, fabric.EventEstablished)
	t.Cleanup(func() {
		assert.NilError(t, active.Close())
		assert.NilError(t, passive.Close())
	})
	return active.(*conn), passive.(*conn)
}

// pinged pings the peer and returns its answer.
func (c *conn) pinged(t *testing.T) fabric.PingAnswer {
	t.Helper()
	answer := make(chan fabric.PingAnswer, 1)
	c.Ping(func(a fabric.PingAnswer) { answer <- a })
	return receive(t, answer)
}

// TestPing: the devices of both ends answer while they have the connection. A host without the
// peer's listener, as after a restart, answers only for peers that have named none.
func TestPing(t *testing.T) {
	a, b := pingPair(t)
	assert.Assert(t, a.pingPort != 0 && b.pingPort != 0)
	for range 3 {
		assert.Equal(t, a.pinged(t), fabric.PingAlive)
		assert.Equal(t, b.pinged(t), fabric.PingAlive)
	}
	// b has another connection, then this one.
	for _, answer := range []fabric.PingAnswer{fabric.PingGone, fabric.PingAlive} {
		b.mu.Lock()
		b.peerQPN ^= 1
		b.mu.Unlock()
		assert.Equal(t, a.pinged(t), answer)
	}
	assert.NilError(t, b.dev.pinged.closeIDs())
	assert.Equal(t, a.pinged(t), fabric.PingGone)
	assert.Equal(t, b.pinged(t), fabric.PingAlive)
	a.mu.Lock()
	a.endPings()
	a.pingPort = 0
	a.mu.Unlock()
	assert.Equal(t, a.pinged(t), fabric.PingAlive)
}

// TestPingsOfMany: a device that has lost many connections says so to each that asks once, though
// the kernel queues few pings.
func TestPingsOfMany(t *testing.T) {
	near, far := openDevice(t), openDevice(t)
	if near.dev.iwarp {
		t.Skip("iWARP needs no pings")
	}
	var conns []*conn
	for range 100 {
		a, b := connected(t, near, far)
		conns = append(conns, a)
		b.mu.Lock()
		b.peerQPN ^= 1 << 23
		b.mu.Unlock()
	}
	var answers [fabric.PingBusy + 1]atomic.Int32
	for _, c := range conns {
		c.Ping(func(a fabric.PingAnswer) { answers[a].Add(1) })
	}
	for until := time.Now().Add(patience); answers[fabric.PingGone].Load() < 100; time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "%d connections have heard", answers[fabric.PingGone].Load())
	}
	assert.Equal(t, answers[fabric.PingAlive].Load(), int32(0))
	// Those that waited for their turn knew after the first ping that somebody answers.
	assert.Assert(t, answers[fabric.PingBusy].Load() > 0)
}

// TestPingsEnd: connections that end take their questions back, answered or not, and the last one
// the pings of the device.
func TestPingsEnd(t *testing.T) {
	a, b := pingPair(t)
	goOn := make(chan struct{})
	defer close(goOn)
	b.dev.post(func() { <-goOn })
	for range 2 * pingBacklog { // the kernel answers some
		a.Ping(func(fabric.PingAnswer) {})
		time.Sleep(pingPatience + 10*time.Millisecond)
	}
	d := a.dev
	left := func() (pingers, pings int) {
		d.pingMu.Lock()
		defer d.pingMu.Unlock()
		for _, p := range d.pingers {
			pings += len(p.pings)
		}
		return len(d.pingers), pings
	}
	pingers, pings := left()
	assert.Equal(t, pingers, 1)
	assert.Assert(t, pings > 0 && pings <= 2*pingBacklog, "%d pings", pings)
	assert.NilError(t, a.Disconnect())
	pingers, _ = left()
	assert.Equal(t, pingers, 0)
}

// TestPingStopped: the kernel answers for a device that handles no events, as in a stopped process,
// all pings but a few.
func TestPingStopped(t *testing.T) {
	a, b := pingPair(t)
	goOn := make(chan struct{})
	defer close(goOn)
	b.dev.post(func() { <-goOn })
	var answers atomic.Int32
	for until := time.Now().Add(patience); answers.Load() < 3; time.Sleep(100 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "%d answers", answers.Load())
		a.Ping(func(answer fabric.PingAnswer) {
			if answer == fabric.PingBusy {
				answers.Add(1)
			}
		})
	}
}
