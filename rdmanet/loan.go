package rdmanet

import (
	"fmt"
	"syscall"
)

// ReadFunc calls f with the next bytes of the stream, at least one. It waits for them like
// [Conn.Read]. The bytes are not copied: p is the memory into which the peer has written them. The
// function f returns how many bytes it has consumed, and the next call continues after them. p is
// valid until f returns, but a hostile peer may change the bytes while f runs. p may end at any
// byte, so data that must be contiguous has to be copied, or read with [Conn.Read].
//
// ReadFunc returns the error of f, or the error of a Read. f must not read from the connection,
// because other calls that read wait until f returns. While [Conn.WriteTo] uses the memory,
// ReadFunc returns syscall.EBUSY.
func (c *Conn) ReadFunc(f func(p []byte) (n int, err error)) error {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	c.mu.Lock()
	busy := c.in.lent
	c.mu.Unlock()
	if busy {
		return c.opError("read", fmt.Errorf("WriteTo uses the memory: %w", syscall.EBUSY))
	}
	l, err := c.lendNext()
	if err != nil {
		return c.opError("read", err)
	}
	n := 0 // used if f panics
	defer func() { c.giveBack(l, n) }()
	k, err := f(l.bytes)
	if k < 0 || k > len(l.bytes) {
		return c.opError("read", fmt.Errorf("the function has taken %d bytes of %d: %w", k, len(l.bytes), syscall.EINVAL))
	}
	n = k
	return err
}
