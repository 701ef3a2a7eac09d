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

// answered pings the peer, waits until the ping is over, and reports whether it was answered.
func (c *conn) answered(t *testing.T) bool {
	t.Helper()
	var on atomic.Bool
	c.Ping(func() { on.Store(true) })
	c.mu.Lock()
	p := c.pings[len(c.pings)-1]
	c.mu.Unlock()
	for until := time.Now().Add(patience); !p.over(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "the ping has no end")
	}
	for until := time.Now().Add(time.Second); !on.Load() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	return on.Load()
}

// TestPing: the devices of both ends answer while they have the connection. A host without the
// peer's listener, as after a restart, answers only for peers that have named none.
func TestPing(t *testing.T) {
	a, b := pingPair(t)
	assert.Assert(t, a.pingPort != 0 && b.pingPort != 0)
	for range 3 {
		assert.Assert(t, a.answered(t))
		assert.Assert(t, b.answered(t))
	}
	for _, same := range []bool{false, true} { // b has another connection, then this one
		b.mu.Lock()
		b.peerQPN ^= 1
		b.mu.Unlock()
		assert.Equal(t, a.answered(t), same)
	}
	assert.NilError(t, b.dev.pinged.closeIDs())
	assert.Assert(t, !a.answered(t))
	assert.Assert(t, b.answered(t))
	a.pingPort = 0
	assert.Assert(t, a.answered(t))
}

// TestPingStopped: a device that handles no events, as in a stopped process, answers all pings but
// a few.
func TestPingStopped(t *testing.T) {
	a, b := pingPair(t)
	goOn := make(chan struct{})
	defer close(goOn)
	b.dev.post(func() { <-goOn })
	var answers atomic.Int32
	for until := time.Now().Add(patience); answers.Load() < 3; time.Sleep(100 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "%d answers", answers.Load())
		a.Ping(func() { answers.Add(1) })
	}
}
