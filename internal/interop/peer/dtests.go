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

// What dtest, dtestx and dtestcm share. tester is one end of dtest or dtestx: an endpoint, a target
// that the peer reads and writes, and receives for the messages that tell where it is (places).
type tester struct {
	*end
	ep     *udat.EP
	target *udat.LMR
	size   int             // of the target
	heard  int             // receives of places that have completed
	peer   udat.RMRTriplet // its target
}

// Where things are in the end's own memory.
const (
	testerPlace   = 16 // bytes
	testerPlaces  = 3  // receives, one after the other; then comes the outgoing place
	testerBuffers = (testerPlaces + 1) * testerPlace
)

// The end's buffers, each as large as the target.
const (
	bufferOut = iota // what it writes and sends, and reads into
	bufferIn         // messages come here
	bufferCount
)

func newTester(addr netip.Addr, size, depth int, priv udat.MemPriv) (*tester, error) {
	e, err := newEnd(addr, testerBuffers+bufferCount*words(size), 1, depth+testerPlaces)
	if err != nil {
		return nil, err
	}
	t := &tester{end: e, size: size}
	if t.target, err = e.ia.AllocLMR(e.pz, words(size), priv); err == nil {
		t.ep, err = e.newEP()
	}
	if err == nil {
		err = t.postPlaces()
	}
	if err != nil {
		e.close()
	}
	return t, err
}

// words rounds up to the 8 bytes of a word.
func words(size int) int { return (size + 7) &^ 7 }

// at is where a buffer is.
func (t *tester) at(buffer int) int { return testerBuffers + buffer*words(t.size) }

// buffer is the first n bytes of a buffer.
func (t *tester) buffer(buffer, n int) []byte { return t.bytes(t.at(buffer), n) }

func (t *tester) bufferIOV(buffer, n int) []udat.LMRTriplet { return t.iov(t.at(buffer), n) }

func (t *tester) postPlaces() error {
	for i := range testerPlaces {
		if err := t.ep.PostRecv(t.iov(i*testerPlace, testerPlace), udat.Cookie(i), udat.CompletionDefault); err != nil {
			return err
		}
	}
	return nil
}

// connect connects to a server, which listens only a while after it has told its address.
func (t *tester) connect(server netip.Addr, qual udat.ConnQual, private, answer []byte) error {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := connect(t.ep, server, qual, private); err != nil {
			return err
		}
		ev, err := t.next(t.connected)
		switch {
		case err != nil:
			return err
		case ev.Number == udat.EventConnectionEstablished:
			return checkPrivate(ev.PrivateData(), answer)
		case ev.Number != udat.EventConnectionNonPeerRejected || time.Now().After(until):
			return fmt.Errorf("%v: %w", ev.Number, ev.Err())
		}
		if err := t.ep.Reset(); err != nil {
			return err
		}
		for range testerPlaces { // the receives are flushed
			if _, err := t.next(t.receives); err != nil {
				return err
			}
		}
		if err := t.postPlaces(); err != nil {
			return err
		}
	}
}

// tell tells the peer where this end's target is.
func (t *tester) tell() error {
	const at = testerPlaces * testerPlace
	mine, b := t.target.RMRTriplet(0, t.size), t.bytes(at, testerPlace)
	binary.BigEndian.PutUint64(b, mine.TargetAddress)
	binary.BigEndian.PutUint32(b[8:], uint32(mine.SegmentLength))
	binary.BigEndian.PutUint32(b[12:], mine.RMRContext)
	return t.done(t.ep.PostSend(t.iov(at, testerPlace), 0, udat.CompletionDefault))
}

// hear waits for the peer's place.
func (t *tester) hear() error {
	if _, err := t.receivedNext(testerPlace); err != nil {
		return err
	}
	b := t.bytes((t.heard-1)*testerPlace, testerPlace)
	t.peer = udat.RMRTriplet{TargetAddress: binary.BigEndian.Uint64(b),
		SegmentLength: uint64(binary.BigEndian.Uint32(b[8:])), RMRContext: binary.BigEndian.Uint32(b[12:])}
	if t.peer.SegmentLength != uint64(t.size) {
		return fmt.Errorf("the peer's target has %d bytes, want %d", t.peer.SegmentLength, t.size)
	}
	return nil
}

// hearImmediate waits until the peer has written to the target with immediate data, which takes the
// receive of a place.
func (t *tester) hearImmediate(want uint32) error {
	ev, err := t.receivedNext(t.size)
	if err == nil && (ev.Operation != udat.DTOReceiveWriteImm || ev.Immediate != want) {
		err = fmt.Errorf("%v with immediate data 0x%x, want 0x%x", ev.Operation, ev.Immediate, want)
	}
	return err
}

// receivedNext waits for the next of the receives of places.
func (t *tester) receivedNext(size int) (udat.Event, error) {
	ev, err := t.received(size)
	if err == nil && ev.Cookie != udat.Cookie(t.heard) {
		err = fmt.Errorf("receive %d completes, want %d", ev.Cookie, t.heard)
	}
	t.heard++
	return ev, err
}

// pattern is the private data of dtest and dtestcm: 48 bytes, counted from 1 in the request and
// from 2 in the acceptance.
func pattern(from byte) []byte {
	b := make([]byte, 48)
	for i := range b {
		b[i] = from + byte(i)
	}
	return b
}

// The greeting, over TCP: 128 bytes of text, "lid:queue pair:scope:address:provider", where the
// first three are 0 for rdma_cm, and the address is the bytes of an IPv4 address as a number of the
// host's order. The server sends it; a client of dtestx answers with its own.
const (
	dtestSide        = 15828
	greetingSize     = 128
	greetingProvider = "interop" // what the client opens: a name of its dat.conf
)

func greeting(addr netip.Addr) []byte {
	text := fmt.Sprintf("0000:00000000:00000000:%08x:%s", binary.NativeEndian.Uint32(addr.AsSlice()), greetingProvider)
	return append([]byte(text), make([]byte, greetingSize-len(text))...)
}

// tellClient waits for a client and tells it this server's address.
func tellClient(addr netip.Addr, answered bool) error {
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
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err = conn.Write(greeting(addr)); err == nil && answered {
		_, err = io.ReadFull(conn, make([]byte, greetingSize))
	}
	return err
}

// askServer returns the address that the server tells.
func askServer(addr netip.Addr, answers bool) (netip.Addr, error) {
	conn, err := net.DialTimeout("tcp4", netip.AddrPortFrom(addr, dtestSide).String(), patience)
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return netip.Addr{}, err
	}
	var b [greetingSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return netip.Addr{}, err
	}
	if answers {
		if _, err := conn.Write(greeting(addr)); err != nil {
			return netip.Addr{}, err
		}
	}
	var lid, qpn, scope, native uint32
	text := strings.ReplaceAll(string(b[:bytes.IndexByte(append(b[:], 0), 0)]), ":", " ")
	if _, err := fmt.Sscanf(text, "%x %x %x %x", &lid, &qpn, &scope, &native); err != nil {
		return netip.Addr{}, fmt.Errorf("the server says %q: %w", text, err)
	}
	return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, native))), nil
}
