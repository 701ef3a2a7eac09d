package doctor

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Without CAP_IPC_LOCK the limit applies to root too.
func TestLocksFreely(t *testing.T) {
	if os.Geteuid() != 0 {
		assert.Assert(t, !locksFreely())
		return
	}
	if _, err := os.Stat("/.dockerenv"); err != nil {
		assert.Assert(t, locksFreely())
	}
	lost := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&hdr, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		lost <- err == nil && unix.Capset(&hdr, &caps[0]) == nil && !locksFreely()
	}()
	assert.Assert(t, <-lost)
}
