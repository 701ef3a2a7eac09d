//go:build !portablesocket

package tcpfabric

import (
	"sync"

	"golang.org/x/sys/unix"
)

// kicker is an eventfd: a write to it ends the Block that polls it.
type kicker struct{ fd int }

var one = []byte{7: 1} // an addend for an eventfd: above 0 in either byte order

func (k *kicker) kick() { unix.Write(k.fd, one) }

// kickers are the kickers of a device, as many as have been lent at the same time.
type kickers struct {
	mu     sync.Mutex
	free   []*kicker
	closed bool
}

// lend returns a kicker, or nil if there is no descriptor for one.
func (s *kickers) lend() *kicker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		k := s.free[n-1]
		s.free = s.free[:n-1]
		return k
	}
	if s.closed {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	return &kicker{fd}
}

func (s *kickers) giveBack(k *kicker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		unix.Close(k.fd)
		return
	}
	s.free = append(s.free, k)
}

// close closes all kickers, now and when they are given back.
func (s *kickers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, k := range s.free {
		unix.Close(k.fd)
	}
	s.free = nil
}
