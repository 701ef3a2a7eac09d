package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// patience bounds every wait, so that this program does not wait for ever for a peer that has gone.
const patience = 60 * time.Second

// end is one side: an adapter, memory, and the dispatchers that all its endpoints share.
type end struct {
	ia                            *udat.IA
	pz                            *udat.PZ
	mem                           *udat.LMR
	receives, requests, connected *udat.EVD
	depth                         int // receives and requests in flight on one endpoint
}

// adapter returns the name by which to open the adapter that has an address. The address itself is
// such a name. The tests replace this function.
var adapter = netip.Addr.String

// listening is called when a server listens. The tests replace it.
var listening = func() {}

// newEnd opens the adapter that has the address.
func newEnd(addr netip.Addr, memory, endpoints, depth int) (*end, error) {
	ia, err := udat.Open(adapter(addr))
	if err != nil {
		return nil, err
	}
	pz, err := ia.CreatePZ()
	if err != nil {
		ia.Close(udat.CloseAbrupt)
		return nil, err
	}
	e, err := (&end{ia: ia, pz: pz}).sibling(memory, endpoints, depth)
	if err != nil {
		ia.Close(udat.CloseAbrupt)
	}
	return e, err
}

// sibling makes an end with memory and dispatchers of its own on the same adapter.
func (e *end) sibling(memory, endpoints, depth int) (s *end, err error) {
	s = &end{ia: e.ia, pz: e.pz, depth: depth}
	if s.receives, err = s.ia.CreateEVD(endpoints*depth, udat.EVDDTO, nil); err != nil {
		return nil, err
	}
	if s.requests, err = s.ia.CreateEVD(endpoints*depth, udat.EVDDTO, nil); err != nil {
		return nil, err
	}
	if s.connected, err = s.ia.CreateEVD(endpoints*4, udat.EVDConnection, nil); err != nil {
		return nil, err
	}
	s.mem, err = s.ia.AllocLMR(s.pz, memory, udat.PrivAll)
	return s, err
}

// close destroys the adapter and all objects on it, including those of sibling ends.
func (e *end) close() { e.ia.Close(udat.CloseAbrupt) }

func (e *end) newEP() (*udat.EP, error) {
	return e.ia.CreateEP(e.pz, e.receives, e.requests, e.connected,
		&udat.EPAttr{MaxRecvDTOs: e.depth, MaxRequestDTOs: e.depth, MaxRDMAReadIn: 4})
}

// newEPs makes n endpoints.
func (e *end) newEPs(n int) (eps []*udat.EP, err error) {
	eps = make([]*udat.EP, n)
	for i := range eps {
		if eps[i], err = e.newEP(); err != nil {
			return nil, err
		}
	}
	return eps, nil
}

func (e *end) bytes(at, n int) []byte { return e.mem.Bytes()[at : at+n] }

func (e *end) iov(at, n int) []udat.LMRTriplet { return []udat.LMRTriplet{e.mem.Triplet(at, n)} }

// await takes the next event, which must be of the given kind; a completion must be a success.
func (e *end) await(evd *udat.EVD, want udat.EventNumber) (udat.Event, error) {
	ev, _, err := evd.Wait(patience, 1)
	switch {
	case err != nil:
		return ev, fmt.Errorf("waiting for %v: %w", want, err)
	case ev.Number != want && ev.Err() != nil:
		return ev, fmt.Errorf("%v, want %v: %w", ev.Number, want, ev.Err())
	case ev.Number != want:
		return ev, fmt.Errorf("%v, want %v", ev.Number, want)
	case ev.Status != udat.DTOSuccess:
		return ev, fmt.Errorf("%v ended with %v", ev.Operation, ev.Status)
	}
	return ev, nil
}

// awaitAll takes n events of one kind.
func (e *end) awaitAll(evd *udat.EVD, n int, want udat.EventNumber) error {
	for i := range n {
		if _, err := e.await(evd, want); err != nil {
			return fmt.Errorf("%d of %d: %w", i, n, err)
		}
	}
	return nil
}

// received waits for a message, which must have the given size.
func (e *end) received(size int) (udat.Event, error) {
	ev, err := e.await(e.receives, udat.EventDTOCompletion)
	if err == nil && ev.Length != uint64(size) {
		err = fmt.Errorf("a message of %d bytes, want %d", ev.Length, size)
	}
	return ev, err
}

// done waits until a request has completed. The argument posted is the error that the post has
// returned, or nil.
func (e *end) done(posted error) error {
	if posted != nil {
		return posted
	}
	_, err := e.await(e.requests, udat.EventDTOCompletion)
	return err
}

// listen makes a service point, and the dispatcher of its requests.
func (e *end) listen(port udat.ConnQual) (*udat.EVD, error) {
	requests, err := e.ia.CreateEVD(128, udat.EVDCR, nil)
	if err == nil {
		_, err = e.ia.CreatePSP(port, requests, udat.PSPConsumer)
	}
	if err == nil {
		listening()
	}
	return requests, err
}

// accept waits for a client and connects it to the endpoint.
func (e *end) accept(requests *udat.EVD, ep *udat.EP) error {
	ev, err := e.await(requests, udat.EventConnectionRequest)
	if err != nil {
		return err
	}
	return ev.CR.Accept(ep, nil)
}

// connect begins a connection; its outcome is an event.
func connect(ep *udat.EP, to netip.Addr, port udat.ConnQual) error {
	return ep.Connect(to, port, patience, nil, udat.QoSBestEffort, udat.ConnectDefault)
}

// established waits until n endpoints are connected.
func (e *end) established(n int) error {
	return e.awaitAll(e.connected, n, udat.EventConnectionEstablished)
}

// disconnected waits until n connections have ended.
func (e *end) disconnected(n int) error {
	return e.awaitAll(e.connected, n, udat.EventConnectionDisconnected)
}

// disconnect ends the connections of the given endpoints, and waits until they have ended.
func (e *end) disconnect(eps ...*udat.EP) error {
	for _, ep := range eps {
		if err := ep.Disconnect(udat.CloseGraceful); err != nil {
			return err
		}
	}
	return e.disconnected(len(eps))
}
