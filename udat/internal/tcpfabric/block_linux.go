//go:build !portablesocket

package tcpfabric

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// blockers is the number of threads that Block has blocked: at most half as many as the processors
// (Ps) of Go's scheduler, and mostBlockers.
var blockers atomic.Int32

const mostBlockers = 16

// Block waits for the sockets of the set's hot links, and reads them. A thread that blocks for its
// sockets goes on at once. A parked goroutine needs a processor twice: for the device's poller, and
// for itself. From then on the links are hot for waits: a caller that waits may not come back soon.
func (s *hotSet) Block(limit time.Duration, over func() bool) bool {
	if s.count.Load() == 0 {
		return false
	}
	if n := blockers.Add(1); int(n) > min(runtime.GOMAXPROCS(0)/2, mostBlockers) {
		blockers.Add(-1)
		return false
	}
	defer blockers.Add(-1)
	k := s.dev.poller.kickers.lend()
	if k == nil {
		return false
	}
	defer s.dev.poller.kickers.giveBack(k) // a late kick only ends another wait early
	fds := [1 + len(s.links)]unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
	n := 1
	s.watch(false, func(l *link) {
		l.byWait.Store(true)
		fds[n] = unix.PollFd{Fd: int32(l.sock.(*sock).fd), Events: unix.POLLIN | unix.POLLRDHUP}
		n++
	})
	s.blocked.Store(k)
	kicked := over() // a later Kick finds k
	if !kicked {
		ts := unix.NsecToTimespec(int64(limit))
		ready, err := unix.Ppoll(fds[:n], &ts, nil)
		kicked = err == nil && ready > 0 && fds[0].Revents != 0
	}
	s.blocked.Store(nil)
	if kicked {
		var count [8]byte
		unix.Read(k.fd, count[:])
	}
	got := s.Idle()
	s.watch(true, func(*link) {})
	return got || kicked
}

// watch calls f for each hot link, and sets whether the device's poller reads those that are hot
// for waits.
func (s *hotSet) watch(on bool, f func(*link)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each(func(l *link) {
		f(l)
		if l.byWait.Load() {
			l.sock.watch(on)
		}
	})
}
