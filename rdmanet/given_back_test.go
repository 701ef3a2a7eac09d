package rdmanet

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

// until waits until is returns true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hostilePatience); !is(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(end), what)
	}
}

// isFreed reports whether a connection has given back all that it had: its zone can be freed only
// when nothing is left in it.
func isFreed(t *testing.T, c *Conn) bool {
	if !errors.Is(c.ep.Disconnect(udat.CloseAbrupt), udat.ErrInvalidHandle) {
		return false // free has not begun
	}
	c.rmu.Lock() // free holds it until it is over
	defer c.rmu.Unlock()
	l, err := c.pool.adapter.AllocLMR(c.pz, 4096, privatePriv)
	if err == nil {
		assert.NilError(t, l.Free())
	}
	return err != nil
}

// TestAllGivenBack ends a connection in each state that its memory may have. No memory stays
// registered, and no timer keeps running.
func TestAllGivenBack(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, c, peer *Conn){
		"new":      func(*testing.T, *Conn, *Conn) {},
		"deadline": func(_ *testing.T, c, _ *Conn) { c.SetDeadline(time.Now().Add(time.Hour)) },
		"regions": func(t *testing.T, c, _ *Conn) {
			for range 3 {
				_, err := c.NewRegion(make([]byte, 4096), PeerReads)
				assert.NilError(t, err)
			}
		},
		"grown": func(t *testing.T, c, peer *Conn) {
			for range 2 {
				go c.Write(make([]byte, 50_000))
				_, err := io.ReadFull(peer, make([]byte, 50_000))
				assert.NilError(t, err)
				go peer.Write(make([]byte, 50_000))
				_, err = io.ReadFull(c, make([]byte, 50_000))
				assert.NilError(t, err)
			}
		},
		"growing, of which nothing is read": func(t *testing.T, c, peer *Conn) {
			_, err := peer.Write(make([]byte, 50_000))
			assert.NilError(t, err)
			until(t, "the old memory is in use", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.in.ring.old.lmr != nil
			})
		},
		"offered": func(t *testing.T, c, _ *Conn) {
			m, err := c.newMemory(1<<16, udat.PrivRemoteWrite)
			assert.NilError(t, err)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.in.larger, c.in.growth = m, growthOffered
		},
	} {
		for _, end := range []string{"Close", "peer", "abort"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				peer, c := ends(t)
				prepare(t, c, peer)
				switch end {
				case "Close":
					assert.NilError(t, c.Close())
				case "peer":
					assert.NilError(t, peer.Close())
					assert.NilError(t, c.Close())
				case "abort":
					c.abort(io.ErrClosedPipe)
				}
				peer.Close()
				for who, x := range map[string]*Conn{"this end": c, "the peer": peer} {
					until(t, who+" has something registered", func() bool { return isFreed(t, x) })
					x.mu.Lock()
					assert.Assert(t, x.readEnd.at.IsZero() && x.writeEnd.at.IsZero(), "%s has a deadline", who)
					assert.Equal(t, x.pins, 0, who)
					x.mu.Unlock()
				}
			})
		}
	}
}

// TestUsesEnd: calls, whether they succeed or not, use the connection and its regions while they
// run, and not after.
func TestUsesEnd(t *testing.T) {
	client, server := ends(t)
	const size = 1 << 20
	far, err := server.NewRegion(make([]byte, size), accesses)
	assert.NilError(t, err)
	near, err := client.NewRegion(make([]byte, size), 0)
	assert.NilError(t, err)
	gone, err := client.NewRegion(make([]byte, size), 0)
	assert.NilError(t, err)
	assert.NilError(t, gone.Close())
	word, err := far.Remote().Slice(8, 8)
	assert.NilError(t, err)
	var old uint64
	uses := func() (pins, regions int) {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.pins, near.uses
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"batch": func() error {
			b := client.NewBatch()
			for range 40 { // more than are in flight at a time
				b.Read(near, 0, far.Remote())
				b.Write(far.Remote(), near, 0)
				b.FetchAdd(word, 1, &old)
			}
			return b.Do(t.Context())
		},
		"refused batch": func() error {
			b := client.NewBatch()
			b.FetchAdd(word, 1, &old)
			for range 3 {
				b.Read(near, 0, far.Remote())
			}
			b.Read(gone, 0, far.Remote())
			b.Read(near, 0, far.Remote())
			if err := b.Do(t.Context()); !errors.Is(err, net.ErrClosed) {
				return errors.Join(err, errors.New("a batch with a closed region"))
			}
			return nil
		},
		"late batch": func() error {
			b := client.NewBatch()
			b.Read(near, 0, far.Remote())
			if err := b.Do(ended); !errors.Is(err, context.Canceled) {
				return errors.Join(err, errors.New("a batch whose context has ended"))
			}
			return nil
		},
		"batch cut short": func() error {
			b := client.NewBatch()
			for range 100_000 {
				b.Read(near, 0, far.Remote())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if _, err := b.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return errors.Join(err, errors.New("a batch that is too long"))
			}
			return nil
		},
		"write region": func() error {
			sent := make(chan error, 1)
			go func() {
				_, err := client.WriteRegion(near, 0, 4096)
				sent <- err
			}()
			_, err := io.ReadFull(server, make([]byte, 4096))
			return errors.Join(err, <-sent)
		},
	} {
		assert.NilError(t, call(), name)
		pins, regions := uses()
		assert.Equal(t, pins, 0, name)
		assert.Equal(t, regions, 0, name)
	}
	b := client.NewBatch()
	b.Read(near, 0, far.Remote())
	p, err := b.Start(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, p.Wait())
	assert.NilError(t, near.Close())
	assert.Equal(t, len(client.regions), 0)
}

