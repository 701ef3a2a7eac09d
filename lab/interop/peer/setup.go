package main

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of setup, which has no counterpart in C: one connection request after the other,
// with private data of each size in turn. The server rejects every third request. It accepts the
// others, with the triplet of its memory and private data up to the size of the request. The client
// reads that memory, with more reads than may be in flight at once, and disconnects.
const (
	setupPort   = udat.ConnQual(7473)
	setupReads  = 8
	setupMemory = setupReads * setupRead
	setupRead   = 4096
	setupPlace  = 20 // an RMRTriplet
)

// setupSizes returns the sizes of private data that a device may have to carry.
func setupSizes(e *end) (sizes []int, err error) {
	_, _, attr, err := e.ia.Query()
	if err != nil {
		return nil, err
	}
	for _, n := range []int{0, 1, 2, 3, 4, 5, 55, 56, 57, 148, 196, 197, 250, 251} {
		if n <= attr.MaxPrivateDataSize {
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

// setupData returns n bytes of private data for a message of the given kind.
func setupData(kind byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = kind + byte(i)*7
	}
	return b
}

// Kinds of private data.
const setupRequest, setupAccept, setupReject = 1, 2, 3

func setupRejects(i int) bool { return i%3 == 2 }

// setupDepth returns the read depth of the connection, which both ends want.
func setupDepth(i int) int { return 1 + i%4 }

// newSetup makes an end and an endpoint for each connection.
func newSetup(addr netip.Addr) (e *end, sizes []int, eps []*udat.EP, err error) {
	if e, err = newEnd(addr, setupMemory, 1, 2*setupReads); err != nil {
		return nil, nil, nil, err
	}
	sizes, err = setupSizes(e)
	for i := 0; i < len(sizes) && err == nil; i++ {
		var ep *udat.EP
		ep, err = e.ia.CreateEP(e.pz, e.receives, e.requests, e.connected, &udat.EPAttr{MaxRecvDTOs: 1,
			MaxRequestDTOs: setupReads, MaxRDMAReadIn: setupDepth(i), MaxRDMAReadOut: setupDepth(i)})
		eps = append(eps, ep)
	}
	if err != nil {
		e.close()
	}
	return e, sizes, eps, err
}

func setupServer(addr netip.Addr, _ []string) error {
	e, sizes, eps, err := newSetup(addr)
	if err != nil {
		return err
	}
	defer e.close()
	copy(e.mem.Bytes(), setupData(0, setupMemory))
	place, err := e.mem.RMRTriplet(0, setupMemory).MarshalBinary()
	if err != nil {
		return err
	}
	requests, err := e.listen(setupPort)
	if err != nil {
		return err
	}
	for i, n := range sizes {
		ev, err := e.await(requests, udat.EventConnectionRequest)
		if err != nil {
			return err
		}
		request, err := ev.CR.Query()
		if err != nil {
			return err
		}
		if err := setupSame(request.PrivateData, request.PrivateDataPadded, setupData(setupRequest, n)); err != nil {
			return err
		}
		if setupRejects(i) {
			if err := ev.CR.Reject(setupData(setupReject, min(n, 100))); err != nil {
				return err
			}
			continue
		}
		answer := append(place, setupData(setupAccept, max(0, n-setupPlace))...)
		if err := ev.CR.Accept(eps[i], answer); err != nil {
			return err
		}
		if err := e.established(1); err != nil {
			return err
		}
		if err := e.disconnected(1); err != nil {
			return err
		}
	}
	return nil
}

func setupClient(addr netip.Addr, _ []string) error {
	e, sizes, eps, err := newSetup(addr)
	if err != nil {
		return err
	}
	defer e.close()
	for i, n := range sizes {
		err := eps[i].Connect(addr, setupPort, patience, setupData(setupRequest, n), udat.QoSBestEffort,
			udat.ConnectDefault)
		if err != nil {
			return err
		}
		if err := e.setupAnswered(eps[i], i, n); err != nil {
			return fmt.Errorf("connection %d, %d bytes: %w", i, n, err)
		}
	}
	return nil
}

// setupAnswered checks the answer to request i, and uses the connection.
func (e *end) setupAnswered(ep *udat.EP, i, n int) error {
	if setupRejects(i) {
		ev, err := e.await(e.connected, udat.EventConnectionPeerRejected)
		if err != nil {
			return err
		}
		return setupSame(ev.PrivateData(), ev.PrivateDataPadded(), setupData(setupReject, min(n, 100)))
	}
	ev, err := e.await(e.connected, udat.EventConnectionEstablished)
	if err != nil {
		return err
	}
	answer := ev.PrivateData()
	if len(answer) < setupPlace {
		return fmt.Errorf("an answer of %d bytes", len(answer))
	}
	want := setupData(setupAccept, max(0, n-setupPlace))
	if err := setupSame(answer[setupPlace:], ev.PrivateDataPadded(), want); err != nil {
		return err
	}
	var place udat.RMRTriplet
	if err := place.UnmarshalBinary(answer[:setupPlace]); err != nil {
		return err
	}
	clear(e.mem.Bytes())
	place.SegmentLength = setupRead
	first := place.TargetAddress
	for i := range setupReads {
		place.TargetAddress = first + uint64(i*setupRead)
		if err := ep.PostRDMARead(e.iov(i*setupRead, setupRead), 0, place, udat.CompletionDefault); err != nil {
			return err
		}
	}
	if err := e.awaitAll(e.requests, setupReads, udat.EventDTOCompletion); err != nil {
		return err
	}
	if !bytes.Equal(e.mem.Bytes(), setupData(0, setupMemory)) {
		return fmt.Errorf("%d reads at depth %d brought other bytes", setupReads, setupDepth(i))
	}
	return e.disconnect(ep)
}

// setupSame compares private data. If padded is true, the length of the received data is unknown,
// and zeroes may follow it.
func setupSame(got []byte, padded bool, want []byte) error {
	if padded {
		got = got[:min(len(got), len(want))]
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("private data of %d bytes, %x, want %d, %x", len(got), got, len(want), want)
	}
	return nil
}
