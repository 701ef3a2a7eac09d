package tcpfabric

import (
	"errors"
	"time"
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
	// watch turns the calls of events.readable on or off. While they are off, a caller reads the
	// socket by polling.
	watch(on bool)
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
