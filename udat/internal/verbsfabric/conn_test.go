//go:build linux

package verbsfabric

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/cm"
)

// TestLocalPortInUse: on iWARP the local port that rdma_cm chooses may be in use as a TCP port. The
// attempt then uses another port.
func TestLocalPortInUse(t *testing.T) {
	near, far := openDevice(t), openDevice(t)
	if !near.dev.iwarp {
		t.Skip("only iWARP has its connections on TCP ports")
	}
	const ports = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(ports)
	assert.NilError(t, err)
	defer os.WriteFile(ports, before, 0)

	l, requests := far.listen()
	// A TCP connection from the port to the same peer exists: connect returns EADDRNOTAVAIL.
	connected := func(a *net.TCPAddr) (io.Closer, error) {
		d := net.Dialer{LocalAddr: a, Control: func(_, _ string, c syscall.RawConn) (err error) {
			return c.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
			})
		}}
		return d.DialContext(context.Background(), "tcp", l.Addr().String())
	}
	// Another socket uses the port exclusively: bind returns EADDRINUSE.
	listened := func(a *net.TCPAddr) (io.Closer, error) { return net.ListenTCP("tcp", a) }

	for n, take := range []func(*net.TCPAddr) (io.Closer, error){
		connected, listened, connected, listened, connected, listened, connected, listened,
	} {
		taken := l.Addr().Port()&^1 ^ 32 + uint16(2*n) // and the next one is free
		if err := os.WriteFile(ports, fmt.Appendf(nil, "%d %d", taken, taken+1), 0); err != nil {
			t.Skip(err)
		}
		c, err := take(&net.TCPAddr{IP: near.dev.info.Addr.AsSlice(), Port: int(taken)})
		assert.NilError(t, err)

		active, events := near.connect(l.Addr())
		established := make(chan fabric.ConnEvent, 16)
		passive, err := receive(t, requests).Accept(far.newQP(), fabric.AcceptParams{},
			func(ev fabric.ConnEvent) { established <- ev })
		assert.NilError(t, err)
		ev := receive(t, events)
		assert.Equal(t, ev.Kind, fabric.EventEstablished, "%v", ev.Err)
		assert.Equal(t, receive(t, established).Kind, fabric.EventEstablished)
		assert.Equal(t, active.LocalAddr().Port(), taken+1)

		assert.NilError(t, active.Close())
		assert.NilError(t, passive.Close())
		assert.NilError(t, c.Close())
	}
}

// TestStuckDestroy: the kernel does not return from the call that destroys an id. Neither Close of
// the connection nor Close of the device waits for ever, and the id is freed when the kernel
// returns.
func TestStuckDestroy(t *testing.T) {
	far := openDevice(t)
	l, requests := far.listen()
	const many = 2 * cm.DestroyAtOnce
	ids := cverbs.Live()["CMID"]
	release := make(chan struct{})
	t.Run("close", func(t *testing.T) {
		near := openDevice(t) // closes at the end of this part
		near.dev.conns.ReplaceDestroy(func(id *cverbs.CMID) error { <-release; return id.Close() })
		for range many {
			active, events := near.connect(l.Addr())
			assert.NilError(t, receive(t, requests).Reject(nil, true))
			assert.Equal(t, receive(t, events).Kind, fabric.EventPeerRejected)
			assert.NilError(t, active.Close())
		}
	})
	assert.Equal(t, cverbs.Live()["CMID"], ids+many, "those that the kernel holds")
	close(release)
	for until := time.Now().Add(patience); cverbs.Live()["CMID"] != ids; time.Sleep(10 * time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "they stay")
	}
}

// TestInheritedSockets: a forked child holds copies of the connection manager's sockets until it
// execs. An id that is destroyed meanwhile makes no further event, and new connections work.
func TestInheritedSockets(t *testing.T) {
	if !strings.HasPrefix(testDevice(t), "loop") {
		t.Skip("only the loop device's connections have sockets")
	}
	near, far := openDevice(t), openDevice(t)
	l, requests := far.listen()
	before := sockets(t)
	inherit := func() {
		for fd := range sockets(t) {
			if !before[fd] {
				inherited, err := syscall.Dup(fd)
				if err == syscall.EBADF {
					continue // closed since it was listed
				}
				assert.NilError(t, err)
				t.Cleanup(func() { syscall.Close(inherited) })
				before[inherited] = true
			}
		}
	}
	for n := range 20 {
		given, _ := near.connect(l.Addr())
		req := receive(t, requests)
		inherit()
		assert.NilError(t, given.Close())
		req.Reject(nil, true) // it reaches a socket that the first end has left

		active, events := near.connect(l.Addr())
		req = receive(t, requests)
		established := make(chan fabric.ConnEvent, 16)
		passive, err := req.Accept(far.newQP(), fabric.AcceptParams{}, func(ev fabric.ConnEvent) { established <- ev })
		assert.NilError(t, err)
		assert.Equal(t, receive(t, events).Kind, fabric.EventEstablished, "connection %d", n)
		assert.Equal(t, receive(t, established).Kind, fabric.EventEstablished)
		inherit()
		assert.NilError(t, active.Close())
		assert.NilError(t, passive.Close())
	}
}

// sockets returns those descriptors of this process that are sockets.
func sockets(t *testing.T) map[int]bool {
	t.Helper()
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	found := map[int]bool{}
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			fd, err := strconv.Atoi(e.Name())
			assert.NilError(t, err)
			found[fd] = true
		}
	}
	return found
}
