package rdmanet

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// writeError returns the error of a Write, or nil if the Write may go on. If it returns EPIPE, it
// also sets c.wasted, so that each later Write fails too. mu is held.
func (c *Conn) writeError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.out.fin || c.peerGone:
		c.wasted = true // also the next Write fails
		return syscall.EPIPE
	case c.state == stateDead:
		return c.err
	case c.writeEnd.passed:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// space waits for free memory in the send ring and returns the part of it that is contiguous. The
// parameter want is the number of bytes to write. wmu is held.
func (c *Conn) space(ctx context.Context, want int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stalled := false; ; stalled = true {
		err := c.writeError()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
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
		c.waitContext(ctx, &c.writable, true)
	}
}

// growSend replaces the small send ring by one of the full size. If the memory cannot be
// registered, the small ring stays. wmu and mu are held; mu is released during the registration.
func (c *Conn) growSend() {
	c.out.growth = growthOver
	if c.cfg.writeBuffer <= firstSend {
		return
	}
	c.mu.Unlock()
	m, err := c.newFullRing(c.cfg.writeBuffer, 0)
	c.mu.Lock()
	if err != nil {
		c.cfg.logGrowth("WriteBuffer", c.cfg.writeBuffer, c.remote, err)
		return
	}
	c.out.ring.grow(m, c.out.appended)
	c.out.ring.shed(c.out.freed)
}

// append appends n bytes to the stream. The caller has copied them into the memory that the method
// space returned. It returns an error if the stream was closed since then. wmu is held.
func (c *Conn) append(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &c.out
	if c.closed || out.fin {
		return c.writeError()
	}
	out.appended += uint64(n)
	c.push()
	if out.posted < out.appended && c.d.lead() { // perhaps a credit has arrived
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

// Write writes p to the stream. It returns when all of p has been copied, so that the caller may
// reuse p. If WriteBuffer is full because the peer does not read, Write blocks until there is room,
// the write deadline has passed (os.ErrDeadlineExceeded), or the connection is closed or broken.
// Small writes are sent at once, or together if many are in flight. This process sends the copy: if
// it exits without Close and [Drain], the rest is lost. Write allocates no memory.
func (c *Conn) Write(p []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, err := c.writePieces(context.Background(), p, nil)
	return n, c.opError("write", err)
}

// waste reports whether this is the first Write after the peer has closed. The bytes of that Write
// are discarded, and the next Write returns EPIPE, as over TCP. So a protocol such as TLS, which
// sends a last message even after the peer has closed, gets no error.
func (c *Conn) waste() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.peerGone || c.wasted || c.closed || c.out.fin || c.writeEnd.passed {
		return false
	}
	c.wasted = true
	return true
}

// writePieces writes p and then q to the stream, without bytes of other calls between them; wmu is
// held.
func (c *Conn) writePieces(ctx context.Context, p, q []byte) (total int, err error) {
	size := len(p) + len(q)
	if size == 0 { // an empty Write needs no room
		c.mu.Lock()
		defer c.mu.Unlock()
		return 0, c.writeError()
	}
	if c.waste() {
		return size, nil
	}
	for {
		b, err := c.space(ctx, size-total)
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

// copyBuffers are the buffers of ReadFrom.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom reads from r until io.EOF and writes the bytes to the stream. While it waits for r,
// other calls may Write.
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, buf[:]) // c without ReadFrom, or this would be called again
}

// CloseWrite ends the stream to the peer. After the data that was written before, the peer reads
// io.EOF. This end can still read. Blocked and later Writes return EPIPE. Another CloseWrite does
// nothing.
func (c *Conn) CloseWrite() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.writeError()
	switch {
	case err == syscall.EPIPE: // the stream has ended, or the peer reads no more
		c.out.fin = true
		return nil
	case err != nil && err != os.ErrDeadlineExceeded:
		return c.opError("close", err)
	}
	c.out.fin = true
	c.owe(kindFin)
	c.push()
	c.wake(&c.writable)
	return nil
}
