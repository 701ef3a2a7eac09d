package engine

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/perf/result"
)

const filesLimit = "open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached"

// If the open-file limit allows fewer connections than a case on tcp has queue pairs, the case
// fails. The error names the limit, whichever end runs out of files.
func TestFilesLimit(t *testing.T) {
	leaktest.LimitFiles(t, 128)
	for qps := 120; qps < 128; qps++ {
		c := result.Default()
		c.QPs = qps
		_, err := measure(t, "tcp:127.0.0.1", c)
		assert.ErrorContains(t, err, filesLimit)
	}
}

// If the server has no file for a connection, it does not wait for one until the setup time is
// over.
func TestFilesOfServer(t *testing.T) {
	c := result.Default()
	c.Complete()
	lay, _, err := fit(&c)
	assert.NilError(t, err)
	chosen, err := choose("tcp:127.0.0.1", netip.Addr{})
	assert.NilError(t, err)
	l, err := openLink(&c, lay, chosen)
	assert.NilError(t, err)
	defer l.close()
	at, err := l.listen()
	assert.NilError(t, err)
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(client)
	leaktest.LimitFiles(t, 3)
	assert.NilError(t, unix.Connect(client, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(at.Port())}))
	assert.ErrorContains(t, l.accept(context.Background(), 0), filesLimit)
}
