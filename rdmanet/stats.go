package rdmanet

// Stats are the figures of a connection. They remain available after Close.
type Stats struct {
	BytesRead     uint64 // bytes that the program has read
	BytesReceived uint64 // bytes that have arrived
	BytesWritten  uint64 // bytes that Write has accepted
	BytesSent     uint64 // of BytesWritten, bytes that have been posted to the device
	MessagesIn    uint64 // messages of data and control that have arrived, modulo 2^32
	MessagesOut   uint64 // messages of data and control that have been sent, modulo 2^32
	Credit        uint64 // bytes that the peer has room for now
	Stalls        uint64 // number of times that Write has waited for room in WriteBuffer
	ReadBuffer    int    // current size of the receive ring in bytes
	WriteBuffer   int    // current size of the send ring in bytes
	BytesLost     uint64 // bytes that Write has accepted and that were lost after Close; 0 after SetLinger(0)
}

// Stats returns the connection's figures.
func (c *Conn) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in, out := &c.in, &c.out
	return Stats{
		BytesRead: in.read, BytesReceived: in.placed, BytesWritten: out.position + out.appended - out.posted,
		BytesSent: out.position, MessagesIn: uint64(in.messages), MessagesOut: uint64(out.messages),
		Credit: out.limit - out.position, Stalls: out.stalls,
		ReadBuffer: int(in.ring.cur.size), WriteBuffer: int(out.ring.cur.size), BytesLost: c.linger.lost,
	}
}
