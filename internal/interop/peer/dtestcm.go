package main

import (
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of dtestcm: a greeting over TCP and private data as dtest's; many connections, of
// which the client requests a burst at a time; no messages; the client disconnects all.
const (
	dtestcmConnections = 20 // -c
	dtestcmBurst       = 5  // -b
)

func dtestcmServer(addr netip.Addr, _ int) error {
	e, err := newEnd(addr, 1, dtestcmConnections, 1)
	if err != nil {
		return err
	}
	defer e.close()
	eps, err := e.newEPs(dtestcmConnections)
	if err != nil {
		return err
	}
	requests, err := e.listen(dtestQual)
	if err != nil {
		return err
	}
	if err := tellClient(addr); err != nil {
		return err
	}
	for _, ep := range eps {
		if err := e.acceptPattern(requests, ep); err != nil {
			return err
		}
	}
	if err := e.established(len(eps)); err != nil {
		return err
	}
	return e.disconnected(len(eps))
}

func dtestcmClient(addr netip.Addr) error {
	e, err := newEnd(addr, 1, dtestcmConnections, 1)
	if err != nil {
		return err
	}
	defer e.close()
	eps, err := e.newEPs(dtestcmConnections)
	if err != nil {
		return err
	}
	server, err := askServer(addr)
	if err != nil {
		return err
	}
	for left := eps; len(left) > 0; left = left[dtestcmBurst:] {
		for _, ep := range left[:dtestcmBurst] {
			if err := connect(ep, server, dtestQual, pattern(1)); err != nil {
				return err
			}
		}
		for range dtestcmBurst {
			ev, err := await(e.connected, udat.EventConnectionEstablished)
			if err != nil {
				return err
			}
			if err := checkPattern(ev.PrivateData(), 2); err != nil {
				return err
			}
		}
	}
	return e.disconnect(eps...)
}
