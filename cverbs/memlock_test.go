//go:build linux

package cverbs

import (
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// With a locked-memory limit of 64 KiB and without CAP_IPC_LOCK a larger registration fails, and
// the error names the limit.
func TestLockedMemoryLimit(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	pd := closing[*PD](t)(ctx.AllocPD())
	var before unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	if before.Max < 64<<10 {
		t.Skip("the limit is lower than 64 KiB already")
	}
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: before.Max}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)

	errs := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // the thread loses its rights, and ends with the goroutine
		errs <- dropIPCLock()
		mr, err := pd.RegMR(make([]byte, 1<<20), AccessLocalWrite)
		if err == nil {
			mr.Close()
		}
		errs <- err
	}()
	assert.NilError(t, <-errs)
	err := <-errs
	isErr(t, err, syscall.ENOMEM)
	assert.ErrorContains(t, err, "1048576 bytes were asked for")
	assert.ErrorContains(t, err, "(RLIMIT_MEMLOCK) is 65536 bytes")
	assert.ErrorContains(t, err, "ulimit -l")
}

func dropIPCLock() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[unix.CAP_IPC_LOCK/32].Effective &^= 1 << (unix.CAP_IPC_LOCK % 32)
	return unix.Capset(&hdr, &data[0])
}
