// Package blocker blocks a thread in the kernel until a descriptor is ready. A blocked thread wakes
// sooner than a goroutine that waits in Go's poller, because such a goroutine first needs a
// processor (P). But the blocked thread keeps its P, so few threads may block at a time, and not
// for long.
//
//	if b := blocker.Take(); b != nil {
//		fds := [2]unix.PollFd{1: {Fd: fd, Events: unix.POLLIN}}
//		b.Wait(fds[:], blocker.For)
//		b.GiveBack()
//	}
package blocker

import "time"

// For is the longest time for which a thread should block. Then its goroutine parks instead. This
// limits how long other goroutines wait for the P that the thread keeps. The time is 4 ms because
// the kernel's scheduler tick comes sooner than that, so a wait need not set the hardware timer.
// That saves 6 to 8% of an event wait in a virtual machine.
const For = 4 * time.Millisecond
