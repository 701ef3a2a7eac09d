//go:build linux

package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

// witness is a connection of the target with itself, which the adversary has no part in.
type witness struct {
	evd   *udat.EVD
	eps   [2]*udat.EP
	lmr   *udat.LMR
	round byte
}

const witnessSize = 4096

// witnessWait bounds each wait of the witness.
const witnessWait = 60 * time.Second

func newWitness(ia *udat.IA, pz *udat.PZ) *witness {
	w := &witness{}
	w.evd = must(ia.CreateEVD(64, udat.EVDDTO|udat.EVDConnection, nil))
	requests := must(ia.CreateEVD(8, udat.EVDCR, nil))
	qual, psp, err := ia.CreatePSPAny(requests, udat.PSPConsumer)
	must(0, err)
	w.lmr = must(ia.AllocLMR(pz, 4*witnessSize, local))
	for i := range w.eps {
		w.eps[i] = must(ia.CreateEP(pz, w.evd, w.evd, w.evd, nil))
	}
	must(0, w.eps[0].Connect(ia.Addr(), qual, witnessWait, nil, udat.QoSBestEffort, 0))
	ev, _, err := requests.Wait(witnessWait, 1)
	must(0, err)
	must(0, ev.CR.Accept(w.eps[1], nil))
	for range w.eps {
		ev, _, err := w.evd.Wait(witnessWait, 1)
		must(0, err)
		if ev.Number != udat.EventConnectionEstablished {
			panic(fmt.Sprint("target: witness: ", ev.Number))
		}
	}
	must(0, psp.Free())
	must(0, requests.Free())
	return w
}

// check sends a message each way, and says what is wrong.
func (w *witness) check() []string {
	w.round++
	for i, ep := range w.eps {
		peer := w.eps[1-i]
		send, recv := w.lmr.Triplet(2*i*witnessSize, witnessSize), w.lmr.Triplet((2*i+1)*witnessSize, witnessSize)
		copyAll(w.lmr.Bytes()[2*i*witnessSize:][:witnessSize], w.round)
		err := peer.PostRecv([]udat.LMRTriplet{recv}, 1, 0)
		if err == nil {
			err = ep.PostSend([]udat.LMRTriplet{send}, 2, 0)
		}
		for range 2 {
			var ev udat.Event
			if err == nil {
				ev, _, err = w.evd.Wait(witnessWait, 1)
			}
			if err == nil && ev.Number != udat.EventDTOCompletion || ev.Status != udat.DTOSuccess {
				err = fmt.Errorf("%v %v", ev.Number, ev.Status)
			}
		}
		if err != nil {
			return []string{fmt.Sprintf("the connection that the adversary has no part in: %v", err)}
		}
		if !bytes.Equal(w.lmr.Bytes()[2*i*witnessSize:][:witnessSize], w.lmr.Bytes()[(2*i+1)*witnessSize:][:witnessSize]) {
			return []string{"the connection that the adversary has no part in has wrong data"}
		}
	}
	return nil
}
