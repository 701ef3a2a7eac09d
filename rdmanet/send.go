package rdmanet

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/godat/godat/udat"
)

// outgoing is the stream to the peer; Conn.mu guards it. The first three count bytes of the local
// ring of what is to be sent: freed <= posted <= appended.
type outgoing struct {
	appended uint64
	posted   uint64
	freed    uint64

	position uint64 // bytes of the stream that have been written at the peer
	limit    uint64 // position up to which the peer allows it
	window   uint64 // bytes that the peer allows at a time
	messages uint32 // messages that have been sent
	acked    uint32 // of those, how many have a new receive in their place
	requests uint64 // requests that have been posted
	done     uint64 // of those, how many have completed
	silent   int    // requests since the last that makes a completion
	silentBy int    // and their bytes
	owed     uint32 // control messages to be sent, by kind
	fin      bool   // CloseWrite was called
	imm      bool   // writes carry immediate data
	accepted bool   // the peer has connected
	lent     bool   // WriteRegion waits on writable for credit
	held     bool   // the dispatcher counts data that is held back

	iov [2][1]udat.LMRTriplet // of ops
	ops [2]udat.Op            // of the post under way: here, because it would escape to the heap
}

// keptSlots are the receives of the peer that only control messages may use: without them two ends
// that both wait for credit could not grant any. See creditBatch.
const keptSlots = 6

// creditBatch is the number of receives posted again after which the peer is told of them at the
// latest.
const creditBatch = defaultSlots / 2

// holdBelow is how many bytes are held back, to go out together, while creditBatch or more messages
// are under way: the next credit sends them.
const holdBelow = 16 << 10

func (c *Conn) freeSlots() int { return c.peer.slots - int(c.out.messages-c.out.acked) }

func (c *Conn) freeRequests() int { return requests - int(c.out.requests-c.out.done) }

// owesCredit reports whether the peer must be told that it may send more.
func (c *Conn) owesCredit() bool {
	in := &c.in
	return int64(in.read+in.window-in.told) >= int64(in.window/2) || in.reposted-in.toldAt >= creditBatch
}

// push sends what may be sent: data, then control messages. mu is held.
func (c *Conn) push() {
	if c.state != stateOpen {
		return
	}
	out := &c.out
	for out.posted < out.appended {
		at := out.posted & uint64(c.cfg.writeBuffer-1)
		n := c.mayWrite(min(out.appended-out.posted, uint64(c.cfg.writeBuffer)-at), out.appended-out.posted)
		if n == 0 {
			break
		}
		out.posted += n
		if !c.write(c.own.Triplet(int(at), int(n)), false) {
			return
		}
	}
	if out.posted == out.appended {
		c.unhold()
	}
	if c.owesCredit() {
		out.owed |= 1 << kindCredit
	}
	if out.owed != 0 {
		c.pushControl()
	}
}

// unhold says that no data is held back any more.
func (c *Conn) unhold() {
	if c.out.held {
		c.out.held = false
		c.d.unblock(1)
	}
}

// mayWrite returns how many of n bytes may be written now, in one piece; pending are all that wait.
func (c *Conn) mayWrite(n, pending uint64) uint64 {
	out := &c.out
	allowed := out.limit - out.position
	switch {
	case c.freeSlots() <= keptSlots || c.freeRequests() < 3:
		return 0
	case pending > allowed && allowed < out.window/4:
		return 0 // the peer will allow more than such a small piece
	case pending < holdBelow && int(out.messages-out.acked) >= creditBatch:
		return 0
	}
	at := out.position & uint64(c.peer.ringSize-1)
	return min(n, allowed, uint64(c.peer.ringSize)-at, maxChunk)
}

// write posts an RDMA write of one piece into the peer's ring, with the notice of it, and reports
// whether that worked. With certain it makes a completion.
func (c *Conn) write(from udat.LMRTriplet, certain bool) bool {
	out := &c.out
	n := from.SegmentLength
	at := out.position & uint64(c.peer.ringSize-1)
	out.position += n
	out.iov[0][0] = from
	o := &out.ops[0]
	*o = udat.Op{
		Kind: udat.OpRDMAWrite, IOV: out.iov[0][:], Flags: udat.CompletionSuppress,
		Remote: udat.RMRTriplet{RMRContext: c.peer.ringKey, TargetAddress: c.peer.ringAddr + at, SegmentLength: n},
	}
	out.silentBy += int(n)
	certain = certain || out.silentBy >= c.cfg.writeBuffer/2
	if !out.imm {
		c.count()
		return c.message(kindData, n, 1, certain)
	}
	o.Kind, o.Immediate = udat.OpRDMAWriteImmediate, immediate(int(n), c.in.reposted)
	c.in.toldAt = c.in.reposted
	o.Cookie, o.Flags = udat.Cookie(out.requests), c.flags(certain)
	c.count()
	out.messages++
	return c.post(1)
}

// count takes the number of a request that is about to be posted.
func (c *Conn) count() {
	out := &c.out
	c.reqs[out.requests%requests] = out.posted
	out.requests++
}

