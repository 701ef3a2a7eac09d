package main

import (
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of rdma_client and rdma_server: a message of 16 bytes to the server, and one back.
// The protocol of rdma_xclient and rdma_xserver has only the first of these messages.
const (
	rdmaPort    = udat.ConnQual(7471)
	rdmaMessage = 16
)

func rdmaServer(addr netip.Addr, _ []string) error  { return rdmaServe(addr, true) }
func rdmaClient(addr netip.Addr, _ []string) error  { return rdmaCall(addr, true) }
func rdmaxServer(addr netip.Addr, _ []string) error { return rdmaServe(addr, false) }
func rdmaxClient(addr netip.Addr, _ []string) error { return rdmaCall(addr, false) }

func rdmaServe(addr netip.Addr, answers bool) error {
	e, err := newEnd(addr, rdmaMessage, 1, 1)
	if err != nil {
		return err
	}
	defer e.close()
	ep, err := e.newEP()
	if err != nil {
		return err
	}
	if err := ep.PostRecv(e.iov(0, rdmaMessage), 0, udat.CompletionDefault); err != nil {
		return err
	}
	requests, err := e.listen(rdmaPort)
	if err != nil {
		return err
	}
	if err := e.accept(requests, ep); err != nil {
		return err
	}
	if err := e.established(1); err != nil {
		return err
	}
	if _, err := e.received(rdmaMessage); err != nil {
		return err
	}
	if answers {
		if err := e.done(ep.PostSend(e.iov(0, rdmaMessage), 0, udat.CompletionDefault)); err != nil {
			return err
		}
	}
	return e.disconnected(1)
}

func rdmaCall(addr netip.Addr, answered bool) error {
	e, err := newEnd(addr, rdmaMessage, 1, 1)
	if err != nil {
		return err
	}
	defer e.close()
	ep, err := e.newEP()
	if err != nil {
		return err
	}
	if answered {
		if err := ep.PostRecv(e.iov(0, rdmaMessage), 0, udat.CompletionDefault); err != nil {
			return err
		}
	}
	if err := connect(ep, addr, rdmaPort); err != nil {
		return err
	}
	if err := e.established(1); err != nil {
		return err
	}
	if err := e.done(ep.PostSend(e.iov(0, rdmaMessage), 0, udat.CompletionDefault)); err != nil {
		return err
	}
	if answered {
		if _, err := e.received(rdmaMessage); err != nil {
			return err
		}
	}
	return e.disconnect(ep)
}
