package rdmanet

import (
	"fmt"
	"math"
	"net"
	"time"
)

// Close waits until the peer's device has all bytes: at most for closeMost, and only for closePause
// while the peer has no room for more.
const (
	closePause = 20 * time.Millisecond
	closeMost  = 500 * time.Millisecond
)

// Close closes the connection: Reads and Writes that are blocked return net.ErrClosed. Data that
// has come and was not read is dropped. What was written is delivered: Close returns once the
// peer's device has all, or has had no room for 20 ms, and after half a second at the latest. The
// rest goes out in the background as the peer reads, for up to 5 minutes or as [Conn.SetLinger]
// says; [Drain] waits for it, and what could not be delivered is logged. A connection that the
// program forgets is not collected: close each.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.drop()
	c.wakeAll()
	switch {
	case c.state == stateDead:
		c.release()
	case c.peerGone && c.out.posted == c.out.appended, c.linger.limit == 0:
		c.fail(net.ErrClosed)
	default:
		c.d.block() // somebody must take the peer's answers
		c.linger.begin(c.within(c.linger.limit, func() {
			c.fail(fmt.Errorf("the peer has not taken what was written within %v", c.linger.limit))
		}))
		c.owe(kindClose)
		c.push()
		c.awaitClose()
	}
	return nil
}

// awaitClose waits until the peer's device has all, so that the process may end, or as long as
// SetLinger says: then linger ends the connection.
func (c *Conn) awaitClose() {
	if c.linger.waits {
		for c.state != stateDead {
			c.wait(&c.writable)
		}
		return
	}
	progress := func() uint64 { return c.out.posted + c.out.done }
	began, last := time.Now(), progress()
	over := false
	var stop func() bool
	var check func()
	check = func() {
		now := progress()
		over = now == last && c.starved() || time.Since(began) > closeMost
		if last = now; over {
			c.wake(&c.writable)
		} else {
			stop = c.within(closePause, check)
		}
	}
	stop = c.within(closePause, check)
	for c.state != stateDead && !over && (c.out.closeAt == 0 || c.out.done < c.out.closeAt) {
		c.wait(&c.writable)
	}
	stop()
}

// starved reports whether bytes wait for which the peer has no room. With its first, small ring
// full it is about to offer a larger one.
func (c *Conn) starved() bool {
	rest := c.out.appended - c.out.posted
	return rest > 0 && c.mayWrite(rest, rest) == 0 && c.peer.ring.size > minRing
}

// SetLinger sets what Close does with bytes that have not reached the peer. With sec < 0, the
// default, they are delivered in the background for up to 5 minutes; with sec > 0 Close waits for
// that, up to sec seconds, and then drops them; with 0 it drops them at once, and the peer's Read
// fails.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	l := &c.linger
	l.limit, l.waits = time.Duration(min(int64(sec), int64(math.MaxInt64/time.Second)))*time.Second, sec > 0
	if sec < 0 {
		l.limit = defaultLinger
	}
	return nil
}

// SetDeadline sets both deadlines; the zero time is none. It also ends calls that are blocked.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, true, true) }

// SetReadDeadline sets the deadline of Read, WriteTo, ReadFunc and ReadNotice.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, true, false) }

// SetWriteDeadline sets the deadline of Write and ReadFrom, remote operations, Notify and Grant.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, false, true) }

func (c *Conn) setDeadlines(t time.Time, read, write bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read {
		c.readEnd.set(&c.mu, t, func() { c.wake(&c.readable) })
	}
	if write {
		c.writeEnd.set(&c.mu, t, func() { c.wake(&c.writable) })
	}
	return nil
}
