//go:build !portablesocket

package tcpfabric

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestRetryOfSockets: the retries of the options decide how soon TCP gives up a peer: with data
// that is not acknowledged, and without. That holds at both ends of a connection.
func TestRetryOfSockets(t *testing.T) {
	for _, retry := range []uint8{0, 3, 7} {
		d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: retry}, nil).(*Device)
		l, err := d.listenTCP(0)
		assert.NilError(t, err)
		defer l.Close()
		dialer := net.Dialer{KeepAlive: -1, Control: d.controlDial}
		dialed, err := dialer.Dial("tcp", l.Addr().String())
		assert.NilError(t, err)
		accepted, err := l.AcceptTCP()
		assert.NilError(t, err)
		for _, c := range []*net.TCPConn{dialed.(*net.TCPConn), accepted} {
			defer c.Close()
			d.keep(c)
			raw, err := c.SyscallConn()
			assert.NilError(t, err)
			raw.Control(func(fd uintptr) {
				option := func(level, name int) int {
					value, err := unix.GetsockoptInt(int(fd), level, name)
					assert.NilError(t, err)
					return value
				}
				assert.Equal(t, option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT), 4000*(int(retry)+1))
				assert.Equal(t, option(unix.SOL_SOCKET, unix.SO_KEEPALIVE), 1)
				assert.Equal(t, option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), 10)
				assert.Equal(t, option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT), 3)
				assert.Equal(t, option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), int(retry)+1)
			})
		}
	}
}