// TestErrorsOfCalls: each call of a closed connection returns a *net.OpError with the call's name
// and both addresses.
func TestErrorsOfCalls(t *testing.T) {
	client, server := ends(t)
	far, err := server.NewRegion(make([]byte, 8), accesses)
	assert.NilError(t, err)
	near, err := client.NewRegion(make([]byte, 8), 0)
	assert.NilError(t, err)
	n, err := client.Read(nil)
	assert.Assert(t, n == 0 && err == nil, "%d, %v", n, err)
	var old uint64
	batch := func() *Batch {
		b := client.NewBatch()
		b.FetchAdd(far.Remote(), 1, &old)
		return b
	}
	assert.NilError(t, client.Close())
	until(t, "the connection ends", func() bool { return isFreed(t, client) })
	messages := NewMessages(client)
	for name, call := range map[string]struct {
		op string
		do func() error
	}{
		"Read":             {"read", func() error { _, err := client.Read(make([]byte, 1)); return err }},
		"Read of nothing":  {"read", func() error { _, err := client.Read(nil); return err }},
		"WriteTo":          {"read", func() error { _, err := client.WriteTo(io.Discard); return err }},
		"RecvMsg":          {"read", func() error { _, err := messages.RecvMsg(t.Context(), nil); return err }},
		"ReadRemote":       {"read", func() error { return client.ReadRemote(t.Context(), near, 0, far.Remote()) }},
		"Write":            {"write", func() error { _, err := client.Write([]byte("x")); return err }},
		"Write of nothing": {"write", func() error { _, err := client.Write(nil); return err }},
		"ReadFrom":         {"write", func() error { _, err := client.ReadFrom(strings.NewReader("x")); return err }},
		"SendMsg":          {"write", func() error { return messages.SendMsg(t.Context(), nil) }},
		"WriteRegion":      {"write", func() error { _, err := client.WriteRegion(near, 0, 8); return err }},
		"WriteRemote":      {"write", func() error { return client.WriteRemote(t.Context(), far.Remote(), near, 0) }},
		"Start":            {"batch", func() error { _, err := batch().Start(t.Context()); return err }},
		"Do":               {"batch", func() error { return batch().Do(t.Context()) }},
		"FetchAdd": {"fetch and add", func() error {
			_, err := client.FetchAdd(t.Context(), far.Remote(), 1)
			return err
		}},
		"CompareSwap": {"compare and swap", func() error {
			_, err := client.CompareSwap(t.Context(), far.Remote(), 1, 1)
			return err
		}},
		"NewRegion":     {"register", func() error { _, err := client.NewRegion(make([]byte, 1), 0); return err }},
		"SetDeadline":   {"set", func() error { return client.SetDeadline(time.Time{}) }},
		"SetReadBuffer": {"set", func() error { return client.SetReadBuffer(minRing) }},
		"SetLinger":     {"set", func() error { return client.SetLinger(1) }},
		"CloseRead":     {"close", client.CloseRead},
		"CloseWrite":    {"close", client.CloseWrite},
		"Close":         {"close", client.Close},
		"Region.Close":  {"close", near.Close},
	} {
		err := call.do()
		var op *net.OpError
		assert.Assert(t, errors.As(err, &op), "%s: %v", name, err)
		assert.Check(t, errors.Is(err, net.ErrClosed), "%s: %v", name, err)
		assert.Check(t, op.Op == call.op && op.Net == Network, "%s: %q, %q", name, op.Op, op.Net)
		assert.Check(t, op.Source == client.LocalAddr() && op.Addr == client.RemoteAddr(), "%s: %v, %v", name, op.Source,
			op.Addr)
	}
}

