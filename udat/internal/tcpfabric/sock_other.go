//go:build !linux || portablesocket

package tcpfabric

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// poller does nothing here: each socket has goroutines of its own. The build tag portablesocket
// selects this file on Linux, for its tests.
type poller struct{ waits atomic.Int32 }

func newPoller(func()) (*poller, error) { return new(poller), nil }

func (*poller) stop() {}

func (*poller) again() {}

func (*poller) adopt(c stream, on events) (socket, error) { return newStreamSock(c, on), nil }

func (*poller) take() bool { return false }

func (*poller) leave() {}

func (*poller) poll() bool { return false }

func (*poller) ask() <-chan struct{} { return nil }

func (*poller) yield() {}

func (*poller) serve(*softnic.CQ, time.Time, func() bool) bool { return false }

func (*poller) kick(*softnic.CQ) bool { return false }

// Here TCP has no user timeout: requests of the keep-alive bound the time for data in flight.
const watchesPeers = false

func undelivered(uintptr) (data, closed bool, silent time.Duration) { return false, false, 0 }

func setUserTimeout(uintptr, time.Duration) {}

func segmentSize(*net.TCPConn) int { return 0 }

func unpace(*net.TCPConn) {}

func setKeepAlive(syscall.RawConn, net.KeepAliveConfig) {}
