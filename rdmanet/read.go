package rdmanet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// readError returns the error of a Read, or nil if there is data or the Read may wait for data. mu
// is held.
func (c *Conn) readError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.readEnd.passed:
		return os.ErrDeadlineExceeded
	case c.in.unwanted:
		return io.EOF
	case c.in.placed > c.in.read:
		return nil
	case c.in.eof:
		return io.EOF
	case c.state == stateDead:
		return c.err
	}
	return nil
}

// await waits for data and returns the part of it that is contiguous in the ring; rmu is held. The
// data stays valid until the caller calls the method taken or borrow, as it must.
func (c *Conn) await(ctx context.Context) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.readError()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		in := &c.in
		if n := in.placed - in.read; n > 0 {
			m, n := in.ring.at(in.read, n)
			in.taking = true
			return m.bytes(in.read, n), nil
		}
		c.waitContext(ctx, &c.readable, !c.answered())
	}
}

// answered reports whether the program has written since it last read. If so, a blocked Read need
// not yield before it spins, because the goroutine that had to answer the peer has run. mu is held.
func (c *Conn) answered() bool { return c.out.appended != c.in.sentAt }

// taken records that the program has read n bytes of the data that await returned; rmu is held.
func (c *Conn) taken(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.taking = false
	if c.closed || c.in.unwanted { // changed since await
		c.drop()
	} else {
		c.in.read += uint64(n)
	}
	c.gaveBack()
}

// gaveBack frees the memory of the data that has been read, and sends the peer a credit if this end
// owes one; mu is held.
func (c *Conn) gaveBack() {
	c.in.sentAt = c.out.appended
	c.freeRead()
	if !c.released { // otherwise all memory is being freed
		if old := c.in.ring.shed(c.in.freed); old != nil {
			c.freeLater(old)
		}
	}
	if c.owesCredit() {
		c.push()
	}
}

// Read reads up to len(p) bytes. It blocks until there is at least one byte, the stream has ended
// (io.EOF), the read deadline has passed (os.ErrDeadlineExceeded), or the connection is closed or
// broken. It allocates no memory.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if len(p) == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return 0, c.opError("read", net.ErrClosed)
		}
		return 0, nil
	}
	b, err := c.await(context.Background())
	if err != nil {
		return 0, c.opError("read", err)
	}
	n := copy(p, b)
	c.taken(n)
	return n, nil
}

// WriteTo writes the stream to w until the stream ends. It does not copy the bytes: w gets the
// memory into which the peer writes. So a hostile peer may change the bytes while w reads them. It
// cannot change the bytes that Read returns. While w is busy, other calls may Read the bytes that
// follow.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	for {
		n, ended, err := c.passOn(w)
		total += int64(n)
		if ended || err != nil {
			return total, err
		}
	}
}

// passOn writes the next piece of the stream to w. The result ended is true if the stream has
// ended.
func (c *Conn) passOn(w io.Writer) (n int, ended bool, err error) {
	l, err := c.lend()
	if err == io.EOF {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, c.opError("read", err)
	}
	defer func() { c.giveBack(l, n) }() // runs also if w panics
	k, err := w.Write(l.bytes)
	if k < 0 || k > len(l.bytes) {
		err = fmt.Errorf("the writer has taken %d bytes of %d: %w", k, len(l.bytes), syscall.EINVAL)
		return 0, false, c.opError("read", err)
	}
	if err == nil && k < len(l.bytes) {
		err = io.ErrShortWrite
	}
	return k, false, err
}

// loan is a piece of the stream that has been read and whose memory stays valid until giveBack.
type loan struct {
	bytes  []byte
	end    uint64 // position of the stream after the piece
	copied bool   // the bytes are a copy, because there was another loan
}

func (c *Conn) lend() (l loan, err error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	return c.lendNext()
}

// lendNext returns the next piece of the stream as a loan; rmu is held.
func (c *Conn) lendNext() (l loan, err error) {
	b, err := c.await(context.Background())
	if err != nil {
		return l, err
	}
	return c.borrow(b)
}

// borrow makes a loan of the data that await returned; rmu is held.
func (c *Conn) borrow(b []byte) (l loan, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &c.in
	in.taking = false
	if c.closed || in.unwanted { // changed since await
		c.drop()
		c.gaveBack()
		return l, c.readError()
	}
	l.bytes = b[:min(len(b), max(c.cfg.readBuffer/4, minRing))]
	in.read += uint64(len(l.bytes))
	l.end, l.copied = in.read, in.lent
	if l.copied {
		l.bytes = bytes.Clone(l.bytes)
	} else {
		in.lent = true
		c.pin()
	}
	return l, nil
}

// giveBack ends a loan of which n bytes were consumed. The rest will be read again, unless another
// call has read bytes after the loan.
func (c *Conn) giveBack(l loan, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &c.in
	if !l.copied {
		if in.read == l.end && !in.unwanted { // otherwise the rest is lost
			in.read -= uint64(len(l.bytes) - n)
		}
		in.lent = false
		c.gaveBack()
		c.unpin()
	}
}

// SetReadBuffer sets the largest number of bytes that the peer may send before they are read. The
// number must be from 4096 to the ReadBuffer of the [Dialer] or [ListenConfig]. Otherwise the error
// wraps syscall.EINVAL.
func (c *Conn) SetReadBuffer(bytes int) error {
	if err := c.enter("set"); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if bytes < minRing || bytes > c.cfg.readBuffer {
		return c.opError("set", fmt.Errorf("read buffer of %d bytes, must be from %d to %d: %w", bytes, minRing,
			c.cfg.readBuffer, syscall.EINVAL))
	}
	c.in.most = uint64(bytes)
	c.in.window = min(c.in.most, c.in.ring.cur.size)
	c.owe(kindCredit)
	c.push()
	return nil
}

// CloseRead makes Reads return io.EOF. Data that the peer sends is discarded.
func (c *Conn) CloseRead() error {
	if err := c.enter("close"); err != nil {
		return err
	}
	defer c.mu.Unlock()
	c.in.unwanted = true
	c.drop()
	c.wake(&c.readable)
	c.push()
	return nil
}
