// Package tshark uses tshark, the command line program of Wireshark, to check what the fabric
// sends. Only tests import it.
package tshark

import (
	"bytes"
	"encoding/binary"
	"sync"
)

// Capture is a file of TCP connections in the format of libpcap, with raw IPv4 packets. It is safe
// for concurrent use.
type Capture struct {
	mu    sync.Mutex
	file  bytes.Buffer
	conns uint16
}

// New returns an empty capture.
func New() *Capture {
	c := new(Capture)
	const version, snapLen, rawIP = 4<<16 | 2, 1 << 18, 101
	for _, v := range []uint32{0xa1b2c3d4, version, 0, 0, snapLen, rawIP} {
		c.file.Write(binary.LittleEndian.AppendUint32(nil, v))
	}
	return c
}

// Conn is one connection of a capture.
type Conn struct {
	c    *Capture
	port uint16
	seq  [2]uint32
}

// The ends of a connection.
const (
	Initiator = 0
	Responder = 1
)

// Flags of TCP.
const (
	fin = 0x01
	syn = 0x02
	psh = 0x08
	ack = 0x10
)

// Connect adds a connection. The responder's sequence numbers wrap around after 255 bytes.
func (c *Capture) Connect() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns++
	n := &Conn{c: c, port: 40000 + c.conns, seq: [2]uint32{1000, 0xFFFFFF00}}
	for i, flags := range []byte{syn, syn | ack, ack} {
		n.packet(i%2, flags, nil)
		n.seq[i%2] += uint32(flags & syn / syn)
	}
	return n
}

// Send adds bytes that an end has written. It divides them into packets with at most mss bytes.
func (n *Conn) Send(from int, stream []byte, mss int) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	for len(stream) > 0 {
		size := min(len(stream), mss)
		n.packet(from, psh|ack, stream[:size])
		n.seq[from] += uint32(size)
		stream = stream[size:]
	}
}

// Close adds the packet (FIN) that ends the stream of one end.
func (n *Conn) Close(from int) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.packet(from, fin|ack, nil)
	n.seq[from]++
}

// packet adds a packet. It leaves the checksums of IP and TCP 0, because tshark does not check
// them.
func (n *Conn) packet(from int, flags byte, payload []byte) {
	const ipSize, tcpSize, window = 20, 20, 0xFFFF
	size := uint32(ipSize + tcpSize + len(payload))
	ports, addrs := [2]uint16{n.port, 4711}, [2][]byte{{192, 0, 2, 1}, {192, 0, 2, 2}}
	acked := n.seq[1-from]
	if flags&ack == 0 {
		acked = 0
	}
	b := make([]byte, 8, 16+size) // the time is 0
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, size), size)
	b = binary.BigEndian.AppendUint16(append(b, 0x45, 0), uint16(size))
	b = append(append(append(b, 0, 0, 0x40, 0, 64, 6, 0, 0), addrs[from]...), addrs[1-from]...)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, ports[from]), ports[1-from])
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, n.seq[from]), acked)
	b = binary.BigEndian.AppendUint16(append(b, tcpSize/4<<4, flags), window)
	n.c.file.Write(append(append(b, 0, 0, 0, 0), payload...))
}
