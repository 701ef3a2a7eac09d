//go:build unix

package rdmanet_test

import (
	"errors"
	"os"
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

// TestStoppedPeer: on tcp the device is a part of the peer's process. An idle connection to a
// stopped process is broken, as one to a host that has vanished. One with a Send in flight is not,
// and on a busy machine a control message may still be in flight: then another connection is tried.
func TestStoppedPeer(t *testing.T) {
	for range 5 {
		c, cmd := otherProcess(t, "tcp:127.0.0.1", rdmanet.ListenConfig{KeepAlive: time.Second})
		read := func(limit time.Duration) error {
			assert.NilError(t, c.SetReadDeadline(time.Now().Add(limit)))
			_, err := c.Read(make([]byte, 1))
			return err
		}
		assert.ErrorIs(t, read(time.Second), os.ErrDeadlineExceeded)
		assert.NilError(t, cmd.Process.Signal(syscall.SIGSTOP))
		err := read(patience / 4)
		if errors.Is(err, syscall.ETIMEDOUT) {
			return
		}
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	t.Fatal("no connection is broken")
}
