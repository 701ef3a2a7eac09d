package rdmanet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
)

// TestDialWithoutFiles: the error of a Dial that finds no free descriptor says so, and does not
// blame the network. A later Dial succeeds.
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
	// The limit is 0. With a higher one Dial could get the descriptor that the first connection gives
	// back, and then the listener would be the one to fail.
	enough := leaktest.LimitFiles(t, 0)
	err = dial()
	enough()
	assert.ErrorIs(t, err, syscall.EMFILE)
	assert.Assert(t, !errors.Is(err, syscall.EHOSTUNREACH), err)
	assert.Assert(t, !strings.Contains(err.Error(), "firewall"), err)
	assert.NilError(t, dial())
}

// TestAcceptWithoutFiles: while the process can open no file for a connection, Accept returns
// temporary errors that name the limit. Later it accepts again.
func TestAcceptWithoutFiles(t *testing.T) {
	const device = "tcp:127.0.0.1"
	l := listen(t, device, rdmanet.ListenConfig{})
	stranger, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(stranger)
	enough := leaktest.LimitFiles(t, 3)
	to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(addrOf(l.Addr()).Port())}
	assert.NilError(t, unix.Connect(stranger, to))
	assert.NilError(t, l.SetDeadline(time.Now().Add(patience)))
	for range 2 {
		_, err = l.Accept()
		assert.ErrorIs(t, err, syscall.EMFILE)
		assert.ErrorContains(t, err, "RLIMIT_NOFILE")
		assert.Assert(t, err.(interface{ Temporary() bool }).Temporary())
	}
	enough()
	c, err := dial(t, device, l)
	assert.NilError(t, err)
	defer c.Close()
	for { // an error may have been queued meanwhile
		s, err := l.Accept()
		if err == nil {
			assert.NilError(t, s.Close())
			return
		}
		assert.ErrorIs(t, err, syscall.EMFILE)
	}
}

// TestDialWithOneFile: a Dial that finds a free descriptor for its socket, but not the second one
// that the connection needs, says the same, and is not refused.
func TestDialWithOneFile(t *testing.T) {
	if portable {
		t.Skip("a connection needs one descriptor")
	}
	const device = "tcp:127.0.0.1"
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+device, tlstest.Env+"=") // with TLS a connection needs one descriptor
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var to string
	_, err = fmt.Fscan(out, &to)
	assert.NilError(t, err)
	zone, err := rdmanet.NewZone(device, rdmanet.Path{}) // the device is open from now on
	assert.NilError(t, err)
	defer zone.Close()
	dial := func() error {
		c, err := (&rdmanet.Dialer{Device: device}).Dial(t.Context(), "rdma", to)
		if err != nil {
			return err
		}
		return c.Close()
	}
	for range 10 { // an earlier test may close a file meanwhile, which Dial can then have
		f, err2 := os.Open(os.DevNull) // gets the least number that is free
		assert.NilError(t, err2)
		limit := uint64(f.Fd()) + 1
		assert.NilError(t, f.Close())
		enough := leaktest.LimitFiles(t, limit)
		err = dial()
		enough()
		if err != nil {
			break
		}
	}
	assert.ErrorIs(t, err, syscall.EMFILE)
	assert.Assert(t, !errors.Is(err, syscall.ECONNREFUSED), err)
	assert.NilError(t, dial())
}
