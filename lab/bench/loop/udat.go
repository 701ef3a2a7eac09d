package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// endpoint is an endpoint and the objects that it uses.
type endpoint struct {
	ep     *udat.EP
	dto    *udat.EVD
	mem    *udat.LMR
	peer   *endpoint
	size   int
	sent   uint32
	events bool
	got    []udat.Event
}

// connectTime limits each wait for a connection event.
const connectTime = 20 * time.Second

// adapter is an open adapter of the loop device.
type adapter struct {
	ia             *udat.IA
	pz             *udat.PZ
	conn, peerConn *udat.EVD
	qual           udat.ConnQual
}

func openAdapter(ends int) (d *adapter, err error) {
	d = new(adapter)
	if d.ia, err = udat.Open("loop0"); err != nil {
		return nil, err
	}
	if d.pz, err = d.ia.CreatePZ(); err != nil {
		return nil, err
	}
	if d.conn, err = d.ia.CreateEVD(4*ends+16, udat.EVDConnection, nil); err != nil {
		return nil, err
	}
	if d.peerConn, err = d.ia.CreateEVD(4*ends+16, udat.EVDConnection|udat.EVDCR, nil); err != nil {
		return nil, err
	}
	d.qual, _, err = d.ia.CreatePSPAny(d.peerConn, udat.PSPConsumer)
	return d, err
}

func (d *adapter) openEnd(owner *endpoint, conn *udat.EVD, depth, qlen int) (e *endpoint, err error) {
	e = new(endpoint)
	if owner != nil {
		e.dto, e.mem, e.got = owner.dto, owner.mem, owner.got
	} else {
		e.got = make([]udat.Event, most)
		if e.dto, err = d.ia.CreateEVD(qlen, udat.EVDDTO, nil); err != nil {
			return nil, err
		}
		if e.mem, err = d.ia.AllocLMR(d.pz, (recvs+1)*maxSize, udat.PrivAll); err != nil {
			return nil, err
		}
	}
	attr := &udat.EPAttr{MaxRequestDTOs: depth, MaxRecvDTOs: recvs, MaxRequestIOV: 1, MaxRecvIOV: 1, MaxRDMAReadIn: 4}
	e.ep, err = d.ia.CreateEP(d.pz, e.dto, e.dto, conn, attr)
	return e, err
}

func (d *adapter) openPair(owner, peerOwner *endpoint, depth, qlen int) (a, b *endpoint, err error) {
	if a, err = d.openEnd(owner, d.conn, depth, qlen); err != nil {
		return nil, nil, err
	}
	if b, err = d.openEnd(peerOwner, d.peerConn, depth, qlen); err != nil {
		return nil, nil, err
	}
	if err := a.ep.Connect(d.ia.Addr(), d.qual, connectTime, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return nil, nil, err
	}
	ev, _, err := d.peerConn.Wait(connectTime, 1)
	if err != nil {
		return nil, nil, err
	}
	if err := ev.CR.Accept(b.ep, nil); err != nil {
		return nil, nil, err
	}
	for _, evd := range []*udat.EVD{d.conn, d.peerConn} {
		if ev, _, err := evd.Wait(connectTime, 1); err != nil || ev.Number != udat.EventConnectionEstablished {
			return nil, nil, fmt.Errorf("connecting: %v, %w", ev.Number, err)
		}
	}
	a.peer, b.peer = b, a
	return a, b, nil
}

func runUdat(w work) (r run, err error) {
	d, err := openAdapter(w.Ends)
	if err != nil {
		return run{}, err
	}
	defer func() { err = errors.Join(err, d.ia.Close(udat.CloseAbrupt)) }()
	switch w.Kind {
	case kindPing:
		return d.ping(w)
	case kindRate:
		return d.rate(w)
	case kindBatch:
		return d.batches(w)
	default:
		return d.many(w)
	}
}

func (e *endpoint) postReceive(slot uint64) error {
	iov := [1]udat.LMRTriplet{e.mem.Triplet((int(slot)+1)*maxSize, e.size)}
	return e.ep.PostRecv(iov[:], udat.Cookie(slot), udat.CompletionDefault)
}

func (e *endpoint) postMessage() error {
	iov := [1]udat.LMRTriplet{e.mem.Triplet(0, e.size)}
	flags := udat.CompletionSuppress
	if e.sent++; e.sent%signal == 0 {
		flags = udat.CompletionDefault
	}
	return e.ep.PostSend(iov[:], 0, flags)
}

func (e *endpoint) message(events []udat.Event) (slot uint64, found bool, err error) {
	for i := range events {
		ev := &events[i]
		if ev.Status != udat.DTOSuccess {
			return 0, false, fmt.Errorf("%v: %v", ev.Operation, ev.Status)
		}
		if ev.Operation == udat.DTOReceive {
			slot, found = uint64(ev.Cookie), true
		}
	}
	return slot, found, nil
}

func (e *endpoint) awaitMessage() (uint64, error) {
	for {
		var n int
		var err error
		if e.events {
			n = 1
			e.got[0], _, err = e.dto.Wait(udat.Infinite, 1)
		} else if n, err = e.dto.DequeueSpin(e.got, spins); errors.Is(err, udat.ErrQueueEmpty) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if slot, found, err := e.message(e.got[:n]); found || err != nil {
			return slot, err
		}
	}
}

