package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

const (
	longRead     = 128 << 20
	longReads    = 4
	slowdown     = 20  // of a link beside long reads, at most
	longReadLink = 200 // of fill
)

// lent is one end of an additional connection of an adapter. One end lends memory to its peer, and
// the peer reads this memory.
type lent struct {
	evd   *udat.EVD
	ep    *udat.EP
	psp   *udat.PSP
	mem   *udat.LMR
	ended chan error
}

// newLent creates an end of the additional connection: the end that lends memory, or the end that
// reads it.
func newLent(e *end) (*lent, error) {
	l := &lent{ended: make(chan error, 1)}
	var err error
	if l.evd, err = e.ia.CreateEVD(16, udat.EVDDTO|udat.EVDConnection|udat.EVDCR, nil); err != nil {
		return nil, err
	}
	attr := &udat.EPAttr{MaxRequestDTOs: 2, MaxRecvDTOs: 1, MaxRDMAReadIn: 1, MaxRDMAReadOut: 1}
	if l.ep, err = e.ia.CreateEP(e.pz, l.evd, l.evd, l.evd, attr); err != nil {
		return nil, err
	}
	l.mem, err = e.ia.AllocLMR(e.pz, longRead, udat.PrivLocalRead|udat.PrivLocalWrite|udat.PrivRemoteRead)
	return l, err
}

func (l *lent) expect(want udat.EventNumber) (udat.Event, error) {
	ev, _, err := l.evd.Wait(patience, 1)
	if err == nil && (ev.Number != want || ev.Number == udat.EventDTOCompletion && ev.Status != udat.DTOSuccess) {
		err = fmt.Errorf("long read: %v (%v) instead of %v", ev.Number, ev.Status, want)
	}
	return ev, err
}

func (l *lent) free() error {
	err := errors.Join(l.ep.Free(), l.mem.Free())
	if l.psp != nil {
		err = errors.Join(err, l.psp.Free())
	}
	return errors.Join(err, l.evd.Free())
}

// lend listens for the end that reads, and frees everything when that end has disconnected.
func (e *end) lend() (udat.ConnQual, error) {
	l, err := newLent(e)
	if err != nil {
		return 0, err
	}
	fill(l.mem.Bytes(), longReadLink, 0)
	e.lent = l
	var qual udat.ConnQual
	if qual, l.psp, err = e.ia.CreatePSPAny(l.evd, udat.PSPConsumer); err != nil {
		return 0, err
	}
	go func() {
		l.ended <- func() error {
			ev, err := l.expect(udat.EventConnectionRequest)
			if err != nil {
				return err
			}
			grant, err := l.mem.RMRTriplet(0, longRead).MarshalBinary()
			if err != nil {
				return err
			}
			if err := ev.CR.Accept(l.ep, grant); err != nil {
				return err
			}
			for _, want := range []udat.EventNumber{udat.EventConnectionEstablished, udat.EventConnectionDisconnected} {
				if _, err := l.expect(want); err != nil {
					return err
				}
			}
			return l.free()
		}()
	}()
	return qual, nil
}

// read reads all that the peer lends.
func (l *lent) read(from udat.RMRTriplet) error {
	err := l.ep.PostRDMARead([]udat.LMRTriplet{l.mem.Triplet(0, longRead)}, 0, from, udat.CompletionDefault)
	if err == nil {
		_, err = l.expect(udat.EventDTOCompletion)
	}
	return err
}

// longReadsBeside repeats long reads on a further connection of the same adapters. It compares the
// messages that each link receives during the reads with those of the same time without reads.
func longReadsBeside(r *round) error {
	a, err := r.p.do(order{Do: "lend"})
	if err != nil {
		return err
	}
	l, err := newLent(r.e)
	if err != nil {
		return err
	}
	if err := l.ep.Connect(a.Addr, a.Qual, patience, nil, udat.QoSBestEffort, udat.ConnectDefault); err != nil {
		return err
	}
	ev, err := l.expect(udat.EventConnectionEstablished)
	if err != nil {
		return err
	}
	var from udat.RMRTriplet
	if err := from.UnmarshalBinary(ev.PrivateData()[:udat.RMRTripletSize]); err != nil {
		return err
	}
	before, began := r.e.counts.snapshot(), time.Now()
	for range longReads {
		if err := l.read(from); err != nil {
			return err
		}
	}
	beside, took := r.e.counts.snapshot(), time.Since(began)
	time.Sleep(took)
	alone := r.e.counts.snapshot()
	want := make([]byte, longRead)
	fill(want, longReadLink, 0)
	if string(l.mem.Bytes()) != string(want) {
		return errors.New("a long read has brought other bytes")
	}
	for i, link := range r.e.links {
		n, without := beside[i][countReceived]-before[i][countReceived], alone[i][countReceived]-beside[i][countReceived]
		if n*slowdown < without {
			return fmt.Errorf("%s took %d messages in %v beside %d reads of %d MiB, and %d without", link.name(), n, took,
				longReads, longRead>>20, without)
		}
	}
	if err := l.ep.Disconnect(udat.CloseGraceful); err != nil {
		return err
	}
	if _, err := l.expect(udat.EventConnectionDisconnected); err != nil {
		return err
	}
	if err := l.free(); err != nil {
		return err
	}
	return r.goOn()
}

var longReadRows = []scenario{
	{group: "limits", name: fmt.Sprintf("%d reads of %d MiB on one connection", longReads, longRead>>20),
		promise: fmt.Sprintf("each other connection takes at least 1/%d of its messages meanwhile", slowdown),
		act:     longReadsBeside, ends: disconnected, within: 2 * time.Minute,
		rounds: map[string][2]int{"mem": {2, 20}, "tcp": {2, 20}},
		why:    map[string]string{"rxe": "the device's turns", "siw": "the device's turns"}},
	{group: "limits", name: "a host whose TCP paces (BBR)", tests: true, ends: disconnected, within: soon,
		promise: "connections within the host are not paced; other connections go on",
		act:     unitTests([]string{"udat/internal/tcpfabric:TestNoPacing"}),
		rounds:  map[string][2]int{"tcp": {1, 10}},
		why:     map[string]string{"mem": "no TCP", "rxe": "no TCP", "siw": "its TCP is the driver's"}},
}
