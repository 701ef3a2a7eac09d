package rdmanet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// pattern is n bytes that depend on the seed.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

// TestTransfer sends bytes both ways at once, in pieces of all sizes, through rings of all ratios,
// and expects them unchanged.
func TestTransfer(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, sizes := range [][2]int{{0, 0}, {4096, 1 << 20}, {1 << 20, 4096}, {4096, 4096}} {
			client, server := pair(t, dev, rdmanet.Dialer{ReadBuffer: sizes[0], WriteBuffer: sizes[1]},
				rdmanet.ListenConfig{ReadBuffer: sizes[0], WriteBuffer: sizes[1]})
			var all sync.WaitGroup
			for i, ends := range [][2]*rdmanet.Conn{{client, server}, {server, client}} {
				data := pattern(3<<20, byte(i))
				all.Go(func() {
					r := rand.New(rand.NewPCG(1, uint64(i)))
					for left := data; len(left) > 0; {
						n := min(len(left), 1+r.IntN(1<<r.IntN(19)))
						if _, err := ends[0].Write(left[:n]); err != nil {
							t.Error(err)
							return
						}
						left = left[n:]
					}
					if err := ends[0].CloseWrite(); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					var got bytes.Buffer
					r := rand.New(rand.NewPCG(2, uint64(i)))
					for {
						p := make([]byte, 1+r.IntN(1<<r.IntN(19)))
						n, err := ends[1].Read(p)
						got.Write(p[:n])
						if err == io.EOF {
							break
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
					if !bytes.Equal(got.Bytes(), data) {
						t.Errorf("%d bytes came, %d were sent, or they differ", got.Len(), len(data))
					}
				})
			}
			all.Wait()
		}
	})
}

// onlyReader and onlyWriter hide the other methods of a reader or a writer.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// TestReadFromWriteTo copies into one end and out of the other without a buffer between.
func TestReadFromWriteTo(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		data := pattern(2<<20+7, 3)
		sent := make(chan error, 1)
		go func() {
			n, err := client.ReadFrom(onlyReader{bytes.NewReader(data)})
			if n != int64(len(data)) {
				err = errors.Join(err, io.ErrShortWrite)
			}
			sent <- errors.Join(err, client.CloseWrite())
		}()
		sum := sha256.New()
		n, err := server.WriteTo(onlyWriter{sum})
		assert.NilError(t, err)
		assert.NilError(t, <-sent)
		assert.Equal(t, n, int64(len(data)))
		want := sha256.Sum256(data)
		assert.DeepEqual(t, sum.Sum(nil), want[:])
	})
}

// TestHalfClose ends one direction: the other goes on, and a Write after it is EPIPE.
func TestHalfClose(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		_, err := client.Write([]byte("request"))
		assert.NilError(t, err)
		assert.NilError(t, client.CloseWrite())
		_, err = client.Write([]byte("more"))
		assert.ErrorIs(t, err, syscall.EPIPE)
		got, err := io.ReadAll(server)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "request")
		_, err = server.Write([]byte("answer"))
		assert.NilError(t, err)
		assert.NilError(t, server.Close())
		got, err = io.ReadAll(client)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "answer")
	})
}

// TestCloseDelivers closes right after a Write: the peer reads all of it, later.
func TestCloseDelivers(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		data := pattern(100_000, 4)
		_, err := client.Write(data)
		assert.NilError(t, err)
		assert.NilError(t, client.Close())
		for end := time.Now().Add(patience); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
			_, err = server.Write([]byte("x"))
		}
		assert.ErrorIs(t, err, syscall.EPIPE)
		got, err := io.ReadAll(server)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, data))
	})
}

// TestBackPressure writes to a peer that does not read: once both rings are full Write blocks until
// the deadline, and all that it has taken arrives.
func TestBackPressure(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{WriteBuffer: 64 << 10}, rdmanet.ListenConfig{ReadBuffer: 32 << 10})
		data := pattern(1<<20, 5)
		assert.NilError(t, client.SetWriteDeadline(time.Now().Add(2*time.Second)))
		n, err := client.Write(data)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Assert(t, n >= 64<<10 && n <= (64+32)<<10, "%d bytes were taken", n)
		assert.NilError(t, client.CloseWrite())
		got, err := io.ReadAll(server)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, data[:n]))
	})
}

