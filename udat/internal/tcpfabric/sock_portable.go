//go:build !linux || portablesocket

package tcpfabric

import (
	"net"
	"sync"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// pollable says whether a caller can read a socket by polling.
const pollable = false

// The type kicker and the method Block do nothing here: Block does not wait.
type kicker struct{}

func (*kicker) Kick() {}

func (s *hotSet) Block(time.Duration, func() bool) bool { return false }

// poller does nothing here. Each socket has a goroutine that reads and one that writes. The build
// tag portablesocket selects this file on Linux, for its tests.
type poller struct{}

func newPoller(func() bool) (*poller, error) { return new(poller), nil }

func (*poller) stop() {}

func (*poller) again() {}

// sock is a socket of package net.
type sock struct {
	c  *net.TCPConn
	on events

	mu      sync.Mutex
	in      []byte  // bytes that have come and that read has not returned
	inErr   error   // the error that follows in
	out     []byte  // bytes that are to be written
	lent    *[]byte // the pool's buffer that out uses; nil while out is empty
	outErr  error
	full    bool // a write has found no room
	closing bool // the stream ends after out
	shutted bool

	taken chan struct{} // signals that in is empty
	given chan struct{} // signals that out is not empty, or that the stream ends
}

// portable is the pool for data that comes and data that goes.
var portable = buffers{size: 128 << 10}

// idleRead is the size of the buffer with which an idle connection waits for data.
const idleRead = 4 << 10

func (*poller) adopt(c *net.TCPConn, on events) (socket, error) {
	c.SetDeadline(time.Time{})
	return &sock{c: c, on: on, taken: make(chan struct{}, 1), given: make(chan struct{}, 1)}, nil
}

func (s *sock) start() error {
	go s.reads()
	go s.writes()
	return nil
}

func (s *sock) watch(bool) {}

func (s *sock) later() bool { return false }

// reads passes on what comes until the stream ends. An idle socket waits with a short buffer; a
// buffer of the pool replaces it as long as each Read fills the buffer.
func (s *sock) reads() {
	short := make([]byte, idleRead)
	buf := short
	var lent *[]byte
	for {
		n, err := s.c.Read(buf)
		s.mu.Lock()
		s.in, s.inErr = buf[:n], err
		ended := s.shutted
		s.mu.Unlock()
		if ended {
			return
		}
		for s.on.readable(err != nil) {
		}
		s.on.rest()
		if n > 0 {
			<-s.taken
		}
		if err != nil {
			s.on.readable(true)
			return
		}
		switch {
		case n < len(buf):
			portable.give(&lent)
			buf = short
		case lent == nil:
			lent = portable.take()
			buf = (*lent)[:cap(*lent)]
		}
	}
}

func (s *sock) read(bufs [][]byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.in) == 0 {
		if s.inErr != nil {
			return 0, s.inErr
		}
		return 0, errAgain
	}
	for _, b := range bufs {
		k := copyTo(b, s.in)
		n, s.in = n+k, s.in[k:]
	}
	if len(s.in) == 0 {
		softnic.Ring(s.taken)
	}
	return n, nil
}

func (s *sock) writes() {
	for range s.given {
		s.mu.Lock()
		data, lent := s.out, s.lent
		s.out, s.lent = nil, nil
		s.mu.Unlock()
		_, err := s.c.Write(data)
		portable.give(&lent)
		s.mu.Lock()
		if err != nil {
			s.outErr = err
		}
		full, last := s.full, s.closing && len(s.out) == 0
		s.full = false
		if len(s.out) > 0 || s.closing {
			softnic.Ring(s.given)
		}
		ended := s.shutted
		s.mu.Unlock()
		switch {
		case ended:
			return
		case last:
			s.c.CloseWrite()
			return
		case full:
			s.on.writable()
		}
	}
}

func (s *sock) write(bufs [][]byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outErr != nil {
		return 0, s.outErr
	}
	if s.lent == nil {
		s.lent = portable.take()
		s.out = (*s.lent)[:0]
	}
	for _, b := range bufs {
		k := min(len(b), cap(s.out)-len(s.out))
		end := len(s.out)
		s.out = s.out[:end+k]
		n += copyTo(s.out[end:], b[:k])
	}
	if n == 0 {
		s.full = true
		return 0, errAgain
	}
	softnic.Ring(s.given)
	return n, nil
}

func (s *sock) closeWrite() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	softnic.Ring(s.given)
}

func (s *sock) shut() {
	s.mu.Lock()
	s.shutted = true
	s.in = nil
	s.mu.Unlock()
	s.c.Close()
	softnic.Ring(s.given)
	softnic.Ring(s.taken)
}

// copyTo copies like a device: the race detector does not see the access to the program's memory.
func copyTo(dst, src []byte) int {
	n := min(len(dst), len(src))
	softnic.Move(dst[:n], src[:n])
	return n
}

func tune(*net.TCPConn, time.Duration) (segment int) { return 0 }

func unpace(*net.TCPConn) {}
