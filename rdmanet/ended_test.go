package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(hostilePatience); !holds(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), what)
	}
}

// blockedOf returns the blocked count of a connection's dispatcher.
func blockedOf(d *dispatcher) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked
}

// TestMeet: a connection sends by immediate data if both devices support it, and writes into the
// ring of the peer's hello.
func TestMeet(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, theirs := range []bool{false, true} {
			c := &Conn{pool: &dispatchers{adapter: &adapter{immediate: own}}}
			h := hello{immediate: theirs, slots: minSlots, ring: remoteRing{addr: 1, key: 2, size: minRing}}
			c.meet(h)
			assert.Equal(t, c.out.imm, own && theirs)
			assert.Equal(t, c.peer, h)
			assert.Equal(t, c.out.limit, uint64(minRing))
			assert.Equal(t, c.out.window, uint64(minRing))
		}
	}
	client, server := ends(t)
	assert.Assert(t, client.hello().immediate && client.out.imm && server.out.imm) // mem0 has immediate data
}

// TestReport: the result of a connection is reported once: after the event that is being handled,
// or at once if there is none.
func TestReport(t *testing.T) {
	got := make(chan error, 2)
	ready := func(_ *Conn, err error) { got <- err }
	first := errors.New("first")
	c := &Conn{ready: ready, handling: true}
	c.report(first)
	c.report(nil)
	assert.Assert(t, c.isReady != nil)
	assert.Equal(t, len(got), 0)
	c.isReady()
	assert.Equal(t, <-got, first)
	c = &Conn{ready: ready}
	c.report(first)
	c.report(nil)
	assert.Assert(t, c.isReady == nil)
	assert.Equal(t, <-got, first)
	time.Sleep(time.Millisecond)
	assert.Equal(t, len(got), 0)
}

// TestBroken: a connection whose dispatcher has no more events ends with the reason, and reports
// it to a Dial or a Listener that still waits for it.
func TestBroken(t *testing.T) {
	client, _ := ends(t)
	reported := make(chan error, 1)
	client.mu.Lock()
	client.ready = func(_ *Conn, err error) { reported <- err }
	client.mu.Unlock()
	gone := errors.New("the device has gone")
	client.broken(gone)
	assert.Equal(t, <-reported, gone)
	_, err := client.Read(make([]byte, 1))
	assert.ErrorIs(t, err, gone)
}

// TestFailed: if a connection has failed, the peer gets the end although nobody closes the
// connection. Data that was held back no longer counts as a blocked call.
func TestFailed(t *testing.T) {
	client, server := ends(t)
	eventually(t, "nobody is blocked", func() bool { return blockedOf(client.d) == 0 })
	client.mu.Lock()
	client.out.held = true
	client.d.block()
	client.fail(errors.New("failed"))
	client.mu.Unlock()
	assert.Equal(t, blockedOf(client.d), 0)
	assert.NilError(t, server.SetReadDeadline(time.Now().Add(hostilePatience)))
	_, err := server.Read(make([]byte, 1))
	assert.Assert(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
}

// TestClosedIsForgotten: a connection that has lingered after its Close leaves no handler, no
// blocked call and, as the last one of a dispatcher, no dispatcher behind.
func TestClosedIsForgotten(t *testing.T) {
	client, server := ends(t)
	pool := client.pool
	pool.adapter.use() // the adapter must outlive the connections
	defer pool.adapter.close()
	d, ep := client.d, client.ep
	other, err := pool.get(false)
	assert.NilError(t, err)
	assert.Equal(t, other, d)
	_, err = client.Write(make([]byte, 100_000)) // more than fits into the first ring: Close lingers
	assert.NilError(t, err)
	assert.NilError(t, client.Close())
	for err == nil {
		_, err = server.Read(make([]byte, 4096))
	}
	assert.NilError(t, server.Close())
	eventually(t, "the handler is still there", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.handlers[ep] == nil
	})
	eventually(t, "somebody is still blocked", func() bool { return blockedOf(d) == 0 })
	users := func() (n int) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return d.users
	}
	eventually(t, "the connection still uses the dispatcher", func() bool { return users() == 1 })
	pool.put(d)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	assert.Equal(t, len(pool.list), 0)
}

// TestEnded: a connection whose peer has vanished has the errors of TCP.
func TestEnded(t *testing.T) {
	for _, e := range []struct {
		cause   error
		is      syscall.Errno
		timeout bool
	}{
		{nil, syscall.ECONNRESET, false},
		{syscall.ECONNRESET, syscall.ECONNRESET, false},
		{syscall.EIO, syscall.ECONNRESET, false},
		{syscall.ETIMEDOUT, syscall.ETIMEDOUT, true},
		{syscall.EHOSTUNREACH, syscall.EHOSTUNREACH, false},
	} {
		cause := e.cause
		if cause != nil {
			cause = fmt.Errorf("broken: %w", cause)
		}
		err := error(&net.OpError{Op: "read", Err: ended(cause)})
		assert.ErrorIs(t, err, e.is)
		assert.Equal(t, errors.Is(err, syscall.ECONNRESET), e.is == syscall.ECONNRESET)
		assert.Equal(t, err.(net.Error).Timeout(), e.timeout)
		if cause != nil {
			assert.ErrorIs(t, err, e.cause)
		}
	}
}
