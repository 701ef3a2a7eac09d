package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// The protocol of the bandwidth programs of perftest 6.06 with -R: a first connection, on which
// both ends send messages of the same length in turn, the client first; then a second one to the
// same port, on which the client sends, writes or reads.
const (
	perftestPort    = udat.ConnQual(18515)
	perftestCount   = 100  // the switch -n
	perftestSize    = 4096 // the switch -s
	perftestMessage = 56   // a description of a queue pair
	perftestSwaps   = 16
)

// perftest is a program: what the client posts, and how the ends keep in step.
type perftest struct {
	post    func(ep *udat.EP, iov []udat.LMRTriplet, to udat.RMRTriplet) error // nil: the client sends
	waits   int                                                                // number of exchanges after the start
	reports bool                                                               // figures are exchanged at the end
}

var (
	sendBW  = perftest{waits: 2}
	writeBW = perftest{waits: 1, reports: true, post: func(ep *udat.EP, iov []udat.LMRTriplet, to udat.RMRTriplet) error {
		return ep.PostRDMAWrite(iov, 0, to, udat.CompletionDefault)
	}}
	readBW = perftest{waits: 1, reports: true, post: func(ep *udat.EP, iov []udat.LMRTriplet, to udat.RMRTriplet) error {
		return ep.PostRDMARead(iov, 0, to, udat.CompletionDefault)
	}}
)

func (p perftest) program() program {
	return program{
		server: func(addr netip.Addr, _ []string) error { return p.run(addr, true) },
		client: func(addr netip.Addr, _ []string) error { return p.run(addr, false) },
	}
}

// talk is an end of the first connection.
type talk struct {
	*end
	ep     *udat.EP
	server bool
	next   int // the receive that comes next
}

// swap sends a message, and returns the peer's message, which has the same length.
func (t *talk) swap(own []byte) ([]byte, error) {
	for _, sends := range []bool{!t.server, t.server} {
		var err error
		if sends {
			copy(t.bytes(perftestSwaps*perftestMessage, len(own)), own)
			err = t.done(t.ep.PostSend(t.iov(perftestSwaps*perftestMessage, len(own)), 0, udat.CompletionDefault))
		} else {
			_, err = t.received(len(own))
		}
		if err != nil {
			return nil, err
		}
	}
	at := t.next % perftestSwaps * perftestMessage
	peer := append([]byte(nil), t.bytes(at, len(own))...)
	t.next++
	return peer, t.ep.PostRecv(t.iov(at, perftestMessage), 0, udat.CompletionDefault)
}

func (t *talk) swaps(all ...[]byte) error {
	for i, own := range all {
		if _, err := t.swap(own); err != nil {
			return fmt.Errorf("exchange %d: %w", i, err)
		}
	}
	return nil
}

// meet connects an endpoint. It is the server if requests is not nil, else the client. If the
// argument again is true, the server has accepted a connection before and may not be listening
// again yet. Then meet retries.
func (e *end) meet(ep *udat.EP, requests *udat.EVD, addr netip.Addr, again bool) error {
	if requests != nil {
		if err := e.accept(requests, ep); err != nil {
			return err
		}
		return e.established(1)
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if err := connect(ep, addr, perftestPort); err != nil {
			return err
		}
		ev, _, err := e.connected.Wait(patience, 1)
		switch {
		case err != nil:
			return err
		case ev.Number == udat.EventConnectionEstablished:
			return nil
		case !again || ev.Number != udat.EventConnectionNonPeerRejected || time.Now().After(until):
			return fmt.Errorf("%v: %w", ev.Number, ev.Err())
		}
		if err := ep.Reset(); err != nil {
			return err
		}
	}
}

func (p perftest) run(addr netip.Addr, server bool) error {
	e, err := newEnd(addr, (perftestSwaps+1)*perftestMessage, 1, perftestSwaps)
	if err != nil {
		return err
	}
	defer e.close()
	data, err := e.sibling(perftestSize, 1, perftestCount)
	if err != nil {
		return err
	}
	t := &talk{end: e, server: server}
	if t.ep, err = e.newEP(); err != nil {
		return err
	}
	for i := range perftestSwaps {
		if err := t.ep.PostRecv(e.iov(i*perftestMessage, perftestMessage), 0, udat.CompletionDefault); err != nil {
			return err
		}
	}
	ep, err := data.newEP()
	if err != nil {
		return err
	}
	for range perftestCount {
		if err := ep.PostRecv(data.iov(0, perftestSize), 0, udat.CompletionDefault); err != nil {
			return err
		}
	}
	var requests *udat.EVD
	if server {
		if requests, err = e.listen(perftestPort); err != nil {
			return err
		}
	}
	if err := e.meet(t.ep, requests, addr, false); err != nil {
		return err
	}
	version := append([]byte("6.06"), make([]byte, 12)...)
	blank, mtu1024 := make([]byte, perftestMessage), []byte("3\x00")
	if err := t.swaps(version, []byte{0, 0, 0x10, 0}, []byte{0, 0, 0, 64}, mtu1024, blank); err != nil {
		return err
	}
	if err := data.meet(ep, requests, addr, true); err != nil {
		return err
	}
	own := make([]byte, perftestMessage)
	place := data.mem.RMRTriplet(0, perftestSize)
	binary.BigEndian.PutUint32(own[4:], 4) // reads in flight
	binary.BigEndian.PutUint32(own[16:], place.RMRContext)
	binary.BigEndian.PutUint64(own[24:], place.TargetAddress)
	if err := t.swaps(blank); err != nil {
		return err
	}
	peer, err := t.swap(own)
	if err != nil {
		return err
	}
	to := udat.RMRTriplet{RMRContext: binary.BigEndian.Uint32(peer[16:]),
		TargetAddress: binary.BigEndian.Uint64(peer[24:]), SegmentLength: perftestSize}
	for range 1 + p.waits {
		if err := t.swaps(own); err != nil {
			return err
		}
	}
	if err := p.transfer(data, ep, to, server); err != nil {
		return err
	}
	if p.reports {
		if err := t.swaps(own); err != nil {
			return err
		}
		for _, v := range []uint64{perftestSize, perftestCount, 0, 0, 0} {
			if err := t.swaps(binary.BigEndian.AppendUint64(nil, v)); err != nil {
				return err
			}
		}
	}
	if err := t.swaps(own); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if server {
		if err := data.disconnected(1); err != nil {
			return err
		}
		return e.disconnected(1)
	}
	if err := data.disconnect(ep); err != nil {
		return err
	}
	return e.disconnect(t.ep)
}

// transfer runs the measurement.
func (p perftest) transfer(data *end, ep *udat.EP, to udat.RMRTriplet, server bool) error {
	switch {
	case server && p.post == nil:
		return data.awaitAll(data.receives, perftestCount, udat.EventDTOCompletion)
	case server:
		return nil
	}
	for range perftestCount {
		err := error(nil)
		if p.post == nil {
			err = ep.PostSend(data.iov(0, perftestSize), 0, udat.CompletionDefault)
		} else {
			err = p.post(ep, data.iov(0, perftestSize), to)
		}
		if err != nil {
			return err
		}
	}
	return data.awaitAll(data.requests, perftestCount, udat.EventDTOCompletion)
}
