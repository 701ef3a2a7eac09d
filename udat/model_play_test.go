package udat_test

import (
	"bytes"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// action is one kind of step.
type action struct {
	name    string
	settled bool // it needs a world at rest
	act     func(t *rapid.T)
}

func (a *action) GoString() string { return a.name }

// play makes random steps.
func (w *world) play(t *rapid.T) {
	var actions []*action
	add := func(weight int, name string, settled bool, act func(t *rapid.T)) {
		a := &action{name, settled, act}
		for range weight {
			actions = append(actions, a)
		}
	}
	onEVD := func(act func(*mEVD, *rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			e := pick(t, w.evds, "evd")
			w.note("\t%s: %d of %d, completion 0x%x", e.name, e.count, e.qlen, uint32(e.completion))
			act(e, t)
		}
	}
	add(20, "post_recv", false, w.postRecv)
	add(40, "post", false, w.post)
	add(10, "post_batch", false, w.batch)
	add(4, "modify", true, w.modify)
	add(6, "dequeue", true, onEVD(func(e *mEVD, t *rapid.T) { e.dequeue(t, rapid.IntRange(1, 6).Draw(t, "n")) }))
	add(6, "wait", true, onEVD((*mEVD).wait))
	add(6, "join", true, w.join)
	add(4, "block", true, onEVD((*mEVD).block))
	add(1, "settle", true, func(*rapid.T) {})
	add(3, "disconnect", true, w.disconnect)
	add(3, "reset", true, w.reset)
	add(3, "connect", true, w.connect)
	add(3, "accept", true, w.accept)
	add(3, "chaos", true, w.chaos)
	add(2, "reject", true, w.reject)
	add(2, "create or free", true, w.createOrFree)
	add(1, "dead", true, w.callDead)
	add(3, "clear_unwaitable", true, onEVD(func(e *mEVD, t *rapid.T) { e.rewait(t) }))
	add(2, "set_unwaitable", true, onEVD((*mEVD).unwait))
	add(1, "disable", true, onEVD(func(e *mEVD, t *rapid.T) { isOK(t, e.evd.Disable()); e.disabled = true }))
	add(1, "enable", true, onEVD(func(e *mEVD, t *rapid.T) { isOK(t, e.evd.Enable()); e.disabled = false }))
	add(4, "post_se", true, onEVD((*mEVD).postSE))
	add(4, "resize", true, onEVD((*mEVD).resize))
	add(2, "query", true, onEVD((*mEVD).query))
	add(6, "bind", true, w.bind)
	add(2, "query window", true, w.queryWindow)
	add(8, "srq_post_recv", true, w.postShared)
	add(2, "srq_set_lw", true, w.setLow)
	add(3, "set_watermark", true, w.setWatermark)
	add(3, "cno_wait", true, w.waitCNO)
	add(3, "modify_cno", true, onEVD((*mEVD).modifyCNO))
	add(2, "rsp_create", true, w.reserve)
	add(1, "rsp_free", true, w.unreserve)
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		a := pick(t, actions, "step")
		if a.settled {
			w.settle(t)
		}
		w.note("%s", a.name)
		a.act(t)
		w.run(t)
		w.stirred = w.stirred || a.settled
		w.done[a.name]++
	}})
}

// anEP draws an endpoint, more often than not a connected one.
func (w *world) anEP(t *rapid.T) *mEP {
	var all, moving []*mEP
	for _, s := range w.seats {
		if s.ep != nil {
			all = append(all, s.ep)
			if s.ep.moving() {
				moving = append(moving, s.ep)
			}
		}
	}
	if len(moving) > 0 && !oneIn(t, 6, "any") {
		all = moving
	}
	if len(all) == 0 {
		t.Skip()
	}
	ep := pick(t, all, "ep")
	w.note("\t%#v with %d requests and %d receives", ep, len(ep.requests), len(ep.recvs))
	return ep
}

// join connects two endpoints, all the way.
func (w *world) join(t *rapid.T) {
	var free []*mEP
	for _, s := range w.seats {
		if s.ep == nil {
			w.create(t, s)
		}
		if s.ep.state == udat.EPActiveConnectionPending {
			isOK(t, s.ep.ep.Disconnect(udat.CloseAbrupt))
			s.ep.end("EPST-17 EP-DISC-07", udat.EventConnectionDisconnected)
			w.settle(t)
		}
		if s.ep.state == udat.EPDisconnected {
			s.ep.unmark(t)
			isOK(t, s.ep.ep.Reset())
			s.ep.state = udat.EPUnconnected
		}
		if s.ep.state == udat.EPUnconnected {
			free = append(free, s.ep)
		}
	}
	if len(free) < 2 || w.cr.waiter != nil || w.cr.count >= w.cr.qlen {
		t.Skip()
	}
	pair := rapid.Permutation(free).Draw(t, "pair")
	a, b := pair[0], pair[1]
	w.ask(t, a, w.psp.Qual(), patience)
	for w.settle(t); w.cr.count > 0; {
		w.cr.dequeue(t, 8)
	}
	w.accepted(t, w.requests[len(w.requests)-1], b)
}

