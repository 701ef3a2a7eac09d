package tcpfabric

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestSilentHost: a host that does not answer TCP's connection request is UNREACHABLE with
// ETIMEDOUT, as on other devices. Linux ignores such requests while a listener's queue is full.
func TestSilentHost(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	assert.NilError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	assert.NilError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	assert.NilError(t, err)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
	for full := false; !full; {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(int(at.Port())), time.Second)
		if full = err != nil; !full {
			defer c.Close()
		}
	}
	i := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, CMWait: 100 * time.Millisecond}).joins(at)
	defer i.close()
	ev := <-i.events
	assert.Equal(t, ev.Kind, fabric.EventUnreachable, "%v", ev.Err)
	assert.ErrorIs(t, ev.Err, unix.ETIMEDOUT)
}
