package rdmanet

import (
	"fmt"
	"syscall"

	"github.com/godat/godat/udat"
)

func (c *Conn) freeRequests() int { return requests - int(c.out.requests-c.out.done) }

// owe makes push send a control message of the kind k.
func (c *Conn) owe(k kind) { c.out.owed |= 1 << k }

// push sends as much as the peer and the queue allow: first kindMoved, which announces data in the
// larger ring, then data, then other control messages. mu is held.
func (c *Conn) push() {
	if c.state != stateOpen {
		return
	}
	out := &c.out
	if out.owed&(1<<kindMoved) != 0 && !c.move() {
		return
	}
	for out.posted < out.appended {
		m, n := out.ring.at(out.posted, out.appended-out.posted)
		if n = c.mayWrite(n, out.appended-out.posted); n == 0 {
			break
		}
		from := m.triplet(out.posted, n)
		out.posted += n
		// If the peer's ring has little room left, no write may follow for a while, so this write must
		// have a completion. Without it the memory of the writes would stay in use.
		if !c.write(from, out.scarce(out.limit-out.position-n)) {
			return
		}
	}
	if out.posted == out.appended {
		c.unhold()
	}
	if c.owesCredit() {
		c.owe(kindCredit)
	}
	if out.owed != 0 {
		c.pushControl()
	}
}

// answer reports to the peer that the listener keeps the connection. The peer's Dial then returns.
func (c *Conn) answer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owe(kindCredit)
	c.push()
}

// move switches to the peer's larger ring, and reports to the peer the position of the first byte
// in it. It returns false if there is no room for the message, or if posting failed.
func (c *Conn) move() bool {
	out := &c.out
	if c.freeSlots() < 1 || c.freeRequests() < 1 {
		return false
	}
	out.owed &^= 1 << kindMoved
	c.peer.ring = out.next
	return c.message(kindMoved, out.position, 0, false)
}

// write posts RDMA writes of contiguous bytes into the peer's ring, each of at most out.piece
// bytes. It also posts the message that reports the bytes. If out.imm is set, this message is the
// immediate data of the last write. Otherwise it is a control message. It returns false if posting
// failed. If signaled is true, the last request gets a completion.
func (c *Conn) write(from udat.LMRTriplet, signaled bool) bool {
	out := &c.out
	n := from.SegmentLength
	o := &out.ops[0]
	for {
		k := min(from.SegmentLength, out.piece)
		out.iov[0][0] = udat.LMRTriplet{LMR: from.LMR, VirtualAddress: from.VirtualAddress, SegmentLength: k}
		at := c.peer.ring.addr + out.position&uint64(c.peer.ring.size-1)
		*o = udat.Op{
			Kind: udat.OpRDMAWrite, IOV: out.iov[0][:], Flags: udat.CompletionSuppress,
			Remote: udat.RMRTriplet{RMRContext: c.peer.ring.key, TargetAddress: at, SegmentLength: k},
		}
		out.position += k
		from.VirtualAddress, from.SegmentLength = from.VirtualAddress+k, from.SegmentLength-k
		if from.SegmentLength == 0 {
			break
		}
		c.count()
		out.silent++
		if !c.post(1) {
			return false
		}
	}
	out.silentBy += int(n)
	signaled = signaled || out.silentBy >= int(out.ring.cur.size/2)
	if !out.imm {
		c.count()
		return c.message(kindData, n, 1, signaled)
	}
	o.Kind, o.Immediate = udat.OpRDMAWriteImmediate, immediate(int(n), c.in.reposted)
	c.in.toldAt = c.in.reposted
	o.Cookie, o.Flags = udat.Cookie(out.requests), c.flags(signaled)
	c.count()
	out.messages++
	return c.post(1)
}

// count counts a request that is about to be posted.
func (c *Conn) count() {
	out := &c.out
	c.reqs[out.requests%requests] = out.posted
	out.requests++
}

// flags returns the completion flags of the next request. If signaled is true, the request gets a
// completion. Otherwise it gets one only if the requests/4 - 1 requests before it got none.
func (c *Conn) flags(signaled bool) udat.CompletionFlags {
	out := &c.out
	if out.silent++; !signaled && out.silent < requests/4 {
		return udat.CompletionSuppress
	}
	out.silent, out.silentBy = 0, 0
	return udat.CompletionDefault
}

// message posts the first n operations of out.ops, followed by a control message. If certain is
// true, the control message gets a completion. It returns false if posting failed.
func (c *Conn) message(k kind, value uint64, n int, certain bool) bool {
	out, in := &c.out, &c.in
	in.toldAt, in.told = in.reposted, max(in.told, in.freed+in.window)
	m := control{kind: k, slots: in.reposted, limit: in.told, value: value}
	if k == kindRing {
		m.key, m.size = in.larger.lmr.RMRContext(), int(in.larger.size)
	}
	place := sendPlace(out.requests)
	m.encode(c.own.Bytes()[place:])
	out.iov[n][0] = c.own.Triplet(place, controlSize)
	out.ops[n] = udat.Op{Kind: udat.OpSend, IOV: out.iov[n][:], Cookie: udat.Cookie(out.requests), Flags: c.flags(certain)}
	c.count()
	out.messages++
	return c.post(n + 1)
}

// post posts the first n operations of out.ops. The endpoint has room for them, so any error ends
// the connection.
func (c *Conn) post(n int) bool {
	var err error
	if n == 1 {
		switch o := &c.out.ops[0]; o.Kind {
		case udat.OpSend:
			err = c.ep.PostSend(o.IOV, o.Cookie, o.Flags)
		case udat.OpRDMAWrite:
			err = c.ep.PostRDMAWrite(o.IOV, o.Cookie, o.Remote, o.Flags)
		default:
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

// pushControl sends the control messages in out.owed, as many as the peer has receives for.
func (c *Conn) pushControl() {
	out := &c.out
	for k := kindCredit; k < kinds; k++ {
		if out.owed&(1<<k) == 0 {
			continue
		}
		if (k == kindFin || k == kindClose) && out.posted < out.appended {
			continue // must come after the data
		}
		if c.freeSlots() < 1 || c.freeRequests() < 1 {
			return
		}
		out.owed &^= 1 << k
		if !c.message(k, c.valueOf(k), 0, k == kindClose || k == kindClosed) {
			return
		}
		if k == kindClose {
			out.closeAt = out.requests
		}
	}
}

func (c *Conn) valueOf(k kind) uint64 {
	switch k {
	case kindCredit:
		return c.in.window
	case kindRing:
		return c.in.larger.lmr.RMRTriplet(0, 1).TargetAddress
	}
	return c.out.position
}

// sent handles the completion of a request; mu is held.
func (c *Conn) sent(ev *udat.Event) {
	out := &c.out
	seq := uint64(ev.Cookie)
	if seq < out.done {
		return
	}
	out.done, out.freed = seq+1, c.reqs[seq%requests]
	out.ring.shed(out.freed)
	c.finish()
	c.wake(&c.writable)
	c.push()
}
