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
	// scheduler tick is shorter, so no timer is set for each wait.
	blockFor = 4 * time.Millisecond
	// blockersMost limits the number of eventfds.
	blockersMost = 16
)

// blocker is the right to block a thread in the kernel until a descriptor is readable. A blocked
// thread wakes sooner than a goroutine in Go's poller, which needs a processor first. There are
// min(GOMAXPROCS/2, blockersMost) blockers, for the life of the process.
type blocker struct {
	kicks int // an eventfd that ends the wait
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

// wait returns when fd is readable, after kick, after limit, or early for no reason.
func (b *blocker) wait(fd int, limit time.Duration) {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(b.kicks), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(limit))
	if n, err := unix.Ppoll(fds[:], &ts, nil); err == nil && n > 0 && fds[1].Revents != 0 {
		var count [8]byte
		unix.Read(b.kicks, count[:])
	}
}

var kick = []byte{7: 1} // adds to an eventfd's count, in either byte order

func (b *blocker) kick() { unix.Write(b.kicks, kick) }
