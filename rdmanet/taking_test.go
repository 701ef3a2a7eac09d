package rdmanet

import (
	"cmp"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// ends connects two ends on mem0.
func ends(t *testing.T) (client, server *Conn) {
	t.Helper()
	return endsWith(t, ListenConfig{})
}

// endsWith connects two ends on a device, mem0 unless lc names one; lc has the settings of the
// server.
func endsWith(t *testing.T, lc ListenConfig) (client, server *Conn) {
	t.Helper()
	lc.Device = cmp.Or(lc.Device, memDevice)
	l, err := lc.Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	client, err = (&Dialer{Device: lc.Device}).Dial(t.Context(), Network, l.Addr().String())
	assert.NilError(t, err)
	t.Cleanup(func() { client.Close() })
	server, err = l.AcceptConn()
	assert.NilError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}

// TestCloseReadBesideRead ends reading while a call copies data out of the ring. The copied bytes
// must not be counted twice, because the peer would then be allowed more than there is room for,
// which breaks the connection. The rest of the data that has come is dropped.
func TestCloseReadBesideRead(t *testing.T) {
	for name, read := range map[string]func(c *Conn, closes func()){
		"Read": func(c *Conn, closes func()) {
			b, err := c.await(t.Context())
			assert.NilError(t, err)
			closes()
			c.taken(len(b))
		},
		"Read of a part": func(c *Conn, closes func()) {
			_, err := c.await(t.Context())
			assert.NilError(t, err)
			closes()
			c.taken(1)
		},
		"WriteTo": func(c *Conn, closes func()) {
			b, err := c.await(t.Context())
			assert.NilError(t, err)
			closes()
			_, err = c.borrow(b)
			assert.Equal(t, err, io.EOF)
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := ends(t)
			_, err := client.Write(make([]byte, 1000))
			assert.NilError(t, err)
			server.rmu.Lock()
			read(server, func() { assert.NilError(t, server.CloseRead()) })
			server.rmu.Unlock()
			server.mu.Lock()
			freed, read, placed, told := server.in.freed, server.in.read, server.in.placed, server.in.told
			server.mu.Unlock()
			assert.Assert(t, freed <= read && read == placed && placed <= told, "%d %d %d %d", freed, read, placed, told)
			for range 100 {
				_, err = client.Write(make([]byte, 100_000)) // all of it is dropped
				assert.NilError(t, err)
			}
			_, err = server.Write([]byte("still here"))
			assert.NilError(t, err)
			_, err = io.ReadFull(client, make([]byte, 10))
			assert.NilError(t, err)
		})
	}
}

