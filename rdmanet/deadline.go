package rdmanet

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// deadline is one of a connection's two deadlines; Conn.mu guards it.
type deadline struct {
	at     time.Time // zero: none
	passed bool
	timer  *time.Timer
}

// set sets the deadline, and ends the calls that wait in w once it has passed.
func (d *deadline) set(c *Conn, w *waiters, t time.Time) {
	d.at, d.passed = t, false
	if d.timer != nil {
		d.timer.Stop()
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		c.wake(w)
		return
	}
	if d.timer != nil {
		d.timer.Reset(left)
		return
	}
	d.timer = time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !d.at.IsZero() && !time.Now().Before(d.at) { // else it has been set anew
			d.passed = true
			c.wake(w)
		}
	})
}

// SetDeadline sets both deadlines; the zero time is none. It also ends calls that are blocked.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, true, true) }

// SetReadDeadline sets the deadline of Read and WriteTo.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, true, false) }

// SetWriteDeadline sets the deadline of Write and ReadFrom.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, false, true) }

func (c *Conn) setDeadlines(t time.Time, read, write bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read {
		c.readEnd.set(c, &c.readable, t)
	}
	if write {
		c.writeEnd.set(c, &c.writable, t)
	}
	return nil
}

// keepAlive finds a peer that is dead; Conn.mu guards it.
type keepAlive struct {
	timer  *time.Timer // nil: none
	heard  bool        // a message has come since the last check
	missed int
}

// keepAliveProbes is the number of probes without an answer after which the peer counts as dead.
const keepAliveProbes = 3

var errDeadPeer = errors.New("the peer does not answer")

func (k *keepAlive) start(c *Conn) {
	if c.cfg.keepAlive > 0 {
		k.timer = time.AfterFunc(c.cfg.keepAlive, c.probe)
	}
}

func (k *keepAlive) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// probe asks a silent peer for an answer, or ends the connection.
func (c *Conn) probe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.alive
	switch {
	case c.state != stateOpen:
		return
	case k.heard:
		k.heard, k.missed = false, 0
	case k.missed == keepAliveProbes:
		c.fail(&net.OpError{Op: "keep-alive", Net: Network, Addr: c.remote, Err: errors.Join(syscall.ETIMEDOUT, errDeadPeer)})
		return
	default:
		k.missed++
		c.out.owed |= 1 << kindPing
		c.push()
	}
	k.timer.Reset(c.cfg.keepAlive)
}