// create puts an endpoint into a free seat.
func (w *world) create(t *rapid.T, s *seat) {
	attr := w.attrOf(s)
	var ep *udat.EP
	var err error
	if s.srq {
		ep, err = w.ia.CreateEPWithSRQ(w.pz, s.recv.evd, s.request.evd, s.conn.evd, w.srq.srq, &attr)
	} else {
		ep, err = w.ia.CreateEP(w.pz, s.recv.evd, s.request.evd, s.conn.evd, &attr)
	}
	isOK(t, err)
	state, recvIdle, requestIdle, err := ep.GetStatus()
	isOK(t, err)
	if state != udat.EPUnconnected || !recvIdle || !requestIdle {
		t.Fatalf("a new endpoint is %v, receives idle %v, requests idle %v", state, recvIdle, requestIdle)
	}
	w.shows("EPST-10 EP-CREATE-01")
	w.place(s, ep, attr)
}

func (w *world) createOrFree(t *rapid.T) {
	s := pick(t, w.seats, "seat")
	if s.ep == nil {
		w.create(t, s)
		return
	}
	ep := s.ep
	if ep.reserved() {
		isRefused(t, ep.ep.Free(), udat.InvalidState)
		w.shows("EP-FREE-01 EPST-38")
		return
	}
	for _, e := range []*mEVD{s.recv, s.request} {
		e.evict(t)
	}
	isOK(t, ep.ep.Free())
	ep.abandon()
	if ep.peer != nil {
		ep.peer.end("EP-FREE-03", udat.EventConnectionDisconnected)
	}
	w.dead = append(w.dead, ep.ep)
	ep.state, ep.peer, ep.request, s.ep = udat.EPDisconnected, nil, nil, nil
	s.recv.attached--
	s.request.attached--
}

// abandon allows for completions of a freed endpoint: some may have come while it was being freed.
func (ep *mEP) abandon() {
	must := ep.w.cno.must
	for _, o := range slices.Concat(ep.requests, ep.recvs) {
		o.lost()
		ep.complete(o, udat.DTOErrFlushed)
	}
	ep.w.cno.must = must
	ep.requests, ep.recvs = nil, nil
	for _, e := range []*mEVD{ep.seat.recv, ep.seat.request} {
		e.mayTrigger()
		e.count = udat.Pending(e.evd)
	}
}

// callDead calls with a handle that is no more.
func (w *world) callDead(t *rapid.T) {
	if len(w.dead) == 0 {
		t.Skip()
	}
	ep := w.dead[rapid.IntRange(0, len(w.dead)-1).Draw(t, "dead")]
	_, _, _, statusErr := ep.GetStatus()
	_, _, queryErr := ep.RecvQuery()
	for _, err := range []error{
		statusErr, queryErr, ep.Free(), ep.Reset(), ep.Disconnect(udat.CloseAbrupt),
		ep.PostSend(nil, 0, 0), ep.PostRecv(nil, 0, 0), ep.PostRDMARead(nil, 0, udat.RMRTriplet{}, 0),
		ep.PostRDMAWrite(nil, 0, udat.RMRTriplet{}, 0), ep.Connect(w.ia.Addr(), w.psp.Qual(), time.Second, nil, 0, 0),
	} {
		isRefused(t, err, udat.InvalidHandle)
	}
}

// modelNobody is a qualifier that nobody listens on.
const modelNobody = 4712

func (w *world) connect(t *rapid.T) {
	ep := w.anEP(t)
	qual := pick(t, []udat.ConnQual{w.psp.Qual(), w.psp.Qual(), w.psp.Qual(), w.psp.Qual(), w.provider.Qual(), w.provider.Qual(), w.reservedQual, w.reservedQual, modelNobody, 0}, "qual")
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
	p, err := r.cr.Query(udat.CRFieldAll)
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
	private := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "private")
	err := r.cr.Accept(ep.ep, private)
	if ep.state != udat.EPUnconnected {
		isRefused(t, err, udat.InvalidState)
		w.shows("CR-ACCEPT-03")
		return
	}
	if r.from.request != r { // who asked has gone
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
	p, err := r.cr.Query(udat.CRFieldLocalEP)
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
