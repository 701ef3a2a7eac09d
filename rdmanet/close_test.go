package rdmanet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/rdmanet"
)

// TestCloseDeliversLate has a peer that begins to read a second before the end of the five minutes
// that Close gives it: it reads all.
func TestCloseDeliversLate(t *testing.T) {
	rdmanet.Drain(t.Context()) // clears what connections of other tests have lost
	synctest.Test(t, func(t *testing.T) {
		keep := 3 * time.Second // an adapter of this bubble
		client, server := pair(t, "mem0", rdmanet.Dialer{KeepAlive: keep}, rdmanet.ListenConfig{KeepAlive: keep})
		data := pattern(200_000, 7)
		_, err := client.Write(data)
		assert.NilError(t, err)
		assert.NilError(t, client.Close())
		time.Sleep(5*time.Minute - time.Second)
		got, err := io.ReadAll(onlyReader{server})
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, data), "%d bytes of %d", len(got), len(data))
		assert.NilError(t, server.Close())
		assert.NilError(t, rdmanet.Drain(t.Context()))
	})
}

// TestCloseDeliversAll closes with more bytes than the peer has room for. The peer must read all of
// them.
func TestCloseDeliversAll(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, size := range []int{1, 5000, 200_000, 224 << 10} {
			client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
			data := pattern(size, byte(size))
			_, err := client.Write(data)
			assert.NilError(t, err)
			assert.NilError(t, client.Close())
			got, err := io.ReadAll(onlyReader{server})
			assert.NilError(t, err)
			assert.Assert(t, bytes.Equal(got, data), "%d bytes of %d", len(got), len(data))
		}
	})
}

// TestCloseBesideWriter closes with bytes for which the peer has no room, while the peer writes. If
// it reads at last it gets all; if it only writes, its Write fails in the end, as over TCP. A Write
// that begins when the peer's Close is known fails at once, with EPIPE.
func TestCloseBesideWriter(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, reads := range []bool{true, false} {
			client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
			assert.NilError(t, server.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
			written, err := server.Write(make([]byte, 4<<20))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.NilError(t, server.Close())
			assert.NilError(t, client.SetDeadline(time.Now().Add(patience)))
			if reads {
				_, err = client.Write(make([]byte, 8<<20))
				assert.Assert(t, err == nil || errors.Is(err, syscall.EPIPE), "%v", err)
				got, err := io.ReadAll(onlyReader{client})
				assert.NilError(t, err)
				assert.Equal(t, len(got), written)
				continue
			}
			n := 0
			err = nil
			for total := 0; err == nil; total += n {
				n, err = client.Write(make([]byte, 1<<20))
				assert.Assert(t, total < 64<<20, "%d bytes", total)
			}
			assert.Assert(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), "%v", err)
		}
	})
}

// TestCloseBeforeAccept has clients that write and close before the server accepts. The server must
// read all bytes, and no client may report lost bytes.
func TestCloseBeforeAccept(t *testing.T) {
	for _, dev := range []string{"mem0", "tcp:127.0.0.1"} {
		rdmanet.Drain(t.Context()) // clears what connections of other tests have lost
		l := listen(t, dev, rdmanet.ListenConfig{})
		data := pattern(3<<10, 1)
		var clients []*rdmanet.Conn
		for range 60 {
			c, err := dial(t, dev, l)
			assert.NilError(t, err)
			_, err = c.Write(data)
			assert.NilError(t, err)
			assert.NilError(t, c.Close())
			clients = append(clients, c)
		}
		for range clients {
			c, err := l.AcceptConn()
			assert.NilError(t, err)
			got, err := io.ReadAll(onlyReader{c})
			assert.NilError(t, err)
			assert.Assert(t, bytes.Equal(got, data), "%d bytes of %d", len(got), len(data))
			c.Close()
		}
		assert.NilError(t, rdmanet.Drain(t.Context()), dev)
		for _, c := range clients {
			assert.Equal(t, c.Stats().BytesLost, uint64(0), dev)
		}
	}
}

