//go:build !portablesocket

package tcpfabric

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestVanishedHost: a connection whose peer's host has vanished ends, whether it is idle or has
// data in flight. It does not end if the peer's program does nothing, as one that is stopped: its
// host answers the probes.
func TestVanishedHost(t *testing.T) {
	v := newVictimWith(t, fabric.Options{RNRRetry: 7, KeepAlive: time.Second})
	assert.Assert(t, v.dev.Attr().WatchesPeers)
	stopped, alive := v.quiet()
	idle, fd := v.quiet()
	vanish(t, fd)
	busy, fd := v.quiet()
	vanish(t, fd)
	_, err := busy.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpWrite}}, nil)
	assert.NilError(t, err)
	for _, s := range []*session{idle, busy} {
		ev := s.next()
		assert.Equal(t, ev.Kind, fabric.EventUnreachable)
		assert.ErrorIs(t, ev.Err, unix.ETIMEDOUT)
	}
	info, err := unix.GetsockoptTCPInfo(alive, unix.IPPROTO_TCP, unix.TCP_INFO)
	assert.NilError(t, err)
	assert.Assert(t, info.Last_ack_recv < info.Last_data_recv/2, "the host has not been probed")
	assert.Equal(t, len(stopped.events), 0)
}

// quiet returns the victim's end of a connection without data in flight, and its descriptor.
func (v *victim) quiet() (s *session, fd int) {
	v.t.Helper()
	_, s = v.joined()
	fd = linkOf(s.qp.(*softnic.QP)).sock.(*sock).fd
	within(v.t, "the hello is not acknowledged", func() bool { return !inFlight(fd) })
	return s, fd
}

func inFlight(fd int) bool {
	data, _, _ := undelivered(uintptr(fd))
	return data
}

// vanish makes the kernel drop what comes from the peer's host.
func vanish(t *testing.T, fd int) {
	t.Helper()
	assert.NilError(t, unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}))
}

// TestUserTimeout: TCP's user timeout is on while the peer's host has not acknowledged data. It is
// off on an idle connection, where it would end the keep-alive after one probe.
func TestUserTimeout(t *testing.T) {
	v := newVictim(t)
	d := v.dev.(*Device)
	s, fd := v.quiet()
	timeout := func() (ms int) {
		d.check(closedLimit)
		ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		assert.NilError(t, err)
		return ms
	}
	assert.Equal(t, timeout(), 0)
	vanish(t, fd)
	_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpWrite}}, nil)
	assert.NilError(t, err)
	assert.Equal(t, timeout(), 32000)
	assert.NilError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0))
	within(t, "the host is not back", func() bool { return !inFlight(fd) })
	assert.Equal(t, timeout(), 0)
}

// TestKeepAliveOfSockets: the interval of the keep-alive and the retries decide how soon TCP gives
// up a peer, at both ends: on an idle connection, whose user timeout is off, and with data in
// flight.
func TestKeepAliveOfSockets(t *testing.T) {
	for _, c := range []struct {
		every                             time.Duration
		retry                             uint8
		on, idle, interval, probes, limit int
	}{
		{10 * time.Second, 7, 1, 10, 8, 3, 32},
		{10 * time.Second, 0, 1, 10, 1, 3, 4},
		{2 * time.Second, 7, 1, 2, 2, 3, 32},
		{time.Hour, 7, 1, 3600, 8, 3, 32},
		{0, 7, 0, 0, 0, 0, 32},
	} {
		d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: c.retry, KeepAlive: c.every}, nil).(*Device)
		assert.Equal(t, d.userTimeout(), time.Duration(c.limit)*time.Second)
		l, err := d.listenTCP(0)
		assert.NilError(t, err)
		defer l.Close()
		dialer := net.Dialer{KeepAlive: -1, Control: d.controlDial}
		dialed, err := dialer.Dial("tcp", l.Addr().String())
		assert.NilError(t, err)
		accepted, err := l.AcceptTCP()
		assert.NilError(t, err)
		for _, conn := range []*net.TCPConn{dialed.(*net.TCPConn), accepted} {
			defer conn.Close()
			d.keep(conn)
			withFD(conn, func(fd uintptr) {
				get := func(level, name, want int) {
					t.Helper()
					n, err := unix.GetsockoptInt(int(fd), level, name)
					assert.NilError(t, err)
					assert.Equal(t, n, want)
				}
				get(unix.SOL_SOCKET, unix.SO_KEEPALIVE, c.on)
				get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0)
				if c.on > 0 {
					get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, c.idle)
					get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, c.interval)
					get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT, c.probes)
				}
			})
		}
	}
}
