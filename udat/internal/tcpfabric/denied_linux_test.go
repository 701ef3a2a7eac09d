package tcpfabric

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestPortDenied: a thread without the privilege that a port needs gets ErrAddrDenied.
func TestPortDenied(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	assert.NilError(t, err)
	if first, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || first < 2 {
		t.Skip("no port needs a privilege here")
	}
	d := openDevice(t, fabric.Options{}, func(fabric.AsyncEvent) {})
	denied := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends without its capabilities
		self := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&self, &make([]unix.CapUserData, 2)[0]); err != nil {
			denied <- err
			return
		}
		_, err := d.Listen(1, nil, func(fabric.Request) {})
		denied <- err
	}()
	err = <-denied
	assert.ErrorIs(t, err, fabric.ErrAddrDenied)
	assert.ErrorIs(t, err, unix.EACCES)
}
