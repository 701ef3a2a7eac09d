package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

// The protocol of dtest. First the server tells its address and provider over TCP. Then there is
// one connection, with 48 bytes of private data each way, and on it:
//
//  1. both ends tell where their buffers are, in a message of 16 bytes (place);
//  2. both write to the other's buffer in a burst, and agree on the end of it: the client sends its
//     place once more, the server answers with its own;
//  3. both read from the other's buffer 4 times, and tell their places again;
//  4. the client sends 100 messages, each of which the server answers with one;
//  5. the client disconnects.
const (
	dtestSide     = 15828 // TCP
	dtestQual     = udat.ConnQual(45248)
	dtestSize     = 4096 // -b
	dtestBurst    = 10   // -B
	dtestReads    = 4
	dtestPings    = 100
	dtestPlace    = 16
	dtestPlaces   = 3    // that each end receives
	dtestPing     = 0x55 // the first byte of a message of the client
	dtestPong     = 0xaa
	dtestProvider = "interop" // what the client opens: a name of its dat.conf
)

// Where things are in the end's memory.
const (
	written  = iota * dtestSize // the peer writes and reads it
	outgoes                     // this end's writes, reads and sends
	pings                       // messages come here
	places                      // incoming, one after the other, and then the outgoing one
	dtestEnd = places + (dtestPlaces+1)*dtestPlace
)

// tester is one end of dtest.
type tester struct {
	*end
	ep   *udat.EP
	peer udat.RMRTriplet // its buffer
}

func newTester(addr netip.Addr) (*tester, error) {
	e, err := newEnd(addr, dtestEnd, 1, dtestPings+dtestPlaces)
	if err != nil {
		return nil, err
	}
	t := &tester{end: e}
	if t.ep, err = e.newEP(); err == nil {
		err = t.postPlaces()
	}
	if err != nil {
		e.close()
	}
	return t, err
}

func (t *tester) postPlaces() error {
	for i := range dtestPlaces {
		if err := t.ep.PostRecv(t.iov(places+i*dtestPlace, dtestPlace), udat.Cookie(i), udat.CompletionDefault); err != nil {
			return err
		}
	}
	return nil
}

func dtestServer(addr netip.Addr, _ int) error {
	t, err := newTester(addr)
	if err != nil {
		return err
	}
	defer t.close()
	requests, err := t.listen(dtestQual)
	if err != nil {
		return err
	}
	if err := tellClient(addr); err != nil {
		return err
	}
	if err := t.acceptPattern(requests, t.ep); err != nil {
		return err
	}
	if err := t.established(1); err != nil {
		return err
	}
	if err := t.run(false); err != nil {
		return err
	}
	return t.disconnected(1)
}

func dtestClient(addr netip.Addr) error {
	t, err := newTester(addr)
	if err != nil {
		return err
	}
	defer t.close()
	server, err := askServer(addr)
	if err != nil {
		return err
	}
	if err := t.connect(server); err != nil {
		return err
	}
	if err := t.run(true); err != nil {
		return err
	}
	return t.disconnect(t.ep)
}

// connect connects to a server, which listens only a while after it has told its address.
func (t *tester) connect(server netip.Addr) error {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := connect(t.ep, server, dtestQual, pattern(1)); err != nil {
			return err
		}
		ev, _, err := t.connected.Wait(patience, 1)
		switch {
		case err != nil:
			return err
		case ev.Number == udat.EventConnectionEstablished:
			return checkPattern(ev.PrivateData(), 2)
		case ev.Number != udat.EventConnectionNonPeerRejected || time.Now().After(until):
			return fmt.Errorf("%v: %w", ev.Number, ev.Err())
		}
		if err := t.ep.Reset(); err != nil {
			return err
		}
		for range dtestPlaces { // the receives are flushed
			if _, _, err := t.receives.Wait(patience, 1); err != nil {
				return err
			}
		}
		if err := t.postPlaces(); err != nil {
			return err
		}
	}
}

func (t *tester) run(client bool) error {
	if err := t.tell(); err != nil {
		return err
	}
	if err := t.hear(0); err != nil {
		return err
	}
	copy(t.bytes(outgoes, dtestSize), "written in Go\x00")
	for range dtestBurst {
		if err := t.ep.PostRDMAWrite(t.iov(outgoes, dtestSize), 0, t.peer, udat.CompletionDefault); err != nil {
			return err
		}
	}
	if err := awaitAll(t.requests, dtestBurst, udat.EventDTOCompletion); err != nil {
		return err
	}
	if client {
		if err := t.tell(); err != nil {
			return err
		}
	}
	if err := t.hear(1); err != nil {
		return err
	}
	if !client {
		if err := t.tell(); err != nil {
			return err
		}
	}
	if text := t.bytes(written, dtestSize); !bytes.Contains(text, []byte("RDMA write data")) {
		return fmt.Errorf("the peer has written %.40q", text)
	}
	for range dtestReads {
		if err := t.done(t.ep.PostRDMARead(t.iov(outgoes, dtestSize), 0, t.peer, udat.CompletionDefault)); err != nil {
			return err
		}
	}
	if err := t.tell(); err != nil {
		return err
	}
	if err := t.hear(2); err != nil {
		return err
	}
	return t.pingPong(client)
}

