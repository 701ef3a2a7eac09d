package engine

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// If the open-file limit allows fewer connections than a case on tcp has queue pairs, the case
// fails before it connects. The error names the limit.
func TestFilesLimit(t *testing.T) {
	var usual unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	few := usual
	few.Cur = 128
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)
	c := result.Default()
	c.QPs = 128
	_, err := measure(t, "tcp:127.0.0.1", c)
	assert.ErrorContains(t, err, "--qps 128: each connection takes a file; this process may open 128 files (ulimit -n)")
}
