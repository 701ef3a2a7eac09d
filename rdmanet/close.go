package rdmanet

import (
	"fmt"
	"math"
	"net"
	"sync"
	"time"
)

// Close waits until the peer's device has all bytes, for at most closeMost. It stops waiting
// earlier if nothing was sent for closePause because the peer has no room for more bytes.
const (
	closePause = 20 * time.Millisecond
	closeMost  = 500 * time.Millisecond
)

// silence shortens the waits of successive calls of Close whose peers are all stopped, for example
// the calls in http.Server.Shutdown. Each Close that has waited without success halves the time
// limit of the next one. When silenceTime has passed since the last such Close, the full limit
// applies again.
type silence struct {
	mu   sync.Mutex
	vain int
	last time.Time
}

const silenceTime = 5 * time.Second

var closing silence // of all connections of this process

// The method most returns how long a Close may wait.
func (s *silence) most() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) > silenceTime {
		s.vain = 0
	}
	return closeMost >> min(s.vain, 9)
}

// inVain records that a Close has waited without success.
func (s *silence) inVain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vain++
	s.last = time.Now()
}

// Close closes the connection. Blocked calls return net.ErrClosed. Data that has arrived and was
// not read is discarded. Data that was written is still delivered: Close waits until the peer's
// device has all of it. It waits for at most half a second, and for only 20 ms if the peer has no
// room. On TCP a stopped process at the peer confirms nothing, so Close waits for the half second.
// After a Close that has waited without success, the next ones wait for a shorter time. The rest of
// the data is sent after Close has returned, as the peer reads, for up to 5 minutes.
// [Conn.SetLinger] selects other times. If the peer sends more than 16 MiB during this time and
// reads nothing, the connection breaks. Before the process exits, [Drain] waits until the rest is
// delivered; without it the rest is lost. The Logger reports bytes that could not be delivered. The
// garbage collector does not free connections: the program must close each of them.
func (c *Conn) Close() error {
	if err := c.enter("close"); err != nil {
		return err
	}
	c.closed = true
	c.pins++ // this call frees the connection, if it can
	c.drop()
	c.wakeAll()
	switch {
	case c.state == stateDead:
		c.release()
	case c.peerGone && c.out.posted == c.out.appended, c.linger.limit == 0:
		c.fail(net.ErrClosed)
	default:
		c.linger.begin(c.afterFunc(c.linger.limit, func() {
			c.fail(fmt.Errorf("the peer has not taken what was written within %v", c.linger.limit))
		}))
		c.owe(kindClose)
		c.push()
		c.awaitClose()
		if c.linger.running {
			c.linger.blocks = true
			c.d.block() // a goroutine must handle the peer's answers
		}
	}
	c.pins--
	frees := c.releases()
	c.mu.Unlock()
	switch {
	case !frees:
	case c.pool.adapter.soft && isFree(&c.rmu) && isFree(&c.wmu):
		c.freeAfter()
	default:
		go c.freeAfter()
	}
	return nil
}

// isFree reports whether nobody holds m.
func isFree(m *sync.Mutex) bool {
	free := m.TryLock()
	if free {
		m.Unlock()
	}
	return free
}

// awaitClose waits until the peer's device has all bytes or the limits of Close have passed. When
// the device has all bytes, the process may exit without losing data. After SetLinger with a
// positive time, awaitClose waits until the connection has ended.
func (c *Conn) awaitClose() {
	if c.linger.waits {
		for c.state != stateDead {
			c.wait(&c.writable)
		}
		return
	}
	progress := func() uint64 { return c.out.posted + c.out.done }
	began, last, most := time.Now(), progress(), closing.most()
	over := false
	var stop func() bool
	var check func()
	check = func() {
		now := progress()
		over = now == last && c.starved() || time.Since(began) >= most
		if last = now; over {
			c.wake(&c.writable)
		} else {
			stop = c.afterFunc(min(closePause, most), check)
		}
	}
	stop = c.afterFunc(min(closePause, most), check)
	for c.state == stateLeaving || c.state != stateDead && !over && (c.out.closeAt == 0 || c.out.done < c.out.closeAt) {
		c.wait(&c.writable)
	}
	stop()
	if over {
		closing.inVain()
	}
}

// starved reports whether there are bytes to send for which the peer has no room. It returns false
// while the peer has its first, small ring, because the peer is about to offer a larger one.
func (c *Conn) starved() bool {
	rest := c.out.appended - c.out.posted
	return rest > 0 && c.mayWrite(rest, rest) == 0 && c.peer.ring.size > minRing
}

// SetLinger sets what Close does with bytes that have not reached the peer. If sec is negative,
// which is the default, they are delivered after Close has returned, for up to 5 minutes. If sec is
// positive, Close waits up to sec seconds until they are delivered, and then discards the rest. If
// sec is 0, Close discards all of them at once, and the peer's Read fails.
func (c *Conn) SetLinger(sec int) error {
	if err := c.enter("set"); err != nil {
		return err
	}
	defer c.mu.Unlock()
	l := &c.linger
	l.limit, l.waits = time.Duration(min(int64(sec), int64(math.MaxInt64/time.Second)))*time.Second, sec > 0
	if sec < 0 {
		l.limit = defaultLinger
	}
	return nil
}

// SetDeadline sets the read deadline and the write deadline. The zero time removes them. Deadlines
// also apply to calls that are already blocked. They apply to the stream and to [Messages], and not
// to the operations on remote memory, which end with their contexts.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, true, true) }

// SetReadDeadline sets the deadline of Read and WriteTo. See
// [Conn.SetDeadline].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, true, false) }

// SetWriteDeadline sets the deadline of Write, ReadFrom and WriteRegion. See [Conn.SetDeadline].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, false, true) }

func (c *Conn) setDeadlines(t time.Time, read, write bool) error {
	if err := c.enter("set"); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if read {
		c.readEnd.set(&c.mu, t, func() { c.wake(&c.readable) })
	}
	if write {
		c.writeEnd.set(&c.mu, t, func() { c.wake(&c.writable) })
	}
	return nil
}
