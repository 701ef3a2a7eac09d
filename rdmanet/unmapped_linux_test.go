//go:build !portablesocket

package rdmanet

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestUnmapped: a peer reads memory that has no pages any more, because its file was truncated. The
// peer gets the error at once, and not only after the time of a dead peer. The connection ends at
// both ends, and the error at the owner names the memory as the reason.
func TestUnmapped(t *testing.T) {
	const size = 1 << 20
	client, server := endsWith(t, ListenConfig{Device: "tcp:127.0.0.1"})
	file, err := os.Create(filepath.Join(t.TempDir(), "table"))
	assert.NilError(t, err)
	defer file.Close()
	assert.NilError(t, file.Truncate(size))
	mem, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.NilError(t, err)
	defer unix.Munmap(mem)
	far, err := server.NewRegion(mem, PeerReads)
	assert.NilError(t, err)
	near, err := client.NewRegion(make([]byte, size), 0)
	assert.NilError(t, err)
	assert.NilError(t, client.ReadRemote(t.Context(), near, 0, far.Remote()))
	assert.NilError(t, file.Truncate(0))
	ended := make(chan error, 2)
	go func() { ended <- client.ReadRemote(t.Context(), near, 0, far.Remote()) }()
	go func() {
		_, err := server.Read(make([]byte, 1))
		if !errors.Is(err, syscall.EFAULT) {
			t.Errorf("the owner of the memory hears: %v", err)
		}
		ended <- err
	}()
	for range 2 {
		select {
		case err := <-ended:
			assert.Assert(t, err != nil)
		case <-time.After(hostilePatience):
			t.Fatal("the connection does not end")
		}
	}
}
