package rdmanet

import "time"

// Stats are the figures of a connection. They stay after Close.
type Stats struct {
	BytesRead     uint64        // that the program has taken
	BytesReceived uint64        // that have come
	BytesWritten  uint64        // that Write has taken
	BytesSent     uint64        // of those, bytes that have been handed to the device
	MessagesIn    uint64        // notices and control messages that have come, modulo 2^32
	MessagesOut   uint64        // notices and control messages that have been sent
	Credit        uint64        // bytes that the peer has room for now
	Stalls        uint64        // times that Write has waited for room in WriteBuffer
	RoundTrip     time.Duration // of the last keep-alive probe; 0: none has been answered
	ReadBuffer    int           // bytes of registered memory for what comes, now
	WriteBuffer   int           // and for what is to be sent
	BytesLost     uint64        // that Write has taken and that were lost after Close
}

// Stats returns the connection's figures.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, out := &c.in, &c.out
	return Stats{
		BytesRead: in.read, BytesReceived: in.placed, BytesWritten: out.position + out.appended - out.posted,
		BytesSent: out.position, MessagesIn: uint64(in.messages), MessagesOut: uint64(out.messages),
		Credit: out.limit - out.position, Stalls: out.stalls, RoundTrip: c.alive.roundTrip,
		ReadBuffer: int(in.ring.cur.size), WriteBuffer: int(out.ring.cur.size), BytesLost: c.linger.lost,
	}
}
