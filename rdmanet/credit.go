package rdmanet

// This file is the flow control: what this end may write, and when it owes the peer a credit.

// keptSlots is the number of the peer's receives that only control messages may use: without them
// two ends that both wait for credit could not grant any.
const keptSlots = 6

// creditBatch bounds the receives that have been posted again and not announced: at this number the
// peer is told.
const creditBatch = defaultSlots / 2

// Fewer than holdBelow bytes are held back while creditBatch or more messages are under way: they
// go out together when the next credit comes.
const holdBelow = 16 << 10

func (c *Conn) freeSlots() int { return c.peer.slots - int(c.out.messages-c.out.acked) }

// owesCredit reports whether the peer must be told that it may send more.
func (c *Conn) owesCredit() bool {
	in := &c.in
	return int64(in.freed+in.window-in.told) >= int64(in.window/2) || in.reposted-in.toldAt >= creditBatch
}

// scarce reports whether so little is allowed that the peer will allow more before long: a small
// piece is not worth a message of its own.
func (o *outgoing) scarce(allowed uint64) bool { return allowed < o.window/4 }

// mayWrite returns how many of n bytes may be written now, in one piece; pending are all that wait.
func (c *Conn) mayWrite(n, pending uint64) uint64 {
	out := &c.out
	allowed := out.limit - out.position
	switch {
	case c.freeSlots() <= keptSlots || c.freeRequests() < 3:
		return 0
	case pending > allowed && out.scarce(allowed):
		return 0
	case pending < holdBelow && int(out.messages-out.acked) >= creditBatch:
		return 0
	}
	at := out.position & uint64(c.peer.ring.size-1)
	return min(n, allowed, uint64(c.peer.ring.size)-at, maxChunk)
}
