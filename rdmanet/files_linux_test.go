package rdmanet_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestDialWithoutFiles: a Dial that finds no free descriptor says so, not that the network is in
// the way. Later it succeeds.
func TestDialWithoutFiles(t *testing.T) {
	const device = "tcp:127.0.0.1"
	l, err := (&rdmanet.ListenConfig{Device: device}).Listen(context.Background(), "rdma", ":0")
	assert.NilError(t, err)
	defer l.Close()
	dial := func() error {
		c, err := (&rdmanet.Dialer{Device: device}).Dial(context.Background(), "rdma", l.Addr().String())
		if err != nil {
			return err
		}
		return c.Close()
	}
	assert.NilError(t, dial()) // the device is open from now on
	var before unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	// The limit is 0. With a higher one Dial could get the descriptor that the first connection gives
	// back, and then the listener would be the one to fail.
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}))
	err = dial()
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	assert.ErrorIs(t, err, syscall.EMFILE)
	assert.Assert(t, !errors.Is(err, syscall.EHOSTUNREACH), err)
	assert.NilError(t, dial())
}
