package udat_test

import (
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

// join connects two endpoints completely.
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
	create := func() (*udat.EP, error) {
		if s.srq {
			return w.ia.CreateEPWithSRQ(w.pz, s.recv.evd, s.request.evd, s.conn.evd, w.srq.srq, &attr)
		}
		return w.ia.CreateEP(w.pz, s.recv.evd, s.request.evd, s.conn.evd, &attr)
	}
	s.uncount(t, func() error { _, err := create(); return err })
	ep, err := create()
	isOK(t, err)
	state, recvIdle, requestIdle, err := ep.GetStatus()
	isOK(t, err)
	if state != udat.EPUnconnected || !recvIdle || !requestIdle {
		t.Fatalf("a new endpoint is %v, receives idle %v, requests idle %v", state, recvIdle, requestIdle)
	}
	w.shows("EPST-10 EP-CREATE-01")
	w.place(s, ep, attr)
}

// uncount ends calls that wait for more than one event on the dispatchers of the seat. Until then
// join, which adds streams whose completions notify at the Consumer's choice, is refused.
func (s *seat) uncount(t *rapid.T, join func() error) {
	for _, e := range []*mEVD{s.recv, s.request} {
		if e.waiter != nil && e.waiter.threshold != 1 && e.chosen() {
			isRefused(t, join(), udat.InvalidState, udat.SubStateEVDWaiter)
			e.w.shows("EVD-WAIT-05")
			e.evict(t)
		}
	}
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

// callDead calls methods of a freed handle.
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