// TestCloseWriteAgain: CloseWrite may be called twice, and after the peer has closed, as over TCP.
func TestCloseWriteAgain(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		assert.NilError(t, client.CloseWrite())
		assert.NilError(t, client.CloseWrite())
		_, err := io.ReadAll(onlyReader{server})
		assert.NilError(t, err)
		assert.NilError(t, client.Close())
		for begun := time.Now(); time.Since(begun) < patience; { // until the peer's Close has come
			if _, err = server.Write([]byte("x")); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		assert.ErrorIs(t, err, syscall.EPIPE)
		assert.NilError(t, server.CloseWrite())
		_, err = server.Write([]byte("x"))
		assert.ErrorIs(t, err, syscall.EPIPE)
		assert.NilError(t, server.CloseWrite())
		assert.NilError(t, server.Close())
		assert.ErrorIs(t, server.CloseWrite(), net.ErrClosed)
	})
}

// TestCloseAtOnce closes connections to peers that do not read, with bytes on the way. All of them
// must close within the time that one used to take.
func TestCloseAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, shortListen)
		var conns []*rdmanet.Conn
		for range 10 {
			client, server := join(t, dev, l, shortDialer)
			defer server.Close()
			assert.NilError(t, client.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
			_, err := client.Write(make([]byte, 1<<20))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			conns = append(conns, client)
		}
		began := time.Now()
		for _, c := range conns {
			assert.NilError(t, c.Close())
		}
		assert.Assert(t, time.Since(began) < 4*time.Second, "%v", time.Since(began)) // it was 50 s
		for _, c := range conns {
			c.SetDeadline(time.Time{})
		}
	})
}

// TestShutdown shuts down an HTTP server whose clients do not read their answers. Shutdown must end
// with its context, and Close at once, as over TCP.
func TestShutdown(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Repeat("x", 1<<20))
		})}
		go s.Serve(l)
		for range 10 {
			c, err := dial(t, dev, l)
			assert.NilError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // but the client never reads
			assert.NilError(t, err)
		}
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		assert.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
		s.Close()
		assert.Assert(t, time.Since(began) < 8*time.Second, "%v", time.Since(began)) // it was 75 s
	})
}

// TestLinger: with SetLinger(0) Close drops what has not been sent, and the peer's Read fails. With
// SetLinger(1) Close waits a second, drops the rest, and reports how much. Drain waits for the
// connections that linger in the background.
func TestLinger(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		full := func() (client, server *rdmanet.Conn, n int) {
			client, server = pair(t, dev, shortDialer, shortListen)
			for k := 1; k > 0; n += k {
				assert.NilError(t, client.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
				var err error
				k, err = client.Write(make([]byte, 1<<20))
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			return client, server, n
		}
		rdmanet.Drain(t.Context()) // clears what connections of other tests have lost
		client, server, n := full()
		assert.NilError(t, client.SetLinger(0))
		assert.NilError(t, client.Close())
		got, err := io.ReadAll(onlyReader{server})
		assert.Assert(t, err != nil && len(got) < n, "%d bytes of %d, %v", len(got), n, err)

		client, server, n = full()
		assert.NilError(t, client.SetLinger(1))
		began := time.Now()
		assert.NilError(t, client.Close())
		assert.Assert(t, time.Since(began) >= time.Second, "%v", time.Since(began))
		got, err = io.ReadAll(onlyReader{server})
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Assert(t, len(got) < n, "%d bytes of %d", len(got), n)
		assert.Assert(t, client.Stats().BytesLost >= uint64(n-len(got)), "%d lost, %d of %d came", client.Stats().BytesLost,
			len(got), n)
		assert.ErrorContains(t, rdmanet.Drain(t.Context()), "1 closed connections have lost")
		assert.NilError(t, rdmanet.Drain(t.Context()), "said once")

		client, server, n = full()
		assert.NilError(t, client.Close())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, rdmanet.Drain(ctx), context.DeadlineExceeded)
		read := make(chan int, 1)
		go func() {
			got, _ := io.ReadAll(onlyReader{server})
			read <- len(got)
		}()
		assert.NilError(t, rdmanet.Drain(t.Context()))
		assert.Equal(t, <-read, n)
		assert.Assert(t, client.SetLinger(1) != nil, "of a closed connection")
	})
}

