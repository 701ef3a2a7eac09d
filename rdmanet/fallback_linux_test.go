package rdmanet_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// TestFallbackSettings: connections of the fallback to TCP have the settings of the Dialer and of
// the ListenConfig.
func TestFallbackSettings(t *testing.T) {
	for _, p := range udat.Providers() {
		if p.Fabric == "verbs" && p.Active {
			t.Skip("this host has an RDMA device")
		}
	}
	keepAlive := func(c net.Conn) (on, idle int) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		assert.NilError(t, err)
		raw.Control(func(fd uintptr) {
			on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			idle, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		})
		return on, idle
	}
	fallback := func(error) {}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 7)}
	for _, keep := range []time.Duration{7 * time.Second, -1} {
		lc := rdmanet.ListenConfig{Fallback: fallback, KeepAlive: keep}
		l, err := lc.ListenNet(t.Context(), "rdma", "127.0.0.1:0")
		assert.NilError(t, err)
		d := rdmanet.Dialer{Fallback: fallback, KeepAlive: keep, LocalAddr: local}
		c, err := d.DialContext(t.Context(), "rdma", l.Addr().String())
		assert.NilError(t, err)
		s, err := l.Accept()
		assert.NilError(t, err)
		assert.Assert(t, s.RemoteAddr().(*net.TCPAddr).IP.Equal(local.IP))
		for _, end := range []net.Conn{c, s} {
			on, idle := keepAlive(end)
			assert.Equal(t, on == 1, keep > 0)
			assert.Assert(t, on == 0 || idle == 7, "%d s", idle)
			end.Close()
		}
		l.Close()
	}
}
