//go:build linux

package blocker

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// limit bounds the number of eventfds.
const limit = 16

// A Blocker is the right to block one thread. A process has min(GOMAXPROCS/2, 16) Blockers. They
// exist until the process ends.
type Blocker struct {
	kicks int // an eventfd; a write to it ends the wait
}

var free = sync.OnceValue(func() chan *Blocker {
	c := make(chan *Blocker, min(runtime.GOMAXPROCS(0)/2, limit))
	for range cap(c) {
		if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
			c <- &Blocker{fd}
		}
	}
	return c
})

// Free returns how many blockers can be taken.
func Free() int { return len(free()) }

// Take returns a blocker, or nil if all have been taken. The caller must call GiveBack.
func Take() *Blocker {
	select {
	case b := <-free():
		return b
	default:
		return nil
	}
}

// GiveBack makes the blocker available to other callers. A Kick after GiveBack ends the next
// owner's wait early.
func (b *Blocker) GiveBack() { free() <- b }

// Wait blocks until one of fds is ready, until Kick is called, or until d has passed. It may also
// return early. The caller leaves fds[0] free, because Wait puts the blocker's own descriptor
// there. It returns true if Kick ended the wait. Only one goroutine at a time may call Wait.
func (b *Blocker) Wait(fds []unix.PollFd, d time.Duration) (kicked bool) {
	fds[0] = unix.PollFd{Fd: int32(b.kicks), Events: unix.POLLIN}
	ts := unix.NsecToTimespec(int64(d))
	n, err := unix.Ppoll(fds, &ts, nil)
	if err != nil || n <= 0 || fds[0].Revents == 0 {
		return false
	}
	var count [8]byte
	unix.Read(b.kicks, count[:])
	return true
}

var one = []byte{7: 1} // an addend for an eventfd: above 0 in either byte order

// Kick ends the wait that is under way. If no wait is under way, it ends the next one. Kick may be
// called concurrently.
func (b *Blocker) Kick() { unix.Write(b.kicks, one) }
