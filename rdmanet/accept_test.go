package rdmanet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestAcceptFilter: a Listener with Accept asks it about each peer, and refuses those for which it
// returns an error: their Dial does not try again. The Listener then goes on.
func TestAcceptFilter(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var refuse atomic.Bool
		asked := make(chan netip.AddrPort, 100)
		l := listen(t, dev, rdmanet.ListenConfig{Accept: func(peer netip.AddrPort) error {
			asked <- peer
			if refuse.Load() {
				return errors.New("not this one")
			}
			return nil
		}})
		for _, refused := range []bool{false, true, false} {
			refuse.Store(refused)
			if refused {
				_, err := dial(t, dev, l)
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
				assert.Equal(t, len(asked), 1)
				assert.Assert(t, (<-asked).IsValid())
				continue
			}
			client, server := join(t, dev, l, rdmanet.Dialer{})
			assert.Equal(t, (<-asked).Addr(), addrOf(server.RemoteAddr()).Addr())
			client.Close()
			server.Close()
		}
		s := l.Stats()
		assert.Assert(t, s.Accepted == 2 && s.Refused == 0 && s.Failed == 0, "%+v", s)
	})
}

// TestAcceptFilterOfFallback: a listener of package net has the filter, too, also before TLS.
func TestAcceptFilterOfFallback(t *testing.T) {
	first := true
	lc := rdmanet.ListenConfig{Fallback: func(error) {}, Accept: func(peer netip.AddrPort) error {
		if refuse := first && peer.Addr() == netip.MustParseAddr("127.0.0.1"); refuse {
			first = false
			return errors.New("not this one")
		}
		return nil
	}}
	l, err := lc.ListenNet(t.Context(), "rdma", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	if _, ok := l.(*rdmanet.Listener); ok {
		t.Skip("this host has an RDMA device")
	}
	refused, err := net.Dial("tcp", l.Addr().String())
	assert.NilError(t, err)
	defer refused.Close()
	taken, err := net.Dial("tcp", l.Addr().String())
	assert.NilError(t, err)
	defer taken.Close()
	c, err := l.Accept()
	assert.NilError(t, err)
	defer c.Close()
	assert.Equal(t, c.RemoteAddr().String(), taken.LocalAddr().String())
	_, err = refused.Read(make([]byte, 1))
	assert.Equal(t, err, io.EOF)
}

// TestListenNetworks: Listen knows the networks of TCP, and of several addresses of a host it takes
// the first of IPv4, like package net.
func TestListenNetworks(t *testing.T) {
	lc := rdmanet.ListenConfig{Device: "tcp"}
	for _, c := range []struct{ network, address, want string }{
		{"rdma", "localhost:0", "127.0.0.1"}, {"tcp", "localhost:0", "127.0.0.1"}, {"tcp4", "localhost:0", "127.0.0.1"},
		{"tcp6", "[::1]:0", "::1"}, {"rdma", "[::1]:0", "::1"},
	} {
		if c.want == "::1" && !hasAddr("::1") {
			continue
		}
		l, err := lc.Listen(t.Context(), c.network, c.address)
		assert.NilError(t, err, "%+v", c)
		assert.Equal(t, addrOf(l.Addr()).Addr().String(), c.want, "%+v", c)
		at := addrOf(l.Addr()).Port()
		if c.network == "tcp6" { // without a host, too
			assert.Equal(t, reaches(t, "tcp", fmt.Sprintf("[::]:%d", at)).Addr().String(), c.want)
			d := rdmanet.Dialer{Device: "tcp", Timeout: patience}
			conn, err := d.Dial(t.Context(), "tcp6", fmt.Sprint(":", at))
			assert.NilError(t, err)
			assert.Equal(t, addrOf(conn.RemoteAddr()).Addr().String(), c.want)
			conn.Close()
		}
		assert.NilError(t, l.Close())
	}
}

// TestNoDeviceNamesTCP: where Dial and Listen use mem0 because the host has no device, they name
// the device that needs none.
func TestNoDeviceNamesTCP(t *testing.T) {
	const way = `the device "tcp", named at both ends`
	var log bytes.Buffer
	lc := rdmanet.ListenConfig{Logger: slog.New(slog.NewJSONHandler(&log, nil))}
	l, err := lc.Listen(t.Context(), "rdma", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	c, err := rdmanet.Dial(t.Context(), "rdma", l.Addr().String())
	assert.NilError(t, err)
	defer c.Close()
	if c.Device() != "mem0" {
		t.Skip("this host has an RDMA device")
	}
	assert.Assert(t, bytes.Contains(log.Bytes(), []byte(`the device \"tcp\", named at both ends`)), "%s", log.Bytes())
	assert.NilError(t, c.Close())
	assert.NilError(t, l.Close())
	_, err = rdmanet.Dial(t.Context(), "rdma", l.Addr().String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.ErrorContains(t, err, way)
	_, err = (&rdmanet.Dialer{Device: "mem0"}).Dial(t.Context(), "rdma", l.Addr().String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, bytes.Contains([]byte(err.Error()), []byte(way)), false, "%v", err) // mem0 is what the program wants
}
