package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

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
	patience     = 30 * time.Second
)

// Where things are in the end's memory.
const (
	source = iota * rpingSize // the client's text
	sink                      // what the server has written, or read
	incoming
	outgoing
	memorySize
)

// end is one end of the connection: its objects, and memory for texts and messages.
type end struct {
	ia                            *udat.IA
	ep                            *udat.EP
	mem                           *udat.LMR
	receives, requests, connected *udat.EVD
}

func newEnd(addr netip.Addr) (e *end, err error) {
	e = new(end)
	if e.ia, err = udat.Open(addr.String()); err != nil {
		return nil, err
	}
	pz, err := e.ia.CreatePZ()
	if err != nil {
		return nil, err
	}
	for _, evd := range []struct {
		to     **udat.EVD
		stream udat.EVDFlags
	}{{&e.receives, udat.EVDDTO}, {&e.requests, udat.EVDDTO}, {&e.connected, udat.EVDConnection}} {
		if *evd.to, err = e.ia.CreateEVD(32, evd.stream, nil); err != nil {
			return nil, err
		}
	}
	if e.mem, err = e.ia.AllocLMR(pz, memorySize, udat.PrivAll); err != nil {
		return nil, err
	}
	if e.ep, err = e.ia.CreateEP(pz, e.receives, e.requests, e.connected, nil); err != nil {
		return nil, err
	}
	return e, e.postReceive() // before the connection: the peer may send at once
}

func (e *end) close() { e.ia.Close(udat.CloseAbrupt) }

func (e *end) bytes(at, n int) []byte { return e.mem.Bytes()[at : at+n] }

func (e *end) iov(at, n int) []udat.LMRTriplet { return []udat.LMRTriplet{e.mem.Triplet(at, n)} }

func (e *end) postReceive() error {
	return e.ep.PostRecv(e.iov(incoming, rpingMessage), 0, udat.CompletionDefault)
}

// await takes the next event, which must be of the given kind; a completion must be a success.
func await(evd *udat.EVD, want udat.EventNumber) (udat.Event, error) {
	ev, _, err := evd.Wait(patience, 1)
	switch {
	case err != nil:
		return ev, err
	case ev.Number != want:
		return ev, fmt.Errorf("%v, want %v: %w", ev.Number, want, errors.Join(ev.Err()))
	case ev.Status != udat.DTOSuccess:
		return ev, fmt.Errorf("%v ended with %v", ev.Operation, ev.Status)
	}
	return ev, nil
}

// receive waits for a message and posts the next receive.
func (e *end) receive() (message [rpingMessage]byte, err error) {
	ev, err := await(e.receives, udat.EventDTOCompletion)
	if err == nil && ev.Length != rpingMessage {
		err = fmt.Errorf("a message of %d bytes", ev.Length)
	}
	if err != nil {
		return message, err
	}
	copy(message[:], e.bytes(incoming, rpingMessage))
	return message, e.postReceive()
}

// request posts an operation and waits for its end.
func (e *end) request(err error) error {
	if err != nil {
		return err
	}
	_, err = await(e.requests, udat.EventDTOCompletion)
	return err
}

func (e *end) send() error {
	return e.request(e.ep.PostSend(e.iov(outgoing, rpingMessage), 0, udat.CompletionDefault))
}

// advertise tells the peer where a text is.
func (e *end) advertise(at int) error {
	t, b := e.mem.RMRTriplet(at, rpingSize), e.bytes(outgoing, rpingMessage)
	binary.BigEndian.PutUint64(b, t.TargetAddress)
	binary.BigEndian.PutUint32(b[8:], t.RMRContext)
	binary.BigEndian.PutUint32(b[12:], uint32(t.SegmentLength))
	return e.send()
}

// advertised waits for the peer's advertisement.
func (e *end) advertised() (udat.RMRTriplet, error) {
	b, err := e.receive()
	return udat.RMRTriplet{TargetAddress: binary.BigEndian.Uint64(b[:]), RMRContext: binary.BigEndian.Uint32(b[8:]),
		SegmentLength: uint64(binary.BigEndian.Uint32(b[12:]))}, err
}

func rping(role string, addr netip.Addr) error {
	e, err := newEnd(addr)
	if err != nil {
		return err
	}
	defer e.close()
	if role == "server" {
		return e.serve()
	}
	return e.ping(addr)
}

func (e *end) serve() error {
	requests, err := e.ia.CreateEVD(8, udat.EVDCR, nil)
	if err != nil {
		return err
	}
	if _, err = e.ia.CreatePSP(rpingPort, requests, udat.PSPConsumer); err != nil {
		return err
	}
	ev, err := await(requests, udat.EventConnectionRequest)
	if err != nil {
		return err
	}
	if err := ev.CR.Accept(e.ep, nil); err != nil {
		return err
	}
	if _, err := await(e.connected, udat.EventConnectionEstablished); err != nil {
		return err
	}
	for range rpingCount {
		if err := e.answer(); err != nil {
			return err
		}
	}
	_, err = await(e.connected, udat.EventConnectionDisconnected)
	return err
}

// answer serves one ping.
func (e *end) answer() error {
	from, err := e.advertised()
	if err != nil {
		return err
	}
	if from.SegmentLength > rpingSize { // the peer's word: it must not exceed this end's memory
		return fmt.Errorf("a text of %d bytes, the limit is %d", from.SegmentLength, rpingSize)
	}
	n := int(from.SegmentLength)
	if err := e.request(e.ep.PostRDMARead(e.iov(sink, n), 0, from, udat.CompletionDefault)); err != nil {
		return err
	}
	if err := e.send(); err != nil { // go on
		return err
	}
	to, err := e.advertised()
	if err != nil {
		return err
	}
	if err := e.request(e.ep.PostRDMAWrite(e.iov(sink, n), 0, to, udat.CompletionDefault)); err != nil {
		return err
	}
	return e.send()
}

func (e *end) ping(addr netip.Addr) error {
	if err := e.ep.Connect(addr, rpingPort, patience, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return err
	}
	if _, err := await(e.connected, udat.EventConnectionEstablished); err != nil {
		return err
	}
	for i := range rpingCount {
		text := e.bytes(source, rpingSize)
		copy(text, fmt.Sprintf("rdma-ping-%d: %s", i, bytes.Repeat([]byte("ABCDEFGH"), rpingSize/8)))
		text[rpingSize-1] = 0 // the server writes back what it takes for a C string
		for _, at := range []int{source, sink} {
			if err := e.advertise(at); err != nil {
				return err
			}
			if _, err := e.receive(); err != nil {
				return err
			}
		}
		if got := e.bytes(sink, rpingSize); !bytes.Equal(got, text) {
			return fmt.Errorf("ping %d: sent %q, got %q", i, text, got)
		}
	}
	if err := e.ep.Disconnect(udat.CloseGraceful); err != nil {
		return err
	}
	_, err := await(e.connected, udat.EventConnectionDisconnected)
	return err
}
