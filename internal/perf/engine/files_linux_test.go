package engine

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// fewFiles sets the open-file limit of this process until the test ends.
func fewFiles(t *testing.T, n uint64) {
	t.Helper()
	var usual unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: usual.Max}))
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &usual) })
}

const filesLimit = "open-file limit of the process (RLIMIT_NOFILE, ulimit -n) is reached"

// If the open-file limit allows fewer connections than a case on tcp has queue pairs, the case
// fails. The error names the limit, whichever end runs out of files.
func TestFilesLimit(t *testing.T) {
	fewFiles(t, 128)
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
	fewFiles(t, 3)
	assert.NilError(t, unix.Connect(client, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(at.Port())}))
	assert.ErrorContains(t, l.accept(context.Background(), 0), filesLimit)
}
