package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// The protocol of cmtime: many connections at once, no messages, and the client disconnects all.
const (
	cmtimePort        = udat.ConnQual(7471)
	cmtimeConnections = 10 // the switch -c
)

func cmtimeServer(addr netip.Addr, _ []string) error {
	e, err := newEnd(addr, 1, cmtimeConnections, 1)
	if err != nil {
		return err
	}
	defer e.close()
	requests, err := e.listen(cmtimePort)
	if err != nil {
		return err
	}
	for range cmtimeConnections {
		ep, err := e.newEP()
		if err != nil {
			return err
		}
		if err := e.accept(requests, ep); err != nil {
			return err
		}
	}
	if err := e.established(cmtimeConnections); err != nil {
		return err
	}
	return e.disconnected(cmtimeConnections)
}

func cmtimeClient(addr netip.Addr, _ []string) error {
	e, err := newEnd(addr, 1, cmtimeConnections, 1)
	if err != nil {
		return err
	}
	defer e.close()
	var eps []*udat.EP
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"create endpoint", func() (err error) {
			eps, err = e.newEPs(cmtimeConnections)
			return err
		}},
		{"connect", func() error {
			for _, ep := range eps {
				if err := connect(ep, addr, cmtimePort); err != nil {
					return err
				}
			}
			return e.established(len(eps))
		}},
		{"disconnect", func() error { return e.disconnect(eps...) }},
	} {
		start := time.Now()
		if err := step.do(); err != nil {
			return err
		}
		fmt.Printf("%s: %v each\n", step.name, time.Since(start)/cmtimeConnections)
	}
	return nil
}
