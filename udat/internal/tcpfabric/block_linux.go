//go:build !portablesocket

package tcpfabric

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/godat/godat/internal/blocker"
)

type kicker = blocker.Blocker

// Block waits until one of the sockets of the set's hot links is ready, and then reads all of these
// sockets. It blocks the thread, because a blocked thread continues as soon as a socket is ready. A
// parked goroutine would need a processor twice: for the device's poller, and then for itself.
// Block makes the links hot for waits (see hotSet), because a caller that waits may not poll again
// soon.
func (s *hotSet) Block(limit time.Duration, over func() bool) bool {
	if s.count.Load() == 0 {
		return false
	}
	k := blocker.Take()
	if k == nil {
		return false
	}
	defer k.GiveBack() // a late kick only ends another wait early
	var fds [1 + len(s.links)]unix.PollFd
	n := 1
	s.watch(false, func(l *link) {
		l.byWait.Store(true)
		fds[n] = unix.PollFd{Fd: int32(l.sock.(*sock).fd), Events: unix.POLLIN | unix.POLLRDHUP}
		n++
	})
	s.blocked.Store(k)
	kicked := over() // a later Kick finds k
	if !kicked {
		kicked = k.Wait(fds[:n], limit)
	}
	s.blocked.Store(nil)
	got := s.Idle()
	s.watch(true, func(*link) {})
	return got || kicked
}

// watch calls f for each hot link. If the parameter on is true, watch also makes the device's
// poller read the sockets of the links that are hot for waits. If it is false, the poller no longer
// reads these sockets.
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
