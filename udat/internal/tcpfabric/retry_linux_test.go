//go:build !portablesocket

package tcpfabric

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestRetryOfSockets: the retries of the options decide how soon TCP gives up a peer: with data
// that is not acknowledged, and without.
func TestRetryOfSockets(t *testing.T) {
	for _, retry := range []uint8{0, 3, 7} {
		d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: retry}, nil).(*Device)
		p := loopback(t)
		d.keep(p)
		raw, err := p.SyscallConn()
		assert.NilError(t, err)
		raw.Control(func(fd uintptr) {
			timeout, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			assert.NilError(t, err)
			assert.Equal(t, timeout, 4000*(int(retry)+1))
			interval, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
			assert.NilError(t, err)
			assert.Equal(t, interval, int(retry)+1)
		})
	}
}