// flags returns the completion flags of the next request.
func (c *Conn) flags(certain bool) udat.CompletionFlags {
	out := &c.out
	if out.silent++; !certain && out.silent < requests/4 {
		return udat.CompletionSuppress
	}
	out.silent, out.silentBy = 0, 0
	return udat.CompletionDefault
}

// message posts a control message behind the first of n requests in ops.
func (c *Conn) message(k kind, value uint64, n int, certain bool) bool {
	out, in := &c.out, &c.in
	in.toldAt, in.told = in.reposted, max(in.told, in.read+in.window)
	place := c.sendPlace(out.requests)
	control{kind: k, slots: in.reposted, limit: in.told, value: value}.encode(c.own.Bytes()[place:])
	out.iov[n][0] = c.own.Triplet(place, controlSize)
	out.ops[n] = udat.Op{Kind: udat.OpSend, IOV: out.iov[n][:], Cookie: udat.Cookie(out.requests), Flags: c.flags(certain)}
	c.count()
	out.messages++
	return c.post(n + 1)
}

// post posts the first n of ops. The endpoint has room for them, so an error ends the connection.
func (c *Conn) post(n int) bool {
	var err error
	if n == 1 {
		o := &c.out.ops[0]
		if o.Kind == udat.OpSend {
			err = c.ep.PostSend(o.IOV, o.Cookie, o.Flags)
		} else {
			err = c.ep.PostRDMAWriteImmediate(o.IOV, o.Cookie, o.Remote, o.Immediate, o.Flags)
		}
	} else {
		_, err = c.ep.PostBatch(c.out.ops[:n])
	}
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", syscall.ECONNRESET, err))
		return false
	}
	return true
}

// pushControl sends the control messages that are owed, as far as the peer has receives for them.
func (c *Conn) pushControl() {
	out := &c.out
	for k := kindCredit; k < kinds; k++ {
		if out.owed&(1<<k) == 0 {
			continue
		}
		if (k == kindFin || k == kindClose) && out.posted < out.appended {
			continue // behind the data
		}
		if c.freeSlots() < 1 || c.freeRequests() < 1 {
			return
		}
		out.owed &^= 1 << k
		value := out.position
		if k == kindCredit {
			value = c.in.window
		}
		if !c.message(k, value, 0, k == kindClosed) {
			return
		}
	}
}

// sent takes the completion of a request; mu is held.
func (c *Conn) sent(ev *udat.Event) {
	out := &c.out
	seq := uint64(ev.Cookie)
	if seq < out.done {
		return
	}
	out.done, out.freed = seq+1, c.reqs[seq%requests]
	c.wake(&c.writable)
	c.push()
}

// writeError is why Write fails; nil if it does not. mu is held.
func (c *Conn) writeError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.out.fin || c.peerGone:
		return syscall.EPIPE
	case c.state == stateDead:
		return c.err
	}
	return nil
}

// space waits for free memory in the ring of what is to be sent, and returns what lies in one
// piece; wmu is held.
func (c *Conn) space() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.writeError(); err != nil {
			return nil, err
		}
		if c.writeEnd.passed {
			return nil, os.ErrDeadlineExceeded
		}
		size := uint64(c.cfg.writeBuffer)
		if free := size - (c.out.appended - c.out.freed); free > 0 {
			at := c.out.appended & (size - 1)
			return c.own.Bytes()[at:min(at+free, size)], nil
		}
		c.wait(&c.writable)
	}
}

// append adds n bytes, which the caller has put where space said, to the stream; wmu is held.
func (c *Conn) append(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &c.out
	out.appended += uint64(n)
	c.push()
	if out.posted < out.appended && c.d.lead() { // credit may have come
		c.mu.Unlock()
		c.d.dequeue()
		c.d.leave()
		c.mu.Lock()
	}
	if out.posted < out.appended && c.state != stateDead && !out.held {
		out.held = true
		c.d.block()
	}
}

// Write writes p to the stream and returns once all of it has been copied: it may be used again. It
// blocks while the peer does not read and WriteBuffer is full, until the write deadline
// (os.ErrDeadlineExceeded), or until the connection is closed or broken. Small writes go out at
// once, or together if many are under way. It allocates nothing.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, err := c.writePieces(p, nil)
	return n, c.opError("write", err)
}

// writePieces writes p and q in one; wmu is held.
func (c *Conn) writePieces(p, q []byte) (total int, err error) {
	size := len(p) + len(q)
	for {
		b, err := c.space()
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
		if n > 0 {
			c.append(n)
		}
		if total += n; total == size {
			return total, nil
		}
	}
}

// ReadFrom writes what it reads from r, until io.EOF, to the stream. r reads straight into the
// memory from which the device sends.
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for {
		b, err := c.space()
		if err != nil {
			return total, c.opError("write", err)
		}
		n, err := r.Read(b[:min(len(b), max(c.cfg.writeBuffer/4, minRing))])
		if n > 0 {
			c.append(n)
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}
