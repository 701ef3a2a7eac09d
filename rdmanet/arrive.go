package rdmanet

import (
	"errors"
	"fmt"

	"github.com/godat/godat/udat"
)

// arrived handles a message of the peer; mu is held.
func (c *Conn) arrived(ev *udat.Event) {
	in := &c.in
	slot := int(in.messages) % defaultSlots
	in.messages++
	var err error
	switch {
	case int(ev.Cookie) != slot:
		err = fmt.Errorf("receive %d completed, expected %d", ev.Cookie, slot)
	case ev.Operation == udat.DTOReceiveWriteImm:
		n, slots := fromImmediate(ev.Immediate)
		if err = c.credit((slots - c.out.acked) & immSlotsMask); err == nil {
			err = c.place(uint64(n))
		}
	default:
		place := recvPlace(slot)
		var m control
		if m, err = decodeControl(c.own.Bytes()[place : place+int(min(ev.Length, controlSize))]); err == nil {
			err = c.control(m)
		}
	}
	if err != nil {
		c.fail(fmt.Errorf("rdmanet: the peer breaks the protocol: %w", err))
		return
	}
	if c.state == stateConnecting { // the first message of an accepted connection
		c.state = stateOpen // report calls the Listener, which answers unless it has given up this connection
	}
	c.report(nil)
	if in.messages-in.reposted >= repostBatch {
		if err := c.postRecvs(int(in.reposted)%defaultSlots, repostBatch); err != nil {
			c.fail(err)
			return
		}
		in.reposted += repostBatch
	}
	c.push()
	if c.out.lent > 0 {
		c.wake(&c.writable)
	}
}

// place handles the peer's report that it has written n bytes into the ring.
func (c *Conn) place(n uint64) error {
	in := &c.in
	switch {
	case in.eof:
		return fmt.Errorf("%d bytes after the end of the stream", n)
	case n == 0 || n > in.told-in.placed:
		return fmt.Errorf("%d bytes are written, from 1 to %d are allowed", n, in.told-in.placed)
	}
	in.placed += n
	if c.closed || in.unwanted {
		c.drop()
		return c.discarded(n)
	}
	c.wake(&c.readable)
	if in.growth == growthNone && in.most > in.ring.cur.size && in.told-in.placed < in.window/2 {
		in.growth = growthBegun
		c.pin()
		go c.growRecv()
	}
	return nil
}

// drop discards the data that has arrived and was not read. If a call is copying data, drop does
// nothing, and that call discards the data.
func (c *Conn) drop() {
	if c.in.taking {
		return
	}
	c.in.read = c.in.placed
	c.freeRead()
}

// wasteMost is the number of bytes that a peer which reads nothing may send after this end's Close.
// TCP allows no bytes.
const wasteMost = 16 << 20

// discarded counts n bytes that have been discarded. After Close it returns an error if there are
// too many, because a peer that goes on writing and never reads would keep this end busy until
// lingering ends.
func (c *Conn) discarded(n uint64) error {
	if !c.closed {
		return nil
	}
	if c.in.waste += n; c.in.waste > wasteMost {
		return fmt.Errorf("%d bytes since Close, and it reads nothing", c.in.waste)
	}
	return nil
}

// freeRead frees the memory of data that has been read, so that the peer may write there again.
func (c *Conn) freeRead() {
	if !c.in.lent {
		c.in.freed = c.in.read
	}
}

// growRecv registers a ring of the full size and offers it to the peer.
func (c *Conn) growRecv() {
	m, err := c.newFullRing(c.cfg.readBuffer, udat.PrivRemoteWrite)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.unpin()
	if err != nil {
		c.in.growth = growthOver
		c.cfg.logGrowth("ReadBuffer", c.cfg.readBuffer, c.remote, err)
		return
	}
	if c.in.eof { // the peer sends no more data, and after kindClosed it cannot answer kindRing
		c.in.growth = growthOver
		c.freeLater(m.lmr)
		return
	}
	c.in.larger, c.in.growth = m, growthOffered
	c.owe(kindRing)
	c.push()
}

// moved handles a message of kindMoved. The parameter at is the position of the first byte that the
// peer writes into the larger ring.
func (c *Conn) moved(at uint64) error {
	in := &c.in
	if in.growth != growthOffered || at != in.placed {
		return fmt.Errorf("a larger ring is used from byte %d on, offered %v, %d have come", at,
			in.growth == growthOffered, in.placed)
	}
	in.ring.grow(in.larger, at)
	in.larger, in.growth = memory{}, growthOver
	in.window = min(in.most, in.ring.cur.size)
	c.owe(kindCredit)
	return nil
}

// control handles a control message.
func (c *Conn) control(m control) error {
	out := &c.out
	if err := c.credit(m.slots - out.acked); err != nil {
		return err
	}
	if most := out.position + uint64(c.peer.ring.size); m.limit < out.limit || m.limit > most {
		return fmt.Errorf("bytes up to %d may be written, must be from %d to %d", m.limit, out.limit, most)
	}
	if m.limit > out.limit {
		c.in.waste = 0
	}
	out.limit = m.limit
	switch m.kind {
	case kindCredit:
		if m.value < minRing || m.value > uint64(c.peer.ring.size) {
			return fmt.Errorf("a window of %d bytes, must be from %d to %d", m.value, minRing, c.peer.ring.size)
		}
		out.window = m.value
	case kindData:
		return c.place(m.value)
	case kindRing:
		r := remoteRing{addr: m.value, key: m.key, size: m.size}
		if err := r.check(); err != nil {
			return err
		}
		if r.size <= c.peer.ring.size || out.owed&(1<<kindMoved) != 0 {
			return fmt.Errorf("a ring of %d bytes is offered in place of one of %d", r.size, c.peer.ring.size)
		}
		out.next = r
		c.owe(kindMoved)
	case kindMoved:
		return c.moved(m.value)
	case kindFin, kindClose:
		if m.value != c.in.placed {
			return fmt.Errorf("the stream ends after %d bytes, %d have come", m.value, c.in.placed)
		}
		c.in.eof = true
		c.wake(&c.readable)
		if m.kind == kindClose {
			c.leftAlone()
		}
	case kindClosed:
		if !c.closed {
			return errors.New("an answer to a close that was not sent")
		}
		c.state, c.peerGone = stateLeaving, true // all bytes have reached the peer
		c.ep.Disconnect(udat.CloseGraceful)
	}
	return nil
}

// leftAlone handles a message of kindClose: the peer has closed the connection and reads no more.
func (c *Conn) leftAlone() {
	c.peerGone = true
	c.owe(kindClosed)
	c.linger.lost += c.out.appended - c.out.posted
	c.out.posted = c.out.appended
	c.wake(&c.writable)
}

// credit records that the peer has reposted n more receives.
func (c *Conn) credit(n uint32) error {
	if n > c.out.messages-c.out.acked {
		return fmt.Errorf("%d receives are posted again, %d have been used", n, c.out.messages-c.out.acked)
	}
	c.out.acked += n
	return nil
}
