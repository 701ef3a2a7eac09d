package rdmanet

import (
	"fmt"
	"syscall"
)

// ReadFunc calls f with the next bytes of the stream, at least one, in the memory into which the
// peer has written them; it waits for them as [Conn.Read] does. f returns how many of them it has
// taken: the next call begins behind them. p is valid, and its bytes stay, until f returns; a
// hostile peer may change them before. p ends anywhere: copy what belongs together, or [Conn.Read]
// it.
//
// The error is that of f, or why there are no bytes, as with Read. Other calls that read wait until
// f has returned, so that f may not read; beside [Conn.WriteTo] ReadFunc is syscall.EBUSY.
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
	n := 0 // also if f panics
	defer func() { c.giveBack(l, n) }()
	k, err := f(l.bytes)
	if k < 0 || k > len(l.bytes) {
		return c.opError("read", fmt.Errorf("the function has taken %d bytes of %d: %w", k, len(l.bytes), syscall.EINVAL))
	}
	n = k
	return err
}
