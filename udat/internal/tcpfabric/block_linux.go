//go:build !portablesocket

package tcpfabric

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// kicker is an eventfd: a write to it ends the Block that polls it.
type kicker struct{ fd int }

var one = []byte{7: 1} // an addend for an eventfd: above 0 in either byte order

func (k *kicker) kick() { unix.Write(k.fd, one) }

// blockers is the number of threads that Block has blocked: at most half as many as the processors
// (Ps) of Go's scheduler, and mostBlockers.
var blockers atomic.Int32

const mostBlockers = 16

// Block waits for the sockets of the set's hot links, and reads them. A thread that blocks for its
// sockets goes on at once. A parked goroutine needs a processor twice: for the device's poller, and
// for itself.
func (s *hotSet) Block(limit time.Duration, over func() bool) bool {
	if s.count.Load() == 0 {
		return false
	}
	if n := blockers.Add(1); int(n) > min(runtime.GOMAXPROCS(0)/2, mostBlockers) {
		blockers.Add(-1)
		return false
	}
	defer blockers.Add(-1)
	k := s.dev.poller.lend()
	if k == nil {
		return false
	}
	defer s.dev.poller.giveBack(k) // a late kick only ends another wait early
	fds := [1 + len(s.links)]unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
	n := 1
	s.watch(false, func(l *link) {
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

// watch sets whether the device's poller reads the links that are hot for waits, and calls f for
// each hot link.
func (s *hotSet) watch(on bool, f func(*link)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.links {
		if l := s.links[i].Load(); l != nil {
			if l.byWait.Load() {
				l.sock.watch(on)
			}
			f(l)
		}
	}
}

// lend returns a kicker, or nil if there is no descriptor for one.
func (p *poller) lend() *kicker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.kickers); n > 0 {
		k := p.kickers[n-1]
		p.kickers = p.kickers[:n-1]
		return k
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil || p.stopped {
		return nil
	}
	return &kicker{fd}
}

func (p *poller) giveBack(k *kicker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		unix.Close(k.fd)
		return
	}
	p.kickers = append(p.kickers, k)
}

// closeKickers closes all kickers, now and when they are given back.
func (p *poller) closeKickers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	for _, k := range p.kickers {
		unix.Close(k.fd)
	}
	p.kickers = nil
}
