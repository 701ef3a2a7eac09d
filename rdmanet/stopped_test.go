//go:build unix

package rdmanet_test

import (
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestCloseToStoppedPeers closes connections to stopped processes, as http.Server.Shutdown does.
// The Closes together take little more than the first, which is already shorter if a test before
// this one has closed in vain.
func TestCloseToStoppedPeers(t *testing.T) {
	const (
		dev       = "tcp:127.0.0.1"
		n         = 6
		closeMost = 500 * time.Millisecond
	)
	var conns []*rdmanet.Conn
	for range n {
		c, cmd := otherProcess(t, dev, rdmanet.ListenConfig{})
		assert.NilError(t, cmd.Process.Signal(syscall.SIGSTOP))
		conns = append(conns, c)
	}
	start, first := time.Now(), time.Duration(0)
	for _, c := range conns {
		assert.NilError(t, c.Close())
		if first == 0 {
			first = time.Since(start)
		}
	}
	all := time.Since(start)
	assert.Assert(t, all < 3*first+closeMost, "%d take %v, the first %v", n, all, first)
}
