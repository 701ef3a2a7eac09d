package rdmanet

// This file contains the flow control, which decides how much this end may write and when it must
// send the peer a credit.

// keptSlots is the number of the peer's receives that are reserved for control messages. Without
// this reserve, two ends that both wait for credits could not send each other any.
const keptSlots = 6

// creditBatch is the number of reposted receives after which this end sends a credit.
const creditBatch = defaultSlots / 2

// While creditBatch or more messages are in flight, data of less than holdBelow bytes is held back.
// It is sent in one piece when the next credit arrives.
const holdBelow = 16 << 10

func (c *Conn) freeSlots() int { return c.peer.slots - int(c.out.messages-c.out.acked) }

// owesCredit reports whether this end must send the peer a credit.
func (c *Conn) owesCredit() bool {
	in := &c.in
	return int64(in.freed+in.window-in.told) >= int64(in.window/2) || in.reposted-in.toldAt >= creditBatch
}

// scarce reports whether the peer allows this end to write less than a quarter of the window. If
// so, the peer will soon allow more, and it is better to wait than to send a small piece.
func (o *outgoing) scarce(allowed uint64) bool { return allowed < o.window/4 }

// mayWrite returns how many of n bytes may be written now with one message. The parameter pending
// is the number of all bytes that wait to be written.
func (c *Conn) mayWrite(n, pending uint64) uint64 {
	out := &c.out
	allowed := out.limit - out.position
	switch {
	case c.freeSlots() <= keptSlots:
		return 0
	case pending > allowed && out.scarce(allowed):
		return 0
	case pending < holdBelow && int(out.messages-out.acked) >= creditBatch:
		return 0
	}
	at := out.position & uint64(c.peer.ring.size-1)
	writes := uint64(max(c.freeRequests()-2, 0)) // leaves one request for the message, and one for a control message
	return min(n, allowed, uint64(c.peer.ring.size)-at, maxChunk, writes*out.piece)
}