// TestLossIsLogged: a connection that ends while it lingers logs the loss, even of a single byte.
// It logs nothing if no byte is lost.
func TestLossIsLogged(t *testing.T) {
	for _, lost := range []uint64{0, 1} {
		log := make(lines, 4)
		client, _ := ends(t)
		client.mu.Lock()
		client.cfg.log = slog.New(slog.NewTextHandler(log, nil))
		client.closed = true
		client.d.block()
		client.linger.begin(func() bool { return true })
		client.out.appended = client.out.freed + lost
		client.fail(errDeadPeer)
		client.mu.Unlock()
		assert.Equal(t, client.Stats().BytesLost, lost)
		select {
		case line := <-log:
			assert.Assert(t, lost == 1 && strings.Contains(line, "bytes=1 ") && strings.Contains(line, "does not answer"), line)
		case <-time.After(map[uint64]time.Duration{0: 50 * time.Millisecond, 1: hostilePatience}[lost]):
			assert.Equal(t, lost, uint64(0), "it is not logged")
		}
	}
	Drain(t.Context()) // clears the sum
}

// TestDrainBeginsAnew: Drain reports the bytes that were lost since the last Drain.
func TestDrainBeginsAnew(t *testing.T) {
	Drain(t.Context()) // clears what connections of other tests have lost
	for range 2 {
		client, _ := ends(t)
		client.mu.Lock()
		client.cfg.log = slog.New(slog.DiscardHandler)
		client.closed = true
		client.d.block()
		client.linger.begin(func() bool { return true })
		client.out.appended = client.out.freed + 3
		client.fail(errDeadPeer)
		client.mu.Unlock()
		assert.ErrorContains(t, Drain(t.Context()), "1 closed connections have lost 3 bytes")
		assert.NilError(t, Drain(t.Context()))
	}
}

// TestFewAtOnce: a connection is freed, and a ring grows, only when few others are at that moment.
func TestFewAtOnce(t *testing.T) {
	client, server := ends(t)
	fill := func(c chan struct{}) {
		for range cap(c) {
			c <- struct{}{}
		}
	}
	drain := func(c chan struct{}) {
		for range cap(c) {
			<-c
		}
	}
	size := func(c *Conn) int { return c.Stats().WriteBuffer }

	fill(growing)
	first := size(client)
	written := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 64<<10))
		written <- err
	}()
	leaktest.Blocked(t, 1, "rdmanet.(*Conn).Write")
	assert.Equal(t, size(client), first)
	drain(growing)
	assert.NilError(t, <-written)
	assert.Assert(t, size(client) > first)

	fill(freeing)
	server.SetLinger(0)
	server.Close()
	dispatched := func() bool {
		server.d.mu.Lock()
		defer server.d.mu.Unlock()
		return server.d.handlers[server.ep] != nil
	}
	time.Sleep(50 * time.Millisecond)
	assert.Assert(t, dispatched())
	drain(freeing)
	eventually(t, "the connection is not freed", func() bool { return !dispatched() })
}

// TestDialsKeepDevice: a program that dials often opens the device tcp and a dispatcher once. They
// are closed when nothing has used them for unusedTime.
func TestDialsKeepDevice(t *testing.T) {
	use := func() (*adapter, *dispatcher) {
		a, err := openAdapter("tcp:127.0.0.1", Path{}, defaultKeepAlive)
		assert.NilError(t, err)
		defer a.close()
		d, err := a.dials.get(false)
		assert.NilError(t, err)
		a.dials.put(d)
		return a, d
	}
	a, d := use()
	a.unused.Reset(time.Hour)
	again, same := use()
	assert.Assert(t, again == a && same == d)
	until(t, "the device is closed", func() bool {
		adapters.mu.Lock()
		defer adapters.mu.Unlock()
		return adapters.open[a.key] == nil && len(a.dials.list) == 0 && d.over()
	})
}