// TestCloseBesideCopy closes, or ends reading, while a Read copies out of the first, small ring and
// a WriteTo gives back what it had: the memory stays until the Read has its data.
func TestCloseBesideCopy(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{"Close": (*Conn).Close, "CloseRead": (*Conn).CloseRead} {
		t.Run(name, func(t *testing.T) {
			client, server := ends(t)
			_, err := client.Write(make([]byte, 4000))
			assert.NilError(t, err)
			for until := time.Now().Add(hostilePatience); ; time.Sleep(time.Millisecond) {
				server.mu.Lock()
				grown := server.in.ring.old.lmr != nil
				server.mu.Unlock()
				if grown {
					break
				}
				assert.Assert(t, time.Now().Before(until))
			}
			server.mu.Lock() // a WriteTo that has taken the first bytes
			lent := loan{bytes: server.in.ring.old.bytes(0, 1000), end: 1000}
			server.in.read, server.in.lent = 1000, true
			server.pin()
			server.mu.Unlock()
			server.rmu.Lock()
			b, err := server.await(t.Context())
			assert.NilError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- end(server) }()
			for over := false; !over; time.Sleep(time.Millisecond) {
				server.mu.Lock()
				over = server.closed || server.in.unwanted
				server.mu.Unlock()
			}
			server.giveBack(lent, len(lent.bytes))
			server.mu.Lock()
			assert.Assert(t, server.in.ring.old.lmr != nil, "the memory has been freed")
			server.mu.Unlock()
			assert.Equal(t, b[0]|b[len(b)-1], byte(0)) // it can be read
			server.taken(1)                            // the rest is dropped
			server.rmu.Unlock()
			server.mu.Lock()
			read, placed := server.in.read, server.in.placed
			server.mu.Unlock()
			assert.Equal(t, read, placed)
			assert.NilError(t, <-ended)
		})
	}
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestWriteToBadWriters passes the stream to writers that violate the contract of io.Writer. The
// error says so, no byte is lost, and the connection goes on. A panic gives the memory back, too.
func TestWriteToBadWriters(t *testing.T) {
	client, server := ends(t)
	_, err := client.Write([]byte("hello"))
	assert.NilError(t, err)
	for _, n := range []int{-1, math.MinInt, 6, math.MaxInt} {
		total, err := server.WriteTo(writerFunc(func([]byte) (int, error) { return n, nil }))
		assert.Equal(t, total, int64(0))
		assert.ErrorIs(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, "bytes of 5")
	}
	func() {
		defer func() { assert.Equal(t, recover(), "out of ink") }()
		server.WriteTo(writerFunc(func([]byte) (int, error) { panic("out of ink") }))
	}()
	server.mu.Lock()
	assert.Assert(t, !server.in.lent)
	assert.Equal(t, server.pins, 0)
	server.mu.Unlock()
	total, err := server.WriteTo(writerFunc(func(p []byte) (int, error) { return 0, nil }))
	assert.Equal(t, total, int64(0))
	assert.Equal(t, err, io.ErrShortWrite)
	total, err = server.WriteTo(writerFunc(func(p []byte) (int, error) { return 3, nil }))
	assert.Equal(t, total, int64(3))
	assert.Equal(t, err, io.ErrShortWrite)
	full := errors.New("full")
	total, err = server.WriteTo(writerFunc(func(p []byte) (int, error) { return 1, full }))
	assert.Equal(t, total, int64(1))
	assert.Equal(t, err, full)
	p := make([]byte, 5)
	n, err := server.Read(p)
	assert.NilError(t, err)
	assert.Equal(t, string(p[:n]), "o")
}

// TestLingerForEver: the largest time of SetLinger does not overflow to a negative one.
func TestLingerForEver(t *testing.T) {
	client, server := ends(t)
	assert.NilError(t, client.SetLinger(math.MaxInt))
	n := 100_000
	_, err := client.Write(make([]byte, n))
	assert.NilError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- client.Close() }()
	time.Sleep(10 * time.Millisecond)
	got, err := io.Copy(io.Discard, server)
	assert.NilError(t, err)
	assert.Equal(t, got, int64(n))
	assert.NilError(t, server.Close())
	assert.NilError(t, <-closed)
	assert.Equal(t, client.Stats().BytesLost, uint64(0))
	assert.ErrorIs(t, client.SetLinger(1), net.ErrClosed)
}

// TestWriteNothing: a Write of no bytes needs no space in the ring, and still returns the error of
// the connection.
func TestWriteNothing(t *testing.T) {
	client, server := ends(t)
	assert.NilError(t, client.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := client.Write(make([]byte, 10<<20)) // more than both rings hold
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = client.Write(nil)
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.NilError(t, client.SetWriteDeadline(time.Time{}))
	written := make(chan error, 1)
	go func() {
		_, err := client.Write(nil)
		written <- err
	}()
	select {
	case err = <-written:
		assert.NilError(t, err)
	case <-time.After(hostilePatience):
		t.Fatal("it waits for space")
	}
	assert.NilError(t, server.CloseWrite())
	_, err = server.Write(nil)
	assert.ErrorIs(t, err, syscall.EPIPE)
	assert.NilError(t, client.SetLinger(0))
	assert.NilError(t, client.Close())
	_, err = client.Write(nil)
	assert.ErrorIs(t, err, net.ErrClosed)
}

// TestEstablishedLate: a device may bring the first message before it says that the connection is
// established. By then the program has the connection, and may have asked for its addresses, which
// must not change.
func TestEstablishedLate(t *testing.T) {
	_, server := ends(t)
	server.mu.Lock()
	before := server.local
	server.local = server.cfg.addr(Addr{})
	server.mu.Unlock()
	events{server}.handle(&udat.Event{Number: udat.EventConnectionEstablished, EP: server.ep})
	assert.Equal(t, server.LocalAddr(), net.Addr(Addr{}))
	server.mu.Lock()
	server.local = before
	server.mu.Unlock()
}
