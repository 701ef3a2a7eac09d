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
	d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7}, nil).(*Device)
	c := loopback(t)
	d.keep(c)
	raw, err := c.SyscallConn()
	assert.NilError(t, err)
	var name string
	assert.NilError(t, raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}))
	assert.NilError(t, err)
	assert.Equal(t, name, "reno")
}
