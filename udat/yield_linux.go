package udat

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// yieldProcessor lets other goroutines and other threads run, those of other processes too.
func yieldProcessor() {
	runtime.Gosched()
	unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
