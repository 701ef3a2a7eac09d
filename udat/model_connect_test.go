package udat_test

import (
	"bytes"
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// modelNobody is a qualifier on which nobody listens.
const modelNobody = 4712

func (w *world) connect(t *rapid.T) {
	ep := w.anEP(t)
	qual := pick(t, []udat.ConnQual{w.psp.Qual(), w.psp.Qual(), w.psp.Qual(), w.psp.Qual(), w.provider.Qual(),
		w.provider.Qual(), w.reservedQual, w.reservedQual, modelNobody, 0}, "qual")
	timeout := pick(t, []time.Duration{patience, patience, udat.Infinite, 0, -1}, "timeout")
	w.ask(t, ep, qual, timeout)
}

// ask calls Connect.
func (w *world) ask(t *rapid.T, ep *mEP, qual udat.ConnQual, timeout time.Duration) {
	private := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "private")
	err := ep.ep.Connect(w.ia.Addr(), qual, timeout, private, udat.QoSBestEffort, udat.ConnectDefault)
	switch {
	case timeout <= 0 || qual == 0:
		isRefused(t, err, udat.InvalidParameter)
		w.showsIf(timeout == 0, "EP-CONNECT-03")
	case ep.state != udat.EPUnconnected:
		isRefused(t, err, udat.InvalidState)
		w.shows("EP-CONNECT-02")
	case qual == modelNobody, qual == w.reservedQual && w.rsp == nil:
		isOK(t, err)
		ep.end("EPST-14 EP-CONNECT-12", udat.EventConnectionNonPeerRejected)
	case w.cr.count >= w.cr.qlen:
		isOK(t, err)
		ep.end("EPST-14 EVD-55", udat.EventConnectionNonPeerRejected)
	default:
		isOK(t, err)
		if state, _, _, err := ep.ep.GetStatus(); err != nil || state != udat.EPActiveConnectionPending {
			t.Fatalf("after connect the endpoint is %v: %v", state, err)
		}
		w.shows("EPST-11 EP-CONNECT-01")
		ep.state = udat.EPActiveConnectionPending
		r := &mCR{from: ep, private: private, provided: qual == w.provider.Qual()}
		ep.request = r
		point := udat.Handle(w.psp)
		switch qual {
		case w.provider.Qual():
			point = w.provider
		case w.reservedQual:
			point = nil // it is gone
			w.arrived(r)
		}
		w.cr.add(mStream{nil, crStream}, &want{
			numbers: []udat.EventNumber{udat.EventConnectionRequest}, notify: true,
			point: point, onTake: func(ev udat.Event) { r.cr = ev.CR; w.requests = append(w.requests, r) },
		})
	}
}

// aRequest draws a request that awaits its answer.
func (w *world) aRequest(t *rapid.T) *mCR {
	if len(w.requests) == 0 {
		t.Skip()
	}
	r := pick(t, w.requests, "request")
	p, err := r.cr.Query()
	isOK(t, err)
	if !bytes.Equal(p.PrivateData, r.private) {
		t.Fatalf("the request has private data %q, want %q", p.PrivateData, r.private)
	}
	w.showsIf(len(r.private) > 0, "EP-CONNECT-05")
	return r
}

// answered forgets a request.
func (w *world) answered(t *rapid.T, r *mCR) {
	for i, other := range w.requests {
		if other == r {
			w.requests = append(w.requests[:i:i], w.requests[i+1:]...)
		}
	}
	isRefused(t, r.cr.Reject(nil), udat.InvalidHandle)
	w.shows("OBJ-06")
}

func (w *world) accept(t *rapid.T) {
	r := w.aRequest(t)
	if r.brings != nil || r.provided {
		w.acceptBrought(t, r)
		return
	}
	w.accepted(t, r, w.anEP(t))
}

// accepted calls Accept.
func (w *world) accepted(t *rapid.T, r *mCR, ep *mEP) {
	private := rapid.SliceOfN(rapid.Byte(), 0, 56).Draw(t, "private")
	err := r.cr.Accept(ep.ep, private)
	if ep.state != udat.EPUnconnected {
		isRefused(t, err, udat.InvalidState)
		w.shows("CR-ACCEPT-03")
		return
	}
	if r.from.request != r { // the initiator has given up
		if err == nil {
			w.answered(t, r)
			ep.end("EPST-26 CR-ACCEPT-04", udat.EventConnectionAcceptError)
		}
		return
	}
	isOK(t, err)
	w.answered(t, r)
	r.from.request = nil
	if len(private) == 0 {
		private = nil
	}
	r.from.establish(ep, private, "EPST-12 EP-CONNECT-12")
	if private != nil {
		r.from.greeting.rules += " EP-CONNECT-08 CR-ACCEPT-02"
	}
	ep.establish(r.from, nil, "EPST-25 CR-ACCEPT-04")
}

func (w *world) reject(t *rapid.T) {
	r := w.aRequest(t)
	p, err := r.cr.Query()
	isOK(t, err)
	isOK(t, r.cr.Reject(nil))
	w.answered(t, r)
	w.takenBack(t, r, p.LocalEP)
	if r.from.request == r {
		r.from.end("EPST-13 EP-CONNECT-12 CR-REJECT-01", udat.EventConnectionPeerRejected)
	}
}

func (w *world) disconnect(t *rapid.T) {
	ep := w.anEP(t)
	flags := pick(t, []udat.CloseFlags{udat.CloseAbrupt, udat.CloseGraceful, udat.CloseGraceful, 2}, "flags")
	err := ep.ep.Disconnect(flags)
	switch {
	case flags > udat.CloseGraceful:
		isRefused(t, err, udat.InvalidParameter)
		w.shows("EP-DISC-11")
	case ep.state == udat.EPUnconnected:
		isRefused(t, err, udat.InvalidState, udat.SubStateEPUnconnected)
	case ep.reserved():
		isRefused(t, err, udat.InvalidState)
		w.shows("EP-DISC-09")
	case ep.state == udat.EPActiveConnectionPending:
		isOK(t, err)
		ep.end("EPST-17 EP-DISC-07", udat.EventConnectionDisconnected)
	case ep.state == udat.EPDisconnected:
		isOK(t, err)
		w.later(func(*rapid.T) { w.shows("EPST-35 EP-DISC-08") }) // no event has come by then
	case flags == udat.CloseAbrupt && ep.state == udat.EPDisconnectPending:
		isOK(t, err)
		ep.part("EPST-31 EP-DISC-05")
	case flags == udat.CloseAbrupt:
		isOK(t, err)
		ep.part("EPST-28 EP-DISC-03")
	default:
		isOK(t, err)
		w.showsIf(ep.state == udat.EPDisconnectPending, "EPST-32")
		ep.state = udat.EPDisconnectPending
	}
}

func (w *world) reset(t *rapid.T) {
	ep := w.anEP(t)
	ep.unmark(t)
	err := ep.ep.Reset()
	switch ep.state {
	case udat.EPUnconnected, udat.EPDisconnected:
		isOK(t, err)
		if state, _, _, err := ep.ep.GetStatus(); err != nil || state != udat.EPUnconnected {
			t.Fatalf("after reset the endpoint is %v: %v", state, err)
		}
		w.showsIf(ep.state == udat.EPDisconnected, "EPST-36 EP-RESET-01")
		w.later(func(*rapid.T) { w.showsIf(ep.state == udat.EPUnconnected && len(ep.recvs) > 0, "EPST-37 EP-RESET-03") })
		ep.state = udat.EPUnconnected
	default:
		isRefused(t, err, udat.InvalidState)
		w.shows("EP-RESET-04")
	}
}
