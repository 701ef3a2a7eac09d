package rdmanet

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/godat/godat/udat"
)

// incoming is the stream from the peer; Conn.mu guards it.
type incoming struct {
	placed   uint64 // bytes that the peer has written into the ring
	read     uint64 // bytes that Read has taken
	told     uint64 // position of the stream up to which the peer may write
	window   uint64 // bytes that may be placed and not read
	messages uint32 // messages that have come
	reposted uint32 // of those, how many have a new receive in their place
	toldAt   uint32 // reposted, as the peer knows it
	eof      bool   // the peer writes no more
}

// repostBatch is the number of receives that are posted at once. It divides defaultSlots.
const repostBatch = 8

// arrived takes a message; mu is held.
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
		place := c.recvPlace(slot)
		var m control
		if m, err = decodeControl(c.own.Bytes()[place : place+int(min(ev.Length, messageStride))]); err == nil {
			err = c.control(m)
		}
	}
	if err != nil {
		c.fail(fmt.Errorf("rdmanet: the peer breaks the protocol: %w", err))
		return
	}
	if c.state == stateConnecting { // the first message of an accepted connection
		c.open()
	}
	c.alive.heard = true
	if in.messages-in.reposted >= repostBatch {
		first := int(in.reposted) % defaultSlots
		if _, err := c.ep.PostRecvBatch(c.recvs[first : first+repostBatch]); err != nil {
			c.fail(err)
			return
		}
		in.reposted += repostBatch
	}
	c.push()
	if c.out.lent {
		c.wake(&c.writable)
	}
}

// place takes the notice that the peer has written n bytes.
func (c *Conn) place(n uint64) error {
	in := &c.in
	switch {
	case in.eof:
		return fmt.Errorf("%d bytes after the end of the stream", n)
	case n == 0 || n > in.told-in.placed:
		return fmt.Errorf("%d bytes are written, from 1 to %d are allowed", n, in.told-in.placed)
	}
	in.placed += n
	if c.closed {
		in.read = in.placed // nobody will
	} else {
		c.wake(&c.readable)
	}
	return nil
}

// control takes a control message.
func (c *Conn) control(m control) error {
	out := &c.out
	if err := c.credit(m.slots - out.acked); err != nil {
		return err
	}
	if m.limit < out.limit || m.limit > out.position+uint64(c.peer.ringSize) {
		return fmt.Errorf("bytes up to %d may be written, must be from %d to %d", m.limit, out.limit,
			out.position+uint64(c.peer.ringSize))
	}
	out.limit = m.limit
	switch m.kind {
	case kindCredit:
		if m.value < minRing || m.value > uint64(c.peer.ringSize) {
			return fmt.Errorf("a window of %d bytes, must be from %d to %d", m.value, minRing, c.peer.ringSize)
		}
		out.window = m.value
	case kindData:
		return c.place(m.value)
	case kindFin, kindClose:
		if m.value != c.in.placed {
			return fmt.Errorf("the stream ends after %d bytes, %d have come", m.value, c.in.placed)
		}
		c.in.eof = true
		c.wake(&c.readable)
		if m.kind == kindClose {
			c.peerGone = true
			out.owed |= 1 << kindClosed
			out.posted = out.appended // nobody reads what is still here
			c.wake(&c.writable)
		}
	case kindClosed:
		if !c.closed {
			return fmt.Errorf("an answer to a close that was not sent")
		}
		c.ep.Disconnect(udat.CloseGraceful)
	case kindPing:
		out.owed |= 1 << kindPong
	}
	return nil
}

// credit takes the news that n more receives of the peer have been posted again.
func (c *Conn) credit(n uint32) error {
	if n > c.out.messages-c.out.acked {
		return fmt.Errorf("%d receives are posted again, %d have been used", n, c.out.messages-c.out.acked)
	}
	c.out.acked += n
	return nil
}

// readError is why Read returns no data; nil if it may wait for some. mu is held.
func (c *Conn) readError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.readEnd.passed:
		return os.ErrDeadlineExceeded
	case c.in.placed > c.in.read:
		return nil
	case c.in.eof:
		return io.EOF
	case c.state == stateDead:
		return c.err
	}
	return nil
}

// await waits for data and returns the part of it that lies in one piece in the ring; rmu is held.
func (c *Conn) await() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.readError(); err != nil {
			return nil, err
		}
		in := &c.in
		if n := in.placed - in.read; n > 0 {
			at := in.read & uint64(c.cfg.readBuffer-1)
			return c.ring.Bytes()[at:min(at+n, uint64(c.cfg.readBuffer))], nil
		}
		c.wait(&c.readable)
	}
}

// taken gives n bytes of the ring back; rmu is held.
func (c *Conn) taken(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.in.read += uint64(n)
	if c.owesCredit() {
		c.push()
	}
}

// Read reads up to len(p) bytes. It blocks until there is one, the stream has ended (io.EOF), the
// read deadline has passed (os.ErrDeadlineExceeded), or the connection is closed or broken. It
// allocates nothing.
func (c *Conn) Read(p []byte) (int, error) {
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
	b, err := c.await()
	if err != nil {
		return 0, c.opError("read", err)
	}
	n := copy(p, b)
	c.taken(n)
	return n, nil
}

// WriteTo writes the stream to w until it ends, straight out of the memory into which the peer
// writes. A hostile peer may change the bytes while w reads them; Read has copied them before.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	for {
		b, err := c.await()
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, c.opError("read", err)
		}
		n, err := w.Write(b[:min(len(b), max(c.cfg.readBuffer/4, minRing))])
		c.taken(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// SetReadBuffer bounds the bytes that the peer may send before they are read. More than the ring of
// the connection has, which [Dialer].ReadBuffer or [ListenConfig].ReadBuffer set, is an error that
// wraps syscall.EINVAL.
func (c *Conn) SetReadBuffer(bytes int) error {
	if bytes < minRing || bytes > c.cfg.readBuffer {
		return c.opError("set", fmt.Errorf("read buffer of %d bytes, must be from %d to %d: %w", bytes, minRing,
			c.cfg.readBuffer, syscall.EINVAL))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	c.in.window = uint64(bytes)
	c.out.owed |= 1 << kindCredit
	c.push()
	return nil
}
