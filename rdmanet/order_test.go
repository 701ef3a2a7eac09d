package rdmanet_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/rdmanet"
)

// TestAcceptOrder dials several times, one after another: Accept returns them in that order.
func TestAcceptOrder(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		for range rounds(dev, 100) {
			var dialed []net.Conn
			for range 4 {
				c, err := dial(t, dev, l)
				assert.NilError(t, err)
				defer c.Close()
				dialed = append(dialed, c)
			}
			for _, c := range dialed {
				s, err := l.Accept()
				assert.NilError(t, err)
				defer s.Close()
				assert.Equal(t, s.RemoteAddr().String(), c.LocalAddr().String())
			}
		}
	})
}

// TestWriteAfterPeerClose: the first Write after the peer has closed is dropped, the next is EPIPE.
func TestWriteAfterPeerClose(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		assert.NilError(t, server.Close())
		_, err := client.Read(make([]byte, 1))
		assert.Equal(t, err, io.EOF)
		n, err := client.Write([]byte("goodbye"))
		assert.NilError(t, err)
		assert.Equal(t, n, 7)
		for range 2 {
			_, err = client.Write([]byte("x"))
			assert.ErrorIs(t, err, syscall.EPIPE)
		}
	})
}

// TestBlockedWriteAtPeerClose: a Write that is blocked when the peer closes is EPIPE, and so is the
// next, which must not succeed behind the gap.
func TestBlockedWriteAtPeerClose(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		ended := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, 4<<20))
			ended <- err
		}()
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).Write")
		assert.NilError(t, server.Close())
		assert.ErrorIs(t, <-ended, syscall.EPIPE)
		_, err := client.Write([]byte("x"))
		assert.ErrorIs(t, err, syscall.EPIPE)
	})
}

// TestCloseRead: CloseRead ends Reads, also one that is blocked. The peer can still write, and so
// can this end.
func TestCloseRead(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		ended := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			ended <- err
		}()
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).Read")
		assert.NilError(t, client.CloseRead())
		assert.Equal(t, <-ended, io.EOF)
		assert.NilError(t, server.SetDeadline(time.Now().Add(patience)))
		_, err := server.Write(make([]byte, 2<<20))
		assert.NilError(t, err)
		_, err = client.Write([]byte("still here"))
		assert.NilError(t, err)
		_, err = io.ReadFull(server, make([]byte, 10))
		assert.NilError(t, err)
		_, err = client.Read(make([]byte, 1))
		assert.Equal(t, err, io.EOF)
	})
}

// TestAddrsDoNotAllocate: servers ask for the addresses with each request.
func TestAddrsDoNotAllocate(t *testing.T) {
	client, _ := pair(t, "mem0", rdmanet.Dialer{}, rdmanet.ListenConfig{})
	var a net.Addr
	assert.Equal(t, testing.AllocsPerRun(100, func() { a = client.RemoteAddr(); a = client.LocalAddr() }), 0.0)
	assert.Assert(t, a != nil)
}
