//go:build !portablesocket

package tcpfabric

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestNoPacing: a connection within the host has a congestion control that does not pace, whatever
// the host's own is.
func TestNoPacing(t *testing.T) {
	control := func(set string) (name string) {
		c := loopback(t)
		if set == "" {
			openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7}, nil).(*Device).keep(c)
		}
		raw, err := c.SyscallConn()
		assert.NilError(t, err)
		assert.NilError(t, raw.Control(func(fd uintptr) {
			if set != "" {
				err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, set)
			}
			name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		}))
		if err != nil {
			t.Skipf("no process may choose it here: %v", err)
		}
		return name
	}
	assert.Equal(t, control(""), control("reno"))
}
