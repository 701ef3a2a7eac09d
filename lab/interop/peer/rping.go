package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of rping: for each ping the client advertises a buffer with text, and the server
// reads it (RDMA read); then the client advertises a second buffer, and the server writes the text
// there (RDMA write). An advertisement is a message of 16 bytes; the server answers each with a
// message of the same size, whose content means nothing.
const (
	rpingPort    = udat.ConnQual(7174)
	rpingSize    = 64 // bytes of text
	rpingCount   = 10
	rpingMessage = 16
)

// Offsets in the end's memory.
const (
	source = iota * rpingSize // the client's text
	sink                      // what the server has written, or read
	incoming
	outgoing
	rpingMemory
)

// pinger is one end of one connection.
type pinger struct {
	*end
	ep *udat.EP
}

// newPinger creates an endpoint on the end, and posts its first receive.
func newPinger(e *end) (p pinger, err error) {
	p.end = e
	if p.ep, err = e.newEP(); err == nil {
		err = p.postReceive() // before the connection: the peer may send at once
	}
	return p, err
}

func (p pinger) postReceive() error {
	return p.ep.PostRecv(p.iov(incoming, rpingMessage), 0, udat.CompletionDefault)
}

// receive waits for a message and posts the next receive.
func (p pinger) receive() (message [rpingMessage]byte, err error) {
	if _, err = p.received(rpingMessage); err != nil {
		return message, err
	}
	copy(message[:], p.bytes(incoming, rpingMessage))
	return message, p.postReceive()
}

func (p pinger) send() error {
	return p.done(p.ep.PostSend(p.iov(outgoing, rpingMessage), 0, udat.CompletionDefault))
}

// advertise tells the peer where a text is.
func (p pinger) advertise(at int) error {
	t, b := p.mem.RMRTriplet(at, rpingSize), p.bytes(outgoing, rpingMessage)
	binary.BigEndian.PutUint64(b, t.TargetAddress)
	binary.BigEndian.PutUint32(b[8:], t.RMRContext)
	binary.BigEndian.PutUint32(b[12:], uint32(t.SegmentLength))
	return p.send()
}

// advertised waits for the peer's advertisement.
func (p pinger) advertised() (udat.RMRTriplet, error) {
	b, err := p.receive()
	return udat.RMRTriplet{TargetAddress: binary.BigEndian.Uint64(b[:]), RMRContext: binary.BigEndian.Uint32(b[8:]),
		SegmentLength: uint64(binary.BigEndian.Uint32(b[12:]))}, err
}

// rpingServer serves clients, each in a goroutine, until all have disconnected.
func rpingServer(addr netip.Addr, switches []string) error {
	f := flag.NewFlagSet("rping", flag.ContinueOnError)
	number := f.Uint("clients", 1, "clients to serve, one after the other or at once")
	if err := f.Parse(switches); err != nil {
		return err
	}
	clients := int(*number)
	e, err := newEnd(addr, rpingMemory, 1, 4)
	if err != nil {
		return err
	}
	defer e.close()
	requests, err := e.listen(rpingPort)
	if err != nil {
		return err
	}
	ended := make(chan error, clients)
	for range clients {
		ev, err := e.await(requests, udat.EventConnectionRequest)
		if err != nil {
			return err
		}
		go func() { ended <- rpingServe(e, ev.CR) }()
	}
	for range clients {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

func rpingServe(e *end, client *udat.CR) error {
	own, err := e.sibling(rpingMemory, 1, 4)
	if err != nil {
		return err
	}
	p, err := newPinger(own)
	if err != nil {
		return err
	}
	if err := client.Accept(p.ep, nil); err != nil {
		return err
	}
	if err := p.established(1); err != nil {
		return err
	}
	for range rpingCount {
		if err := p.answer(); err != nil {
			return err
		}
	}
	return p.disconnected(1)
}

// answer serves one ping.
func (p pinger) answer() error {
	from, err := p.advertised()
	if err != nil {
		return err
	}
	if from.SegmentLength > rpingSize { // the length comes from the peer, and must not exceed this end's memory
		return fmt.Errorf("a text of %d bytes, the limit is %d", from.SegmentLength, rpingSize)
	}
	n := int(from.SegmentLength)
	if err := p.done(p.ep.PostRDMARead(p.iov(sink, n), 0, from, udat.CompletionDefault)); err != nil {
		return err
	}
	if err := p.send(); err != nil { // lets the client continue
		return err
	}
	to, err := p.advertised()
	if err != nil {
		return err
	}
	if err := p.done(p.ep.PostRDMAWrite(p.iov(sink, n), 0, to, udat.CompletionDefault)); err != nil {
		return err
	}
	return p.send()
}

func rpingClient(addr netip.Addr, _ []string) error {
	e, err := newEnd(addr, rpingMemory, 1, 4)
	if err != nil {
		return err
	}
	defer e.close()
	p, err := newPinger(e)
	if err != nil {
		return err
	}
	if err := connect(p.ep, addr, rpingPort); err != nil {
		return err
	}
	if err := p.established(1); err != nil {
		return err
	}
	for i := range rpingCount {
		text := p.bytes(source, rpingSize)
		copy(text, fmt.Sprintf("rdma-ping-%d: %s", i, bytes.Repeat([]byte("ABCDEFGH"), rpingSize/8)))
		text[rpingSize-1] = 0 // the server handles the text as a C string
		for _, at := range []int{source, sink} {
			if err := p.advertise(at); err != nil {
				return err
			}
			if _, err := p.receive(); err != nil {
				return err
			}
		}
		if got := p.bytes(sink, rpingSize); !bytes.Equal(got, text) {
			return fmt.Errorf("ping %d: sent %q, got %q", i, text, got)
		}
	}
	return p.disconnect(p.ep)
}
