//go:build linux && cgo

package cverbs

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// blockFor is how long a wait blocks its thread before it parks its goroutine. It bounds how
	// long other goroutines may wait for the processor (P) that the thread keeps. The kernel's
	// scheduler tick comes sooner than 4 ms, so that a wait need not set the hardware timer. That
	// saves 6 to 8% of an event wait in a virtual machine.
	blockFor = 4 * time.Millisecond
	// blockersMost limits the number of eventfds.
	blockersMost = 16
)

// blocker is the right to block a thread in the kernel until a descriptor is readable. A blocked
// thread wakes sooner than a goroutine in Go's poller, which needs a processor first. There are
// min(GOMAXPROCS/2, blockersMost) blockers, for the life of the process.
type blocker struct {
	kicks int // an eventfd; a write to it ends the wait
}

var blockers = sync.OnceValue(func() chan *blocker {
	c := make(chan *blocker, min(runtime.GOMAXPROCS(0)/2, blockersMost))
	for range cap(c) {
		if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
			c <- &blocker{fd}
		}
	}
	return c
})

// wait returns when fd is readable, after a kick, or after limit. It may also return early.
func (b *blocker) wait(fd int, limit time.Duration) {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(b.kicks), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(limit))
	if n, err := unix.Ppoll(fds[:], &ts, nil); err == nil && n > 0 && fds[1].Revents != 0 {
		var count [8]byte
		unix.Read(b.kicks, count[:])
	}
}

var kick = []byte{7: 1} // an addend for an eventfd: above 0 in either byte order

func (b *blocker) kick() { unix.Write(b.kicks, kick) }
