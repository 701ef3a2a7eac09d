package main

import (
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of ucmatose, formerly cmatose: several connections; the server sends messages on
// each, the client answers with as many and the server disconnects.
const (
	cmatosePort        = udat.ConnQual(7471)
	cmatoseConnections = 4 // the switch -c
	cmatoseMessages    = 4 // the switch -C
	cmatoseSize        = 100
)

// newCmatose makes the endpoints, with all their receives. All messages share one memory, because
// nobody checks them.
func newCmatose(addr netip.Addr) (*end, []*udat.EP, error) {
	e, err := newEnd(addr, cmatoseSize, cmatoseConnections, cmatoseMessages)
	if err != nil {
		return nil, nil, err
	}
	eps, err := e.newEPs(cmatoseConnections)
	for _, ep := range eps {
		for range cmatoseMessages {
			if err == nil {
				err = ep.PostRecv(e.iov(0, cmatoseSize), 0, udat.CompletionDefault)
			}
		}
	}
	if err != nil {
		e.close()
	}
	return e, eps, err
}

func cmatoseServer(addr netip.Addr, _ []string) error {
	e, eps, err := newCmatose(addr)
	if err != nil {
		return err
	}
	defer e.close()
	requests, err := e.listen(cmatosePort)
	if err != nil {
		return err
	}
	for _, ep := range eps {
		if err := e.accept(requests, ep); err != nil {
			return err
		}
	}
	if err := e.established(len(eps)); err != nil {
		return err
	}
	if err := cmatoseSend(e, eps); err != nil {
		return err
	}
	if err := cmatoseReceive(e, eps); err != nil {
		return err
	}
	return e.disconnect(eps...)
}

func cmatoseClient(addr netip.Addr, _ []string) error {
	e, eps, err := newCmatose(addr)
	if err != nil {
		return err
	}
	defer e.close()
	for _, ep := range eps {
		if err := connect(ep, addr, cmatosePort); err != nil {
			return err
		}
	}
	if err := e.established(len(eps)); err != nil {
		return err
	}
	if err := cmatoseReceive(e, eps); err != nil {
		return err
	}
	if err := cmatoseSend(e, eps); err != nil {
		return err
	}
	return e.disconnected(len(eps))
}

func cmatoseSend(e *end, eps []*udat.EP) error {
	for _, ep := range eps {
		for range cmatoseMessages {
			if err := ep.PostSend(e.iov(0, cmatoseSize), 0, udat.CompletionDefault); err != nil {
				return err
			}
		}
	}
	return e.awaitAll(e.requests, len(eps)*cmatoseMessages, udat.EventDTOCompletion)
}

func cmatoseReceive(e *end, eps []*udat.EP) error {
	for range len(eps) * cmatoseMessages {
		if _, err := e.received(cmatoseSize); err != nil {
			return err
		}
	}
	return nil
}
