package tcpfabric

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// errAgain means that a socket has nothing to read, or no room to write.
var errAgain = errors.New("the socket is not ready")

// past is a deadline in the past. A call that waits ends when this deadline is set.
var past = time.Unix(1, 0)

// socket is a connected TCP socket whose methods do not block. At any time one goroutine may read
// and one may write. Once shut is called, no goroutine may do either.
type socket interface {
	// read reads into bufs, in order. io.EOF is the end of the stream. After errAgain,
	// events.readable will be called.
	read(bufs [][]byte) (int, error)
	// write writes bufs, in order. After errAgain, events.writable will be called.
	write(bufs [][]byte) (int, error)
	// broken returns the error with which a write has ended; nil: none. The kernel gives an error of
	// the stream to one call only: after a write has got it, read returns io.EOF.
	broken() error
	// raw calls f with the descriptor.
	raw(f func(fd uintptr))
	// A call of later makes the socket call events.writable as soon as there is room to write, but
	// after the events of other sockets that are ready now. It returns false if the socket has
	// goroutines of its own.
	later() bool
	// closeWrite ends the stream from this end to the peer.
	closeWrite()
	// start makes the socket call its events.
	start() error
	// pollable reports whether a caller can read the socket by polling.
	pollable() bool
	// shut closes the socket.
	shut()
}

// events are the functions that a socket calls.
type events interface {
	// readable reads what has come. It returns true if it has stopped before it has read everything.
	// The parameter end is true if the stream ends, or is broken, after the bytes that can be read.
	readable(end bool) (more bool)
	writable()
	// rest is called after readable, when readable has been called for all other ready sockets too.
	rest()
}

// stream is a TCP connection of package net, or TLS on one.
type stream interface {
	net.Conn
	CloseWrite() error
}

// tcpOf returns the TCP connection that carries the stream.
func tcpOf(c stream) *net.TCPConn {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn().(*carrier).TCPConn
	}
	return c.(*net.TCPConn)
}

// withFD calls f with the descriptor of the connection, unless the connection is closed.
func withFD(c *net.TCPConn, f func(fd uintptr)) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(f)
	}
}

// maxHandshake is how many bytes of a peer's handshake are taken.
const maxHandshake = 32 << 10

var errHandshake = fmt.Errorf("the handshake has more than %d KiB: use fewer certificates", maxHandshake>>10)

// carrier is a TCP connection below TLS. Package tls takes an end of TCP's stream for one of its
// own, though anybody between the two hosts can end TCP's stream. The end of TLS's stream comes
// before.
type carrier struct {
	*net.TCPConn
	left int // bytes that the peer may still send, else the handshake fails
}

func (c *carrier) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if c.left -= n; c.left < 0 {
		return 0, errHandshake
	}
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

// streamSock is the socket of a stream that package net reads and writes: of TLS, and of every
// stream where there is no poller. It has a goroutine that reads and one that writes.
type streamSock struct {
	c  stream
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
	writing sync.Mutex // held during a write, and until outErr has its error

	taken chan struct{} // signals that in is empty
	given chan struct{} // signals that out is not empty, or that the stream ends
}

// portable is the pool for data that comes and data that goes.
var portable = buffers{size: 128 << 10}

// idleRead is the size of the buffer with which an idle connection waits for data.
const idleRead = 4 << 10

func newStreamSock(c stream, on events) *streamSock {
	c.SetDeadline(time.Time{})
	return &streamSock{c: c, on: on, taken: make(chan struct{}, 1), given: make(chan struct{}, 1)}
}

func (s *streamSock) pollable() bool { return false }

func (s *streamSock) start() error {
	go s.reads()
	go s.writes()
	return nil
}

func (s *streamSock) later() bool { return false }

// reads passes on what comes until the stream ends. An idle socket waits with a short buffer; a
// buffer of the pool replaces it as long as each Read fills the buffer.
func (s *streamSock) reads() {
	short := make([]byte, idleRead)
	buf := short
	var lent *[]byte
	for {
		n, err := s.c.Read(buf)
		if err != nil { // a write that is under way may have got the error; the peer takes no more
			s.c.SetWriteDeadline(time.Now().Add(graceLimit))
			s.writing.Lock()
			s.writing.Unlock() //lint:ignore SA2001 holding it once is the wait
		}
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

func (s *streamSock) read(bufs [][]byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.in) == 0 {
		if s.inErr != nil {
			return 0, s.inErr
		}
		return 0, errAgain
	}
	for _, b := range bufs {
		k := min(len(b), len(s.in))
		if !softnic.Move(b[:k], s.in[:k]) { // like a device: the race detector does not see the access
			return 0, syscall.EFAULT
		}
		n, s.in = n+k, s.in[k:]
	}
	if len(s.in) == 0 {
		softnic.Ring(s.taken)
	}
	return n, nil
}

func (s *streamSock) writes() {
	for range s.given {
		s.mu.Lock()
		data, lent := s.out, s.lent
		s.out, s.lent = nil, nil
		s.mu.Unlock()
		s.writing.Lock()
		_, err := s.c.Write(data)
		portable.give(&lent)
		s.mu.Lock()
		if err != nil && s.outErr == nil {
			s.outErr = err
		}
		s.writing.Unlock()
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

func (s *streamSock) write(bufs [][]byte) (n int, err error) {
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
		if !softnic.Move(s.out[end:], b[:k]) {
			s.out = s.out[:end]
			return 0, syscall.EFAULT
		}
		n += k
	}
	if n == 0 {
		s.full = true
		return 0, errAgain
	}
	softnic.Ring(s.given)
	return n, nil
}

func (s *streamSock) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outErr
}

func (s *streamSock) raw(f func(fd uintptr)) { withFD(tcpOf(s.c), f) }

func (s *streamSock) closeWrite() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	softnic.Ring(s.given)
}

func (s *streamSock) shut() {
	s.mu.Lock()
	s.shutted = true
	s.in = nil
	s.mu.Unlock()
	tcpOf(s.c).Close() // without TLS's farewell, which may wait for the peer; closeWrite has sent it
	softnic.Ring(s.given)
	softnic.Ring(s.taken)
}
