package rdmanet

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestPendingLate has operations that the device never ends: once their context has ended, the
// connection is broken after settleTime, not before. Close ends them too.
func TestPendingLate(t *testing.T) {
	for name, end := range map[string]func(c *Conn, cancel func()){
		"context": func(_ *Conn, cancel func()) { cancel() },
		"close":   func(c *Conn, _ func()) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			lc := ListenConfig{Device: "mem0"}
			l, err := lc.Listen(t.Context(), Network, ":0")
			assert.NilError(t, err)
			defer l.Close()
			c, err := (&Dialer{Device: "mem0"}).Dial(t.Context(), Network, l.Addr().String())
			assert.NilError(t, err)
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.mu.Lock()
			p := &Pending{c: c, last: 1 << 40}
			c.pin()
			p.watch(ctx)
			c.out.pending = append(c.out.pending, p)
			c.mu.Unlock()
			waited := make(chan error, 1)
			go func() { waited <- p.Wait() }()
			began := time.Now()
			end(c, cancel)
			select {
			case err = <-waited:
			case <-time.After(hostilePatience):
				t.Fatal("Wait does not return")
			}
			if name == "close" { // which the peer has answered, and that ends the connection
				assert.Assert(t, err != nil)
				return
			}
			assert.Assert(t, time.Since(began) >= settleTime)
			assert.ErrorIs(t, err, syscall.ETIMEDOUT)
			assert.ErrorIs(t, err, p.expired)
			_, err = c.Read(make([]byte, 1)) // the caller's time is not that of others
			assert.Assert(t, errors.Is(err, syscall.ETIMEDOUT) && !errors.Is(err, p.expired), "%v", err)
		})
	}
}

// TestDeadlineOfOneCall: a call whose deadline has passed returns the error of the deadline, even
// if the device then never completes its operations and the connection breaks. Other calls, and
// later ones, return the error of the dead peer.
func TestDeadlineOfOneCall(t *testing.T) {
	client, _ := ends(t)
	assert.NilError(t, client.SetWriteDeadline(time.Now()))
	read := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		read <- err
	}()
	client.mu.Lock()
	client.pin()
	err := client.settle(1 << 40)
	client.unpin()
	client.mu.Unlock()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	for range 2 {
		select {
		case err = <-read:
		case <-time.After(hostilePatience):
			t.Fatal("Read does not return")
		}
		assert.Assert(t, errors.Is(err, syscall.ETIMEDOUT) && !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
		var late net.Error
		assert.Assert(t, errors.As(err, &late) && late.Timeout(), "%v", err)
		_, err = client.Read(make([]byte, 1))
		read <- err
	}
}

// TestBatchLeavesRequests: a batch leaves 5 of the 31 requests for the stream. It waits while there
// are no more. If its context ends before it has posted any, the connection goes on.
func TestBatchLeavesRequests(t *testing.T) {
	client, server := ends(t)
	far, err := server.NewRegion(make([]byte, 8), PeerWrites)
	assert.NilError(t, err)
	near, err := client.NewRegion(make([]byte, 8), 0)
	assert.NilError(t, err)
	start := func(inFlight uint64, limit time.Duration) error {
		client.mu.Lock()
		client.out.requests = client.out.done + inFlight // these never complete; one behind them does
		client.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		b := client.NewBatch()
		b.Write(far.Remote(), near, 0)
		return b.Do(ctx)
	}
	assert.ErrorIs(t, start(26, 50*time.Millisecond), context.DeadlineExceeded)
	assert.NilError(t, start(25, hostilePatience))
}

// TestInTime: operations that end after the time of their caller, but within settleTime, have
// succeeded, and the connection goes on. If the connection breaks within that time, the error is
// that of the connection.
func TestInTime(t *testing.T) {
	client, _ := ends(t)
	late, early := &Pending{c: client, expired: context.Canceled}, &Pending{c: client}
	client.mu.Lock()
	client.pins += 2
	late.end(nil)
	early.end(syscall.ECONNRESET)
	next := client.out.requests + 1
	client.mu.Unlock()
	assert.NilError(t, late.err)
	assert.Equal(t, early.err, syscall.ECONNRESET)
	assert.NilError(t, client.SetWriteDeadline(time.Now()))
	settled := make(chan error, 1)
	go func() {
		client.mu.Lock()
		defer client.mu.Unlock()
		settled <- client.settle(next)
	}()
	for i := range 3 { // each wakes it once more
		until(t, "the call waits", func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			waits := client.writable.n+client.writable.leads > 0
			if waits && i == 2 {
				client.out.done = next
			}
			client.wake(&client.writable)
			return waits
		})
		time.Sleep(10 * time.Millisecond)
	}
	assert.NilError(t, <-settled)
	time.Sleep(settleTime + 100*time.Millisecond)
	client.mu.Lock()
	defer client.mu.Unlock()
	assert.Equal(t, client.state, stateOpen)
}