// TestSetReadBuffer shrinks the read buffer to 8 KiB before the peer writes 256 KiB: all bytes
// arrive. A size above ListenConfig.ReadBuffer is EINVAL.
func TestSetReadBuffer(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{ReadBuffer: 64 << 10})
		limit := time.AfterFunc(time.Minute, func() { client.Close() })
		defer limit.Stop()
		assert.NilError(t, server.SetReadBuffer(8<<10))
		assert.ErrorIs(t, server.SetReadBuffer(1<<20), syscall.EINVAL)
		data := pattern(256<<10, 6)
		go func() {
			client.Write(data)
			client.CloseWrite()
		}()
		got, err := io.ReadAll(onlyReader{server}) // past the first 64 KiB that were granted
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, data))
	})
}

// TestSmallReadBufferStays: a connection whose limit is the size of its first ring gets no larger
// ring.
func TestSmallReadBufferStays(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		assert.NilError(t, server.SetReadBuffer(4096))
		go client.Write(make([]byte, 100_000))
		_, err := io.ReadFull(server, make([]byte, 100_000))
		assert.NilError(t, err)
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, server.Stats().ReadBuffer, 4096)
	})
}

// TestDeadlineWhileBlocked sets deadlines while calls are blocked.
func TestDeadlineWhileBlocked(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, _ := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		ended := make(chan error, 2)
		go func() {
			_, err := client.Read(make([]byte, 1))
			ended <- err
		}()
		go func() {
			_, err := client.Write(make([]byte, 4<<20))
			ended <- err
		}()
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).Read")
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).Write")
		assert.NilError(t, client.SetDeadline(time.Now().Add(20*time.Millisecond)))
		for range 2 {
			select {
			case err := <-ended:
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				var timeout net.Error
				assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout())
			case <-time.After(patience):
				t.Fatal("still blocked")
			}
		}
	})
}

// TestDialErrors expects errors that name what is wrong.
func TestDialErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		address := l.Addr().String()
		assert.NilError(t, l.Close())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		d := rdmanet.Dialer{Device: dev}
		_, err := d.Dial(ctx, "rdma", address)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = d.Dial(ctx, "tcp6", "127.0.0.1:1")
		assert.ErrorContains(t, err, "no address of the family IPv6")
		_, err = d.Dial(ctx, "rdma", "nonsense")
		assert.ErrorContains(t, err, "missing port")
		d.ReadBuffer = 2 << 30
		_, err = d.Dial(ctx, "rdma", address)
		assert.ErrorContains(t, err, "ReadBuffer is 2147483648 bytes")
		cancel()
		_, err = new(rdmanet.Dialer).Dial(ctx, "rdma", address)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
	})
}

// TestDialTimeout dials a service point that never answers: the error is a timeout, with udat's
// reason.
func TestDialTimeout(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia, err := udat.Open(dev)
		assert.NilError(t, err)
		defer ia.Close(udat.CloseAbrupt)
		requests, err := ia.CreateEVD(8, udat.EVDCR, nil)
		assert.NilError(t, err)
		port, _, err := ia.CreatePSPAny(requests, udat.PSPConsumer)
		assert.NilError(t, err)
		to := netip.AddrPortFrom(ia.Addr(), uint16(port)).String()
		reason := "udat: no connection to " + to
		d := rdmanet.Dialer{Device: dev, Timeout: 500 * time.Millisecond}
		for range 7 {
			_, err = d.Dial(t.Context(), "rdma", to)
			if err == nil || strings.Contains(err.Error(), reason) {
				break // otherwise the event with the reason came too late: on a slow machine, or as soft-iWARP blocks for 10 s
			}
			d.Timeout *= 2
		}
		assert.ErrorIs(t, err, syscall.ETIMEDOUT)
		assert.ErrorContains(t, err, reason)
		var timeout net.Error
		assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	})
}

