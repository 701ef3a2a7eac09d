package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// connectTime limits each wait for an event.
const connectTime = time.Minute

// connectAtOnce is how many connections are being established at a time.
const connectAtOnce = 32

// connectMany connects n endpoints to n others in this process, and returns how long that took.
func connectMany(device string, n int) (took time.Duration, err error) {
	ia, err := udat.Open(device)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ia.Close(udat.CloseAbrupt)) }()
	return connectOn(ia, n)
}

// connectOn does what connectMany does, on an open adapter. The connections stay open.
func connectOn(ia *udat.IA, n int) (took time.Duration, err error) {
	pz, err := ia.CreatePZ()
	if err != nil {
		return 0, err
	}
	var evds [3]*udat.EVD
	for i, flags := range []udat.EVDFlags{udat.EVDDTO, udat.EVDConnection, udat.EVDConnection | udat.EVDCR} {
		if evds[i], err = ia.CreateEVD(4*n+16, flags, nil); err != nil {
			return 0, err
		}
	}
	dto, conn, peerConn := evds[0], evds[1], evds[2]
	qual, _, err := ia.CreatePSPAny(peerConn, udat.PSPConsumer)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	attr := &udat.EPAttr{MaxRequestDTOs: 1, MaxRecvDTOs: 1, MaxRequestIOV: 1, MaxRecvIOV: 1}
	accepted := make(chan error, 1)
	go func() {
		accepted <- acceptAll(peerConn, n, func() (*udat.EP, error) { return ia.CreateEP(pz, dto, dto, peerConn, attr) })
	}()
	eps := make([]*udat.EP, n)
	for i := range eps {
		if eps[i], err = ia.CreateEP(pz, dto, dto, conn, attr); err != nil {
			return 0, fmt.Errorf("endpoint %d: %w", i, err)
		}
	}
	if err := connectAll(ia.Addr(), qual, conn, eps); err != nil {
		return 0, err
	}
	err = <-accepted
	return time.Since(begin), err
}

func connectAll(addr netip.Addr, qual udat.ConnQual, conn *udat.EVD, eps []*udat.EP) error {
	next := 0
	for up := 0; up < len(eps); up++ {
		for ; next < len(eps) && next-up < connectAtOnce; next++ {
			if err := eps[next].Connect(addr, qual, connectTime, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
				return err
			}
		}
		ev, _, err := conn.Wait(connectTime, 1)
		if err != nil {
			return fmt.Errorf("%d of %d connections are up: %w", up, len(eps), err)
		}
		if ev.Number != udat.EventConnectionEstablished {
			return fmt.Errorf("%d of %d connections are up: %v", up, len(eps), ev.Number)
		}
	}
	return nil
}

// acceptAll creates an endpoint for each of n connection requests, and returns when all of them are
// connected.
func acceptAll(evd *udat.EVD, n int, create func() (*udat.EP, error)) error {
	for up := 0; up < n; {
		ev, _, err := evd.Wait(connectTime, 1)
		if err != nil {
			return err
		}
		switch ev.Number {
		case udat.EventConnectionRequest:
			ep, err := create()
			if err == nil {
				err = ev.CR.Accept(ep, nil)
			}
			if err != nil {
				return err
			}
		case udat.EventConnectionEstablished:
			up++
		default:
			return fmt.Errorf("accepting: %v", ev.Number)
		}
	}
	return nil
}