// tell tells the peer where this end's buffer is.
func (t *tester) tell() error {
	mine, b := t.mem.RMRTriplet(written, dtestSize), t.bytes(places+dtestPlaces*dtestPlace, dtestPlace)
	binary.BigEndian.PutUint64(b, mine.TargetAddress)
	binary.BigEndian.PutUint32(b[8:], uint32(mine.SegmentLength))
	binary.BigEndian.PutUint32(b[12:], mine.RMRContext)
	return t.done(t.ep.PostSend(t.iov(places+dtestPlaces*dtestPlace, dtestPlace), 0, udat.CompletionDefault))
}

// hear waits for the peer's place, by the receive of that number.
func (t *tester) hear(number int) error {
	ev, err := t.received(dtestPlace)
	if err != nil {
		return err
	}
	if ev.Cookie != udat.Cookie(number) {
		return fmt.Errorf("receive %d completes, want %d", ev.Cookie, number)
	}
	b := t.bytes(places+number*dtestPlace, dtestPlace)
	t.peer = udat.RMRTriplet{TargetAddress: binary.BigEndian.Uint64(b),
		SegmentLength: uint64(binary.BigEndian.Uint32(b[8:])), RMRContext: binary.BigEndian.Uint32(b[12:])}
	if t.peer.SegmentLength != dtestSize {
		return fmt.Errorf("the peer's buffer has %d bytes, want %d", t.peer.SegmentLength, dtestSize)
	}
	return nil
}

func (t *tester) pingPong(client bool) error {
	for range dtestPings {
		if err := t.ep.PostRecv(t.iov(pings, dtestSize), 0, udat.CompletionDefault); err != nil {
			return err
		}
	}
	mine, theirs := byte(dtestPing), byte(dtestPong)
	if !client {
		mine, theirs = theirs, mine
	}
	t.bytes(outgoes, 1)[0] = mine
	send := func() error { return t.ep.PostSend(t.iov(outgoes, dtestSize), 0, udat.CompletionSuppress) }
	for i := range dtestPings {
		if client {
			if err := send(); err != nil {
				return err
			}
		}
		if _, err := t.received(dtestSize); err != nil {
			return err
		}
		if got := t.bytes(pings, 1)[0]; got != theirs {
			return fmt.Errorf("message %d begins with 0x%x, want 0x%x", i, got, theirs)
		}
		if !client {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// The private data of dtest and dtestcm: 48 bytes, counted from 1 in the request and from 2 in the
// acceptance.
func pattern(from byte) []byte {
	b := make([]byte, 48)
	for i := range b {
		b[i] = from + byte(i)
	}
	return b
}

func checkPattern(got []byte, from byte) error {
	if !bytes.HasPrefix(got, pattern(from)) {
		return fmt.Errorf("private data % x, want % x", got, pattern(from))
	}
	return nil
}

// acceptPattern accepts a client with the right private data.
func (e *end) acceptPattern(requests *udat.EVD, ep *udat.EP) error {
	ev, err := await(requests, udat.EventConnectionRequest)
	if err != nil {
		return err
	}
	p, err := ev.CR.Query()
	if err != nil {
		return err
	}
	if err := checkPattern(p.PrivateData, 1); err != nil {
		return errors.Join(err, ev.CR.Reject(nil))
	}
	return ev.CR.Accept(ep, pattern(2))
}

// The first message, over TCP: 128 bytes of text, "lid:queue pair:scope:address:provider", where
// the first three are 0 for rdma_cm, and the address is the bytes of an IPv4 address as a number of
// the host's order.
const greeting = 128

// tellClient waits for a client and tells it this server's address.
func tellClient(addr netip.Addr) error {
	if !addr.Is4() {
		return errors.New("dtest speaks IPv4 only")
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: dtestSide})
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := listener.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	var b [greeting]byte
	copy(b[:], fmt.Sprintf("0000:00000000:00000000:%08x:%s", binary.NativeEndian.Uint32(addr.AsSlice()), dtestProvider))
	_, err = conn.Write(b[:])
	return err
}

// askServer returns the address that the server tells.
func askServer(addr netip.Addr) (netip.Addr, error) {
	conn, err := net.DialTimeout("tcp4", netip.AddrPortFrom(addr, dtestSide).String(), patience)
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return netip.Addr{}, err
	}
	var b [greeting]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return netip.Addr{}, err
	}
	var lid, qpn, scope, native uint32
	text := strings.ReplaceAll(string(b[:bytes.IndexByte(append(b[:], 0), 0)]), ":", " ")
	if _, err := fmt.Sscanf(text, "%x %x %x %x", &lid, &qpn, &scope, &native); err != nil {
		return netip.Addr{}, fmt.Errorf("the server says %q: %w", text, err)
	}
	return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, native))), nil
}
