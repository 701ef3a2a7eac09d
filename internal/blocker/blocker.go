//go:build linux

// Package blocker blocks a thread in the kernel until a descriptor is ready. A blocked thread wakes
// sooner than a goroutine in Go's poller, which needs a processor (P) first. But it keeps its P, so
// few threads may block at a time, and not for long.
//
//	if b := blocker.Take(); b != nil {
//		fds := [2]unix.PollFd{1: {Fd: fd, Events: unix.POLLIN}}
//		b.Wait(fds[:], blocker.For)
//		b.GiveBack()
//	}
package blocker

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// For is how long a thread should block at most. It bounds how long other goroutines may wait
	// for the P that the thread keeps. The kernel's scheduler tick comes sooner than 4 ms, so that
	// a wait need not set the hardware timer. That saves 6 to 8% of an event wait in a virtual
	// machine.
	For = 4 * time.Millisecond
	// limit bounds the number of eventfds.
	limit = 16
)

// A Blocker is the right to block one thread. There are min(GOMAXPROCS/2, 16) of them, for the life
// of the process.
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

// Take returns a blocker, or nil if all have been taken. The caller gives it back.
func Take() *Blocker {
	select {
	case b := <-free():
		return b
	default:
		return nil
	}
}

// GiveBack lets others take the blocker. A kick that comes later ends somebody else's wait early.
func (b *Blocker) GiveBack() { free() <- b }

// Wait returns when one of fds is ready, after a kick, or after d; fds[0] is the blocker's own,
// which Wait fills in. It may also return early. One goroutine at a time calls it.
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

// Kick ends the wait that is under way, or the next one. It may be called concurrently.
func (b *Blocker) Kick() { unix.Write(b.kicks, one) }
