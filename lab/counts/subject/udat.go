package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// waitTime limits each wait for an event.
const waitTime = 20 * time.Second

// adapter is an open device that listens for connections.
type adapter struct {
	ia       *udat.IA
	pz       *udat.PZ
	mem      *udat.LMR
	active   *udat.EVD // connection events of the ends that connect
	passive  *udat.EVD // connection events of the ends that accept, and connection requests
	qual     udat.ConnQual
	triplets [1]udat.LMRTriplet
	target   udat.RMRTriplet
}

// endpoint is one end of a connection.
type endpoint struct {
	*adapter
	ep   *udat.EP
	evd  *udat.EVD // completions
	wait bool      // take events by Wait instead of Dequeue
}

func ofUdat(name string, n int) (o operation, err error) {
	d, err := openAdapter("loop0")
	if err != nil {
		return o, err
	}
	if name == "accept" {
		return d.accepting(), nil
	}
	if name == "exchange" {
		return d.exchanges(n)
	}
	a, b := d.pair()
	switch name {
	case "post":
		return operation{do: a.posts, settle: a.takeEach}, nil
	case "event": // with n = 1, so that the event comes from the device
		return operation{prepare: a.posts, do: a.takeEach}, nil
	case "queued":
		return operation{prepare: func(n int) {
			a.posts(n + 1)
			a.takeEach(1) // also moves the other events to the EVD's queue
		}, do: a.takeEach}, nil
	case "wait":
		a.wait = true
		return operation{prepare: a.posts, do: a.takeEach}, nil
	case "receive":
		return operation{do: a.receives, settle: func(n int) {
			b.sends(n)
			a.takeEach(n)
			b.takeEach(n)
		}}, nil
	}
	return o, errUnknown("udat", name)
}

// pair returns two connected ends.
func (d *adapter) pair() (a, b *endpoint) {
	return d.pairOn(nil)
}

// pairOn returns two connected ends. If evd is not nil, both have their completions on evd.
func (d *adapter) pairOn(evd *udat.EVD) (a, b *endpoint) {
	a, b = d.openOn(evd, d.active), d.openOn(evd, d.passive)
	check(d.request(a).Accept(b.ep, nil))
	d.established()
	return a, b
}

func openAdapter(device string) (d *adapter, err error) {
	d = new(adapter)
	if d.ia, err = udat.Open(device); err != nil {
		return nil, err
	}
	if d.pz, err = d.ia.CreatePZ(); err != nil {
		return nil, err
	}
	if d.mem, err = d.ia.AllocLMR(d.pz, 2*size, udat.PrivAll); err != nil {
		return nil, err
	}
	d.triplets[0], d.target = d.mem.Triplet(0, size), d.mem.RMRTriplet(size, size)
	if d.active, err = d.ia.CreateEVD(4*depth, udat.EVDConnection, nil); err != nil {
		return nil, err
	}
	if d.passive, err = d.ia.CreateEVD(4*depth, udat.EVDConnection|udat.EVDCR, nil); err != nil {
		return nil, err
	}
	d.qual, _, err = d.ia.CreatePSPAny(d.passive, udat.PSPConsumer)
	return d, err
}

func (d *adapter) open(conn *udat.EVD) *endpoint { return d.openOn(nil, conn) }

func (d *adapter) openOn(evd, conn *udat.EVD) *endpoint {
	e := &endpoint{adapter: d, evd: evd}
	var err error
	if evd == nil {
		e.evd, err = d.ia.CreateEVD(2*depth, udat.EVDDTO, nil)
		check(err)
	}
	attr := &udat.EPAttr{MaxRequestDTOs: depth, MaxRecvDTOs: depth, MaxRequestIOV: 1, MaxRecvIOV: 1}
	e.ep, err = d.ia.CreateEP(d.pz, e.evd, e.evd, conn, attr)
	check(err)
	return e
}

// request connects e to d's listener, and returns the connection request that arrives at the
// listener.
func (d *adapter) request(e *endpoint) *udat.CR {
	check(e.ep.Connect(d.ia.Addr(), d.qual, waitTime, nil, udat.QoSBestEffort, udat.ConnectDefault))
	ev, _, err := d.passive.Wait(waitTime, 1)
	check(err)
	return ev.CR
}

// established waits until both ends of a connection are established.
func (d *adapter) established() {
	for _, evd := range []*udat.EVD{d.active, d.passive} {
		ev, _, err := evd.Wait(waitTime, 1)
		check(err)
		if ev.Number != udat.EventConnectionEstablished {
			check(fmt.Errorf("the event is %v", ev.Number))
		}
	}
}

// exchanges returns an operation that does a receive, a Send and their events on each of n
// connections, all on one dispatcher.
func (d *adapter) exchanges(n int) (o operation, err error) {
	evd, err := d.ia.CreateEVD(4*n, udat.EVDDTO, nil)
	if err != nil {
		return o, err
	}
	type connection struct{ a, b *endpoint }
	all := make([]connection, n)
	for i := range all {
		all[i].a, all[i].b = d.pairOn(evd)
	}
	var events [burst]udat.Event
	return operation{do: func(n int) {
		for i := range all {
			all[i].a.receives(1)
			all[i].b.sends(1)
		}
		for left := 2 * n; left > 0; {
			got, err := evd.DequeueBatch(events[:])
			if !errors.Is(err, udat.ErrQueueEmpty) {
				check(err)
			}
			for i := range events[:got] {
				check(statusError(&events[i]))
			}
			left -= got
		}
	}}, nil
}

func statusError(ev *udat.Event) error {
	if ev.Status != udat.DTOSuccess {
		return fmt.Errorf("the completion has %v", ev.Status)
	}
	return nil
}

// accepting returns an operation that calls CR.Accept. The endpoints are created before the count.
func (d *adapter) accepting() operation {
	var crs []*udat.CR
	var ends []*endpoint
	return operation{
		prepare: func(n int) {
			for range n {
				a := d.open(d.active)
				crs = append(crs, d.request(a))
				ends = append(ends, d.open(d.passive), a)
			}
		},
		do: func(n int) {
			for i, cr := range crs {
				check(cr.Accept(ends[2*i].ep, nil))
			}
		},
		settle: func(n int) {
			for range n {
				d.established()
			}
			for _, e := range ends {
				check(errors.Join(e.ep.Free(), e.evd.Free()))
			}
			for _, evd := range []*udat.EVD{d.active, d.passive} {
				for err := error(nil); err == nil; { // drop the last events of the ends
					_, err = evd.Dequeue()
				}
			}
			crs, ends = crs[:0], ends[:0]
		},
	}
}

func (e *endpoint) posts(n int) {
	for range n {
		check(e.ep.PostRDMAWrite(e.triplets[:], 0, e.target, udat.CompletionDefault))
	}
}

func (e *endpoint) sends(n int) {
	for range n {
		check(e.ep.PostSend(e.triplets[:], 0, udat.CompletionDefault))
	}
}

func (e *endpoint) receives(n int) {
	for range n {
		check(e.ep.PostRecv(e.triplets[:], 0, udat.CompletionDefault))
	}
}

// takeEach takes n completions, one at a time.
func (e *endpoint) takeEach(n int) {
	for range n {
		var ev udat.Event
		var err error
		if e.wait {
			ev, _, err = e.evd.Wait(waitTime, 1)
		} else {
			for ev, err = e.evd.Dequeue(); errors.Is(err, udat.ErrQueueEmpty); {
				ev, err = e.evd.Dequeue()
			}
		}
		check(err)
		check(statusError(&ev))
	}
}