// TestCloseBesideWrites closes while other goroutines write, again and again. The peer reads the
// bytes whose Writes have succeeded, in order, or gets an error. It never reads bytes after the
// end.
func TestCloseBesideWrites(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		for range rounds(dev, 100) {
			client, server := join(t, dev, l, rdmanet.Dialer{})
			var all sync.WaitGroup
			var written int
			all.Go(func() {
				for {
					n, err := client.Write(make([]byte, 300))
					written += n
					if err != nil {
						return
					}
				}
			})
			var got int
			var err error
			all.Go(func() {
				var b []byte
				b, err = io.ReadAll(onlyReader{server})
				got = len(b)
			})
			time.Sleep(time.Millisecond)
			assert.NilError(t, client.Close())
			all.Wait()
			assert.NilError(t, err)
			assert.Equal(t, got, written)
			server.Close()
		}
	})
}

// TestCloseWriteBesideBlockedWrite: CloseWrite does not wait for a Write that is blocked. That
// Write returns EPIPE. The peer reads what the Write had accepted, and then io.EOF.
func TestCloseWriteBesideBlockedWrite(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		type result struct {
			n   int
			err error
		}
		ended := make(chan result, 1)
		go func() {
			n, err := client.Write(make([]byte, 4<<20))
			ended <- result{n, err}
		}()
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).Write")
		assert.NilError(t, client.CloseWrite())
		select {
		case r := <-ended:
			assert.ErrorIs(t, r.err, syscall.EPIPE)
			got, err := io.ReadAll(onlyReader{server})
			assert.NilError(t, err)
			assert.Equal(t, len(got), r.n)
		case <-time.After(patience):
			t.Fatal("still blocked")
		}
	})
}

// TestWriteBesideIdleReadFrom: while the source of ReadFrom has nothing, Write, CloseWrite,
// NewRegion and Close do not wait for it.
func TestWriteBesideIdleReadFrom(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		source, feed := io.Pipe()
		copied := make(chan error, 1)
		go func() {
			_, err := client.ReadFrom(source)
			copied <- err
		}()
		_, err := feed.Write([]byte("first "))
		assert.NilError(t, err)
		first := make([]byte, len("first "))
		_, err = io.ReadFull(server, first)
		assert.NilError(t, err)
		all := make(chan error, 1)
		go func() {
			_, err := client.Write([]byte("second"))
			_, err2 := client.NewRegion(make([]byte, 4096), 0)
			all <- errors.Join(err, err2, client.CloseWrite(), client.Close())
		}()
		select {
		case err := <-all:
			assert.NilError(t, err)
		case <-time.After(patience):
			t.Fatal("still blocked")
		}
		got, err := io.ReadAll(server)
		assert.NilError(t, err)
		assert.Equal(t, string(first)+string(got), "first second")
		feed.Write([]byte("x")) // ReadFrom ends once its source has something
		assert.Assert(t, <-copied != nil)
	})
}

// TestReadBesideBusyWriteTo: while the sink of WriteTo is blocked, Read takes what follows, and
// Close does not wait. The bytes that the sink holds do not change.
func TestReadBesideBusyWriteTo(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{ReadBuffer: 8 << 10})
		sink := &heldWriter{got: make(chan []byte), goOn: make(chan struct{})}
		copied := make(chan error, 1)
		go func() {
			_, err := server.WriteTo(sink)
			copied <- err
		}()
		data := pattern(64<<10, 9)
		go client.Write(data)
		held := <-sink.got
		want := bytes.Clone(held)
		rest := make([]byte, 2000)
		_, err := io.ReadFull(server, rest)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(rest, data[len(want):len(want)+len(rest)]))
		time.Sleep(50 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- server.Close() }()
		select {
		case err := <-closed:
			assert.NilError(t, err)
		case <-time.After(patience):
			t.Fatal("Close is still blocked")
		}
		time.Sleep(100 * time.Millisecond)
		assert.Assert(t, bytes.Equal(held, want), "the bytes that the sink holds have changed")
		close(sink.goOn)
		assert.Assert(t, <-copied != nil)
	})
}

// heldWriter is a writer whose Write is blocked until goOn is closed.
type heldWriter struct {
	got  chan []byte
	goOn chan struct{}
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.got <- p
	<-w.goOn
	return len(p), nil
}
