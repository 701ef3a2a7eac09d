package rdmanet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// writeError is why Write fails; nil if it does not. mu is held.
func (c *Conn) writeError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.out.fin || c.peerGone:
		return syscall.EPIPE
	case c.state == stateDead:
		return c.err
	case c.writeEnd.passed:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// space waits for free memory in the ring of what is to be sent, and returns what lies in one
// piece; want are the bytes to be written. wmu is held.
func (c *Conn) space(want int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stalled := false; ; stalled = true {
		if err := c.writeError(); err != nil {
			return nil, err
		}
		out := &c.out
		free := out.ring.cur.size - (out.appended - max(out.freed, out.ring.from))
		if out.growth == growthNone && uint64(want) > free {
			c.growSend()
			continue
		}
		if free > 0 {
			m, n := out.ring.at(out.appended, free)
			return m.bytes(out.appended, n), nil
		}
		if !stalled {
			c.out.stalls++
		}
		c.wait(&c.writable)
	}
}

// growSend replaces the small ring by one of the full size; if that cannot be had it stays. wmu and
// mu are held; mu is free meanwhile.
func (c *Conn) growSend() {
	c.out.growth = growthOver
	if c.cfg.writeBuffer <= firstSend {
		return
	}
	c.mu.Unlock()
	m, err := c.newMemory(c.cfg.writeBuffer, 0)
	c.mu.Lock()
	if err != nil {
		c.cfg.logGrowth("WriteBuffer", c.cfg.writeBuffer, c.remote, err)
		return
	}
	c.out.ring.grow(m, c.out.appended)
	c.out.ring.shed(c.out.freed)
}

// append adds to the stream n bytes, which the caller has copied into the memory that space
// returned. It fails if the stream has been ended meanwhile. wmu is held.
func (c *Conn) append(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &c.out
	if c.closed || out.fin {
		return c.writeError()
	}
	out.appended += uint64(n)
	c.push()
	if out.posted < out.appended && c.d.lead() { // credit may have come
		c.mu.Unlock()
		c.d.dequeue()
		c.d.leave()
		c.mu.Lock()
	}
	if out.posted < out.appended && c.state != stateDead && !out.held {
		out.held = true
		c.d.block()
	}
	return nil
}

// Write writes p to the stream and returns once all of it has been copied: it may be used again. It
// blocks while the peer does not read and WriteBuffer is full, until the write deadline
// (os.ErrDeadlineExceeded), or until the connection is closed or broken. Small writes go out at
// once, or together if many are under way. It allocates nothing.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, err := c.writePieces(p, nil)
	return n, c.opError("write", err)
}

// waste reports whether this is the first Write after the peer has closed: its bytes are dropped
// and the next one is EPIPE, as over TCP. A protocol that says goodbye to a peer that has left, as
// TLS does, ends without an error.
func (c *Conn) waste() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.peerGone || c.wasted || c.closed || c.out.fin || c.writeEnd.passed {
		return false
	}
	c.wasted = true
	return true
}

// writePieces writes p and then q to the stream, with no other call's bytes between; wmu is held.
func (c *Conn) writePieces(p, q []byte) (total int, err error) {
	size := len(p) + len(q)
	if size == 0 { // it needs no space
		c.mu.Lock()
		defer c.mu.Unlock()
		return 0, c.writeError()
	}
	if c.waste() {
		return size, nil
	}
	for {
		b, err := c.space(size - total)
		if err != nil {
			return total, err
		}
		b = b[:min(len(b), max(c.cfg.writeBuffer/4, minRing))]
		n := copy(b, p)
		p = p[n:]
		if len(p) == 0 {
			k := copy(b[n:], q)
			q = q[k:]
			n += k
		}
		if err := c.append(n); err != nil {
			return total, err
		}
		if total += n; total == size {
			return total, nil
		}
	}
}

// copyBuffers are those of ReadFrom.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom writes what it reads from r, until io.EOF, to the stream. While r has nothing other
// calls may Write.
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			k, err := c.Write(buf[:n])
			total += int64(k)
			if err != nil {
				return total, err
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// CloseWrite ends the stream to the peer, which reads io.EOF after the data written before. Reads
// of this end go on. A Write that is blocked returns EPIPE.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.writeError(); err != nil && err != os.ErrDeadlineExceeded {
		return c.opError("close", err)
	}
	c.out.fin = true
	c.owe(kindFin)
	c.push()
	c.wake(&c.writable)
	return nil
}
