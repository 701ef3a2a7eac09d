package udat_test

import (
	"bytes"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// reserved reports whether the endpoint belongs to a reserved service point or to a request.
func (ep *mEP) reserved() bool {
	switch ep.state {
	case udat.EPReserved, udat.EPPassiveConnectionPending, udat.EPTentativeConnection:
		return true
	}
	return false
}

// reserve makes a reserved service point for an endpoint.
func (w *world) reserve(t *rapid.T) {
	ep := w.anEP(t)
	rsp, err := w.ia.CreateRSP(w.reservedQual, ep.ep, w.cr.evd)
	switch {
	case ep.state != udat.EPUnconnected:
		isRefused(t, err, udat.InvalidState)
		w.shows("RSP-CREATE-03")
		return
	case w.rsp != nil:
		isRefused(t, err, udat.ConnQualInUse)
		return // and the endpoint is not reserved, as settle finds
	}
	isOK(t, err)
	if state, _, _, err := ep.ep.GetStatus(); err != nil || state != udat.EPReserved {
		t.Fatalf("after rsp_create the endpoint is %v: %v", state, err)
	}
	w.shows("EPST-18")
	ep.state, w.rsp, w.rspEP = udat.EPReserved, rsp, ep
}

// unreserve frees the reserved service point.
func (w *world) unreserve(t *rapid.T) {
	if w.rsp == nil {
		t.Skip()
	}
	isOK(t, w.rsp.Free())
	isRefused(t, w.rsp.Free(), udat.InvalidHandle)
	w.rspEP.state = udat.EPUnconnected
	w.rsp, w.rspEP = nil, nil
	w.later(func(*rapid.T) { w.shows("EPST-19 RSP-FREE-01") }) // settle has compared the state
}

// arrived records that a request has come to the reserved service point, which no longer exists
// after that.
func (w *world) arrived(r *mCR) {
	rsp := w.rsp
	r.brings = w.rspEP
	r.brings.state = udat.EPPassiveConnectionPending
	w.rsp, w.rspEP = nil, nil
	w.later(func(t *rapid.T) {
		isRefused(t, rsp.Free(), udat.InvalidHandle)
		w.shows("EPST-20 RSP-CREATE-04 RSP-FREE-03")
	})
}

// acceptBrought answers a request that brings its endpoint. An endpoint of the provider gets a free
// seat.
func (w *world) acceptBrought(t *rapid.T, r *mCR) {
	p, err := r.cr.Query()
	isOK(t, err)
	isRefused(t, r.cr.Accept(w.seats[0].anyEP(p.LocalEP), nil), udat.InvalidHandle)
	if r.provided {
		isRefused(t, r.cr.Accept(nil, nil), udat.InvalidState)
		w.shows("CR-ACCEPT-01")
		if !w.furnish(t, r, p.LocalEP) {
			return
		}
	}
	ep := r.brings
	if p.LocalEP != ep.ep {
		t.Fatalf("the request brings another endpoint")
	}
	err = r.cr.Accept(nil, nil)
	if r.from.request != r { // who asked has gone
		if err == nil {
			w.answered(t, r)
			ep.end("EPST-26", udat.EventConnectionAcceptError)
		}
		return
	}
	isOK(t, err)
	w.answered(t, r)
	r.from.request = nil
	w.shows("CR-QUERY-02 RSP-CREATE-05")
	r.from.establish(ep, nil, "EPST-12")
	ep.establish(r.from, nil, "EPST-25")
}

func (s *seat) anyEP(other *udat.EP) *udat.EP {
	if s.ep != nil {
		return s.ep.ep
	}
	return other
}

// furnish gives the provider's endpoint a zone and dispatchers, in a free seat.
func (w *world) furnish(t *rapid.T, r *mCR, ep *udat.EP) bool {
	if r.brings != nil {
		return true // before, for an answer that did not succeed
	}
	for _, s := range w.seats {
		if s.ep != nil || s.srq {
			continue
		}
		attr := w.attrOf(s)
		modify := func() error {
			return ep.Modify(udat.EPFieldPZ|udat.EPFieldRecvEVD|udat.EPFieldRequestEVD|udat.EPFieldConnectEVD|
				udat.EPFieldRecvCompletionFlags|udat.EPFieldRequestCompletionFlags|udat.EPFieldMaxRecvDTOs|
				udat.EPFieldMaxRequestDTOs|udat.EPFieldMaxMessageSize|udat.EPFieldMaxRDMASize,
				udat.EPParam{PZ: w.pz, RecvEVD: s.recv.evd, RequestEVD: s.request.evd, ConnectEVD: s.conn.evd, Attr: attr})
		}
		s.uncount(t, modify)
		isOK(t, modify())
		w.place(s, ep, attr)
		s.ep.state = udat.EPTentativeConnection
		r.brings = s.ep
		w.shows("EPST-21 PSP-CREATE-04")
		return true
	}
	return false
}

// takenBack records that a request has been rejected, which gives its endpoint back to the Consumer
// or to the provider.
func (w *world) takenBack(t *rapid.T, r *mCR, local *udat.EP) {
	switch {
	case r.provided:
		_, _, _, err := local.GetStatus()
		isRefused(t, err, udat.InvalidHandle)
		w.shows("EPST-23 CR-REJECT-02")
		if r.brings != nil {
			s := r.brings.seat
			w.dead = append(w.dead, local)
			r.brings.abandon()
			s.recv.attached--
			s.request.attached--
			s.ep = nil
		}
	case r.brings != nil:
		r.brings.state = udat.EPUnconnected
		w.later(func(*rapid.T) { w.shows("EPST-22 CR-REJECT-02") })
	}
}

// place puts an endpoint into a seat.
func (w *world) place(s *seat, ep *udat.EP, attr udat.EPAttr) {
	s.ep = &mEP{
		w: w, ep: ep, seat: s, attr: attr, shared: s.srq, hard: udat.WatermarkInfinite,
		state: udat.EPUnconnected, target: bytes.Clone(s.target.Bytes()),
	}
	w.byEP[ep] = s.ep
	s.recv.attached++
	s.request.attached++
}

func (w *world) attrOf(s *seat) udat.EPAttr {
	attr := udat.EPAttr{
		MaxRDMAReadIn: 4, RecvCompletionFlags: s.recvFlags, RequestCompletionFlags: s.reqFlags,
		MaxRecvDTOs: modelQueue, MaxRequestDTOs: modelQueue, MaxMessageSize: modelLimit, MaxRDMASize: modelLimit,
	}
	if s.srq {
		attr.MaxRecvDTOs = 0 // no hard watermark
	}
	return attr
}