// TestFallback uses TCP only where it is allowed, and says so.
func TestFallback(t *testing.T) {
	const nobody = "192.0.2.1:9" // no device of a test machine has a route to it
	_, err := rdmanet.Dial(t.Context(), "rdma", nobody)
	if !errors.Is(err, rdmanet.ErrNoDevice) {
		t.Skipf("this host's RDMA device has a route there: %v", err)
	}
	_, err = (&rdmanet.ListenConfig{}).Listen(t.Context(), "rdma", nobody)
	assert.ErrorIs(t, err, rdmanet.ErrNoDevice)
	var reason error
	d := rdmanet.Dialer{Timeout: 10 * time.Millisecond, Fallback: func(err error) { reason = err }}
	c, err := d.DialContext(t.Context(), "rdma", nobody)
	assert.Assert(t, err != nil, "%v", c)
	assert.ErrorIs(t, reason, rdmanet.ErrNoDevice)
	var op *net.OpError
	assert.Assert(t, errors.As(err, &op) && op.Net == "tcp", "%v", err)
	_, err = d.DialContext(t.Context(), "tcp4", nobody) // the family stays
	assert.Assert(t, errors.As(err, &op) && op.Net == "tcp4", "%v", err)
	reason = nil
	lc := rdmanet.ListenConfig{Fallback: d.Fallback}
	_, err = lc.ListenNet(t.Context(), "rdma", nobody)
	assert.Assert(t, errors.As(err, &op) && op.Net == "tcp", "%v", err) // this host does not have the address
	assert.ErrorIs(t, reason, rdmanet.ErrNoDevice)
	var unknown net.UnknownNetworkError
	for _, network := range []string{"tcp5", "udp", ""} {
		_, err = rdmanet.Listen(network, "127.0.0.1:0")
		assert.Assert(t, errors.As(err, &unknown), "%v", err)
		_, err = rdmanet.Dial(t.Context(), network, "127.0.0.1:1")
		assert.Assert(t, errors.As(err, &unknown), "%v", err)
	}
	reason, lc.Backlog = nil, -1
	_, err = lc.ListenNet(t.Context(), "rdma", nobody)
	assert.ErrorContains(t, err, "Backlog")
	assert.Assert(t, reason == nil, "%v", reason)
}

// TestFallbackOnThisHost: with Fallback the addresses of a host without RDMA devices are those of
// TCP, not of mem0, which no other process reaches.
func TestFallbackOnThisHost(t *testing.T) {
	for _, p := range udat.Providers() {
		if p.Fabric == "verbs" && p.Active {
			t.Skip("this host has an RDMA device")
		}
	}
	var reason error
	fallback := func(err error) { reason = err }
	lc := rdmanet.ListenConfig{Fallback: fallback}
	for _, address := range []string{":0", "127.0.0.1:0"} {
		l, err := lc.ListenNet(t.Context(), "rdma", address)
		assert.NilError(t, err)
		defer l.Close()
		assert.ErrorIs(t, reason, rdmanet.ErrNoDevice, address)
		reason = nil
		to := fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
		for _, local := range []net.Addr{nil, &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}} {
			d := rdmanet.Dialer{Fallback: fallback, LocalAddr: local}
			c, err := d.DialContext(t.Context(), "rdma", to)
			assert.NilError(t, err)
			assert.Equal(t, c.RemoteAddr().(*net.TCPAddr).String(), to)
			assert.ErrorIs(t, reason, rdmanet.ErrNoDevice, address)
			reason = nil
			c.Close()
		}
	}
	lc.Device = "mem0" // named
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	assert.NilError(t, err)
	defer l.Close()
	c, err := (&rdmanet.Dialer{Device: "mem0", Fallback: fallback}).DialContext(t.Context(), "rdma", l.Addr().String())
	assert.NilError(t, err)
	c.Close()
	assert.NilError(t, reason)
}

// TestNoAllocations reads and writes without allocating.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		p, q := make([]byte, 64), make([]byte, 64)
		round := func() {
			if _, err := client.Write(p); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, q); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			round()
		}
		most := 0.0
		if tlstest.Suite(dev) != nil {
			most = 2 // package tls allocates for each record
		}
		if n := testing.AllocsPerRun(1000, round); n > most {
			t.Errorf("%v allocations in a Write and a Read", n)
		}
	})
}

// TestMany has 1,000 connections of one listener, each of which echoes.
func TestMany(t *testing.T) {
	const count = 1000
	onEach(t, func(t *testing.T, dev string) {
		n := count
		if testing.Short() {
			n = 50
		}
		l := listen(t, dev, rdmanet.ListenConfig{ReadBuffer: 4096, WriteBuffer: 4096})
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					io.Copy(c, c)
					c.Close()
				}()
			}
		}()
		conns := make([]*rdmanet.Conn, n)
		d := dialer(dev)
		d.ReadBuffer, d.WriteBuffer = 4096, 4096
		turns := make(chan bool, 16) // limits how many are created at the same time
		var all sync.WaitGroup
		for i := range conns {
			turns <- true
			all.Go(func() {
				defer func() { <-turns }()
				var err error
				if conns[i], err = d.Dial(t.Context(), "rdma", l.Addr().String()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i, c := range conns {
			if c == nil {
				continue
			}
			all.Go(func() {
				defer c.Close()
				want := pattern(3000, byte(i))
				got := make([]byte, len(want))
				for range 3 {
					if _, err := c.Write(want); err != nil {
						t.Error(err)
						return
					}
					if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
						t.Errorf("connection %d: %v", i, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
