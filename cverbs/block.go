//go:build linux && cgo

package cverbs

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// blockFor is how long a wait blocks its thread before it parks its goroutine. It bounds what others may have to wait for the processor of
	// Go's scheduler that goes with the thread. The kernel's own tick comes sooner, so that no timer is set for each wait.
	blockFor = 4 * time.Millisecond
	// yieldEvery is how long a goroutine blocks again and again before it yields: the runtime takes the processor from one that keeps it for
	// 10 ms, and looks after it every 20 us from then on.
	yieldEvery = 8 * time.Millisecond
	// blockersMost bounds the descriptors that they need.
	blockersMost = 16
)

// blocker is the right to block a thread in the kernel until a descriptor is readable. That wakes sooner than Go's poller, which has to
// find a processor for the goroutine and to rouse the thread that looks after the scheduler. There are blockers for half
// of the processors, for as long as the process runs.
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

// wait returns when fd is readable, after kick, or after limit; or sooner.
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

// block waits in the kernel, for a moment, if the last wait was a short one and a blocker is free. True means that it did, and that what
// is waited for may have come.
func (w *waiter) block(ctx context.Context, deadline time.Time) bool {
	if !w.blocks || !w.brief {
		return false
	}
	var b *blocker
	select {
	case b = <-blockers():
	default:
		return false
	}
	defer func() { blockers() <- b }() // a kick that comes late ends somebody else's wait early, no more
	if w.watch(false) != nil {
		return false
	}
	now := time.Now()
	if now.Sub(w.yielded) > yieldEvery {
		w.yielded = now
		runtime.Gosched()
	}
	limit := blockFor
	if !deadline.IsZero() {
		limit = min(limit, deadline.Sub(now))
	}
	w.blocked.Store(b)
	if limit > 0 && !w.over(ctx) { // what happens after this look finds the blocker
		b.wait(w.fd, limit)
	}
	w.blocked.Store(nil)
	return true
}

// over tells whether something has ended the wait.
func (w *waiter) over(ctx context.Context) bool {
	select {
	case <-w.done:
		return true
	default:
		return w.woken.Load() || ctx.Err() != nil
	}
}
