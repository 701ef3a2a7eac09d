//go:build linux && cgo

package cverbs

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestNewcomer: docs/errors.md quotes each of these errors, and each error contains the quoted text
// and advice.
func TestNewcomer(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	assert.NilError(t, err)
	for _, c := range []struct {
		quote, advice string
		err           error
	}{
		{"no permission on /dev/infiniband/", "run as a user that may open it",
			nodeError("ibv_open_device", syscall.EACCES, "/dev/infiniband/uverbs0", "ib_uverbs")},
		{"is missing: load the kernel module", "ib_uverbs",
			nodeError("ibv_open_device", syscall.ENOENT, "/dev/infiniband/uverbs0", "ib_uverbs")},
		{"the locked-memory limit of the process (RLIMIT_MEMLOCK)", "1048576 bytes were asked for",
			pinError("ibv_reg_mr", syscall.ENOMEM, 1<<20)},
		{"has no route", "192.0.2.7:7000",
			addrError(&Error{Verb: "rdma_resolve_addr", Errno: syscall.ENETUNREACH}, netip.MustParseAddrPort("192.0.2.7:7000"))},
		{"nobody listens", "is the server running",
			CMEvent{Type: CMEventRejected, Status: RejectNoListener}.Err()},
	} {
		assert.Check(t, strings.Contains(string(page), "| `"+c.quote+"` |"), "docs/errors.md has no row for %q", c.quote)
		assert.Check(t, strings.Contains(c.err.Error(), c.quote) && strings.Contains(c.err.Error(), c.advice),
			"%v: should contain %q and %q", c.err, c.quote, c.advice)
	}
}

// TestNodeWithoutPermission: if rdma-core returns ENOENT but the file exists, the error is the one
// of opening the file.
func TestNodeWithoutPermission(t *testing.T) {
	node := filepath.Join(t.TempDir(), "uverbs0")
	assert.ErrorContains(t, nodeError("ibv_open_device", syscall.ENOENT, node, "ib_uverbs"), "is missing")
	assert.NilError(t, os.WriteFile(node, nil, 0))
	done := make(chan error)
	go func() {
		// Only this thread becomes the user nobody, and it ends with the goroutine. rdma_cm would refuse
		// later calls of the thread, because another user has opened the file.
		runtime.LockOSThread()
		_, err := unix.SetfsuidRetUid(65534)
		if err == nil {
			err = nodeError("ibv_open_device", syscall.ENOENT, node, "ib_uverbs")
		}
		done <- err
	}()
	err := <-done
	assert.ErrorContains(t, err, "no permission on "+node)
	assert.ErrorIs(t, err, syscall.EACCES)
}
