package rdmanet

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
)

// maxNotices is the largest number of notices that are in flight or wait for ReadNotice.
const maxNotices = 64

// Notify sends a notice of 64 bits to the peer's program, which receives it with [Conn.ReadNotice].
// The notice arrives after the bytes of each WriteRemote that has returned and of each [Batch] that
// was started before, so it can announce them. Notices arrive in order, but not in order with the
// bytes of the stream. Notify returns when the notice has been posted. While 64 notices wait for
// the peer's program to receive them, Notify blocks. When the write deadline passes, it returns an
// error.
func (c *Conn) Notify(value uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pin()
	defer c.unpin()
	out := &c.out
	out.lent++
	defer func() { out.lent-- }()
	for {
		err := c.useError()
		if c.peerGone && !c.closed {
			err = syscall.EPIPE
		}
		if err != nil {
			return c.opError("notify", err)
		}
		if out.notices-out.noticed < maxNotices && c.freeSlots() > keptSlots && c.freeRequests() >= 3 {
			break
		}
		c.wait(&c.writable)
	}
	out.notices++
	if !c.message(kindNotice, value, 0, false) {
		return c.opError("notify", c.err)
	}
	return nil
}

// ReadNotice returns the value of the peer's next [Conn.Notify]. It waits for a notice until the
// read deadline. After the peer's Close it returns the notices that have arrived, then io.EOF.
// ReadNotice and Read do not block each other.
func (c *Conn) ReadNotice() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pin()
	defer c.unpin()
	in := &c.in
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case c.readEnd.passed:
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case len(in.notices) > 0:
			value := in.notices[0]
			in.notices = slices.Delete(in.notices, 0, 1)
			if in.noticed++; in.noticed%(maxNotices/2) == 0 {
				c.owe(kindNoticed)
				c.push()
			}
			return value, nil
		case c.peerGone:
			return 0, io.EOF
		case c.state == stateDead:
			return 0, c.opError("read", c.err)
		}
		c.wait(&c.readable)
	}
}

// notice handles a notice of the peer; mu is held.
func (c *Conn) notice(value uint64) error {
	in := &c.in
	if len(in.notices) == maxNotices {
		return fmt.Errorf("more than %d notices that wait", maxNotices)
	}
	if !c.closed {
		in.notices = append(in.notices, value)
		c.wake(&c.readable)
	}
	return nil
}

// noticed handles a message of kindNoticed: the peer's program has received n notices in total. mu
// is held.
func (c *Conn) noticed(n uint64) error {
	out := &c.out
	if n-out.noticed > out.notices-out.noticed {
		return fmt.Errorf("%d notices are taken, %d have been sent and %d were taken before", n, out.notices, out.noticed)
	}
	out.noticed = n
	c.wake(&c.writable)
	return nil
}
