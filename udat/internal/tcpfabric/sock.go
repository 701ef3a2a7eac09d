package tcpfabric

import (
	"errors"
	"time"
)

// errAgain says that a socket has nothing to read, or no room for more.
var errAgain = errors.New("the socket is not ready")

// past is a deadline that ends what waits.
var past = time.Unix(1, 0)

// socket is a connected TCP socket whose calls do not block. One goroutine at a time reads, one
// writes, and none does either from the call of shut on.
type socket interface {
	// read reads into bufs, in order; io.EOF is the end. errAgain: events.readable will follow.
	read(bufs [][]byte) (int, error)
	// write writes bufs, in order. errAgain: events.writable will follow.
	write(bufs [][]byte) (int, error)
	// closeWrite ends the stream to the peer.
	closeWrite()
	// start lets the events come.
	start() error
	// watch says whether readable is to be called. While it is not, somebody reads by polling.
	watch(on bool)
	// shut closes the socket.
	shut()
}

// events are the functions that a socket calls.
type events interface {
	// readable reads all that has come, or returns true if it has stopped before that. end means that
	// the stream has ended, or is broken, behind the bytes that can be read.
	readable(end bool) (more bool)
	writable()
	// rest is called after readable, when the other sockets have had theirs.
	rest()
}