func (d *adapter) ping(w work) (run, error) {
	a, b, err := d.openPair(nil, nil, 2*signal+1, 64)
	if err != nil {
		return run{}, err
	}
	for _, e := range []*endpoint{a, b} {
		e.size, e.events = w.Size, w.Events
	}
	return pingPong(w, a, b)
}

func (e *endpoint) postWrite(cookie udat.Cookie, size int, flags udat.CompletionFlags) error {
	iov := [1]udat.LMRTriplet{e.mem.Triplet(0, size)}
	return e.ep.PostRDMAWrite(iov[:], cookie, e.peer.mem.RMRTriplet(maxSize, size), flags)
}

// reap dequeues the completions that have arrived, without waiting, and returns their number.
func (e *endpoint) reap() (int, error) {
	n, err := e.dto.DequeueBatch(e.got)
	if errors.Is(err, udat.ErrQueueEmpty) {
		return 0, nil
	}
	for i := range e.got[:n] {
		if e.got[i].Status != udat.DTOSuccess {
			return 0, fmt.Errorf("%v: %v", e.got[i].Operation, e.got[i].Status)
		}
	}
	return n, err
}

func (d *adapter) rate(w work) (run, error) {
	a, _, err := d.openPair(nil, nil, depth, 64)
	if err != nil {
		return run{}, err
	}
	c := newClock(w)
	posted, done := uint64(0), uint64(0)
	for posted%clocked != 0 || !c.over(posted) {
		for posted-done == depth {
			n, err := a.reap()
			if err != nil {
				return run{}, err
			}
			done += uint64(n) * moderate
		}
		posted++
		flags := udat.CompletionSuppress
		if posted%moderate == 0 {
			flags = udat.CompletionDefault
		}
		if err := a.postWrite(udat.Cookie(posted), w.Size, flags); err != nil {
			return run{}, err
		}
	}
	return c.end(), nil
}

func (d *adapter) batches(w work) (run, error) {
	a, b, err := d.openPair(nil, nil, depth, depth)
	if err != nil {
		return run{}, err
	}
	iovs := make([]udat.LMRTriplet, w.Batch)
	ops := make([]udat.Op, w.Batch)
	events := make([]udat.Event, w.Batch)
	base, remote := a.mem.Triplet(0, w.Size), b.mem.RMRTriplet(0, w.Size)
	size := uint64(w.Size)
	cookie, expected, bytes := udat.Cookie(0), udat.Cookie(0), uint64(0)
	c := newClock(w)
	for rounds := 0; rounds%64 != 0 || !c.over(uint64(expected)); rounds++ {
		for i := range ops {
			at := base.VirtualAddress + uint64(i)*size
			iovs[i] = udat.LMRTriplet{LMR: a.mem, VirtualAddress: at, SegmentLength: size}
			o := &ops[i]
			o.Kind, o.IOV, o.Cookie = udat.OpRDMAWrite, iovs[i:i+1], cookie
			o.Remote = remote
			o.Remote.TargetAddress += uint64(i) * size
			cookie++
		}
		if w.Batch == 1 {
			err = a.ep.PostRDMAWrite(iovs, ops[0].Cookie, ops[0].Remote, udat.CompletionDefault)
		} else {
			_, err = a.ep.PostBatch(ops)
		}
		if err != nil {
			return run{}, err
		}
		for got := 0; got < w.Batch; {
			k, err := a.dto.DequeueBatch(events)
			if err != nil && !errors.Is(err, udat.ErrQueueEmpty) {
				return run{}, err
			}
			for i := range events[:k] {
				if events[i].Status != udat.DTOSuccess || events[i].Cookie != expected {
					return run{}, fmt.Errorf("completion %d: %v", expected, events[i].Status)
				}
				expected++
				bytes += events[i].Length
			}
			got += k
		}
	}
	if bytes != uint64(expected)*size {
		return run{}, fmt.Errorf("%d bytes in %d writes of %d", bytes, expected, size)
	}
	return c.end(), nil
}

func (d *adapter) many(w work) (run, error) {
	each := (window + w.Ends - 1) / w.Ends
	ends := make([]*endpoint, w.Ends)
	var first, firstPeer *endpoint
	for i := range ends {
		a, b, err := d.openPair(first, firstPeer, each, 2*w.Ends*(each+1))
		if err != nil {
			return run{}, err
		}
		if i == 0 {
			first, firstPeer = a, b
		}
		ends[i] = a
	}
	pending := make([]int, w.Ends)
	c := newClock(w)
	posted, done, next := uint64(0), uint64(0), 0
	for posted%clocked != 0 || !c.over(posted) {
		for posted-done == window {
			n, err := first.reap()
			if err != nil {
				return run{}, err
			}
			for i := range first.got[:n] {
				pending[first.got[i].Cookie]--
			}
			done += uint64(n)
		}
		for pending[next] == each {
			if next++; next == w.Ends {
				next = 0
			}
		}
		if err := ends[next].postWrite(udat.Cookie(next), w.Size, udat.CompletionDefault); err != nil {
			return run{}, err
		}
		pending[next]++
		posted++
		if next++; next == w.Ends {
			next = 0
		}
	}
	return c.end(), nil
}
