package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/rdmanet"
)

// pattern is a stream of known bytes: the payloads of messages, one after the other. Read generates
// the bytes until stop is set. Write checks them.
type pattern struct {
	id    uint8
	seq   uint64
	buf   [slotSize]byte
	rest  []byte // the rest of the latest payload
	bytes int64
	stop  *atomic.Bool
}

var errWrongBytes = errors.New("wrong bytes")

// next returns up to n bytes of the stream.
func (p *pattern) next(n int) []byte {
	if len(p.rest) == 0 {
		p.rest = p.buf[:payloadLength(p.seq)]
		fill(p.rest, p.id, p.seq)
		p.seq++
	}
	b := p.rest[:min(n, len(p.rest))]
	p.rest = p.rest[len(b):]
	p.bytes += int64(len(b))
	return b
}

func (p *pattern) Read(b []byte) (n int, err error) {
	if p.stop.Load() {
		return 0, io.EOF
	}
	for n < len(b) {
		n += copy(b[n:], p.next(len(b)-n))
	}
	return n, nil
}

func (p *pattern) Write(b []byte) (n int, err error) {
	for n < len(b) {
		at, want := p.bytes, p.next(len(b)-n)
		if !bytes.Equal(b[n:n+len(want)], want) {
			return n, fmt.Errorf("%w in the %d from %d on", errWrongBytes, len(want), at)
		}
		n += len(want)
	}
	return n, nil
}

// stream is one end of a connection with checked traffic in both directions.
type stream struct {
	c    *rdmanet.Conn
	in   pattern
	out  pattern
	stop atomic.Bool // of out: the stream ends here
	lost atomic.Bool // a call has failed
	done sync.WaitGroup

	sent   int64 // bytes that Write or ReadFrom has taken
	inErr  error // nil: the peer has ended its stream
	outErr error // nil: this end has ended its own
}

// newStream starts the traffic of one end of a connection. The parameter dialed is true at the end
// that dialed. The end uses Read and Write if seed is even, WriteTo and ReadFrom if it is odd.
func newStream(c *rdmanet.Conn, seed uint64, dialed bool) *stream {
	if seed%2 == 1 {
		return startStream(c, c, c, seed, dialed)
	}
	return startStream(c, struct{ io.Reader }{c}, struct{ io.Writer }{c}, seed, dialed)
}

// startStream is like newStream, but reads from r and writes to w.
func startStream(c *rdmanet.Conn, r io.Reader, w io.Writer, seed uint64, dialed bool) *stream {
	s := &stream{c: c, in: pattern{id: 1, seq: seed << 24}, out: pattern{id: 2, seq: seed << 24}}
	if dialed {
		s.in.id, s.out.id = s.out.id, s.in.id
	}
	s.out.stop = &s.stop
	s.done.Go(func() {
		if _, s.inErr = io.CopyBuffer(&s.in, r, make([]byte, 9001)); errors.Is(s.inErr, errWrongBytes) {
			c.SetLinger(0) // so that the other end does not wait for a reader
			c.Close()
		}
		if s.inErr != nil {
			s.lost.Store(true)
		}
	})
	s.done.Go(func() {
		if s.sent, s.outErr = io.CopyBuffer(w, &s.out, make([]byte, 7001)); s.outErr == nil {
			s.outErr = c.CloseWrite()
		}
		if s.outErr != nil {
			s.lost.Store(true)
		}
	})
	return s
}

// flowed has the numbers of bytes that an end of a stream has sent and received, to be compared
// with those of the other end.
type flowed struct {
	Sent, Taken int64
	Error       string
}

// finish ends this end's stream and waits for the end of the peer's.
func (s *stream) finish() flowed {
	s.stop.Store(true)
	s.done.Wait()
	f := flowed{Sent: s.sent, Taken: s.in.bytes}
	if err := errors.Join(s.inErr, s.outErr, s.c.Close()); err != nil {
		f.Error = err.Error()
	}
	return f
}

// agree checks that each end has received what the other end has sent.
func agree(here, there flowed) error {
	if here.Error != "" || there.Error != "" || here.Sent != there.Taken || there.Sent != here.Taken {
		return fmt.Errorf("this end: %+v, the other: %+v", here, there)
	}
	return nil
}

// broken checks the end of a stream whose peer has died. Reading and writing must have failed, and
// the bytes that were read must be right.
func (s *stream) broken() error {
	s.done.Wait()
	switch {
	case s.inErr == nil || errors.Is(s.inErr, io.EOF):
		return fmt.Errorf("after %d bytes the stream of a peer that has died looks complete", s.in.bytes)
	case errors.Is(s.inErr, errWrongBytes):
		return s.inErr
	case s.outErr == nil:
		return errors.New("writing to a peer that has died does not fail")
	}
	return s.c.Close()
}
