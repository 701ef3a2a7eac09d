package udat_test

import (
	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// opBind is the model's kind for binds, for which udat has no OpKind.
const opBind udat.OpKind = 200

// mWindow models a window of a seat, which is bound to parts of the memory that peers reach.
type mWindow struct {
	rmr    *udat.RMR
	remote udat.RMRTriplet // for the peer
	priv   udat.MemPriv
	off, n int  // n is 0 while it is unbound
	unsure bool // a bind was flushed with its connection: the device may have carried it out
}

// mBind is the binding that a window has after a bind succeeds.
type mBind struct {
	window *mWindow
	to     mWindow
}

// done records that the bind has been executed.
func (b *mBind) done() {
	rmr := b.window.rmr
	*b.window = b.to
	b.window.rmr = rmr
}

// lost records that an operation is flushed with its connection.
func (o *mOp) lost() {
	if o.bind != nil {
		o.bind.window.unsure = true
	}
}

// bind posts a bind of the window of the endpoint's seat.
func (w *world) bind(t *rapid.T) {
	ep := w.anEP(t)
	win := ep.seat.window
	if win == nil || (ep.peer != nil && len(ep.peer.requests) > 0) {
		t.Skip() // what the peer has posted for the present binding must be done
	}
	off := rapid.IntRange(0, modelTarget-modelSlot).Draw(t, "off")
	n := pick(t, []int{0, 64, modelSlot, modelSlot}, "n")
	priv := pick(t, []udat.MemPriv{bothRights, bothRights, udat.PrivRemoteRead, udat.PrivRemoteWrite}, "priv")
	o := &mOp{cookie: w.cookie(), kind: opBind}
	o.flags = pick(t, []udat.CompletionFlags{0, 0, udat.CompletionSuppress, udat.CompletionBarrierFence}, "flags")
	triplet, fault := ep.seat.target.Triplet(off, n), udat.ReturnType(0)
	switch rapid.IntRange(0, 15).Draw(t, "fault") {
	case 0:
		triplet, fault = w.readOnly.Triplet(0, 8), udat.PrivilegesViolation
		priv = udat.PrivRemoteWrite
	case 1:
		triplet, fault = w.foreign.Triplet(0, 8), udat.ProtectionViolation
	case 2:
		triplet, fault = ep.seat.target.Triplet(modelTarget-8, 8), udat.InvalidParameter
		triplet.SegmentLength++
	case 3:
		o.flags, fault = udat.CompletionSolicitedWait, udat.InvalidParameter
	}
	context, err := win.rmr.Bind(triplet, priv, ep.ep, o.cookie, o.flags)
	w.note("\tbind %d of %d bytes at %d, privileges 0x%x, flags %v: %v", o.cookie, n, off, uint32(priv),
		o.flags, err)
	switch {
	case ep.state != udat.EPConnected && ep.state != udat.EPDisconnected:
		isRefused(t, err, udat.InvalidState)
		w.shows("RMR-BIND-08")
		return
	case ep.seat.request.flags&udat.EVDRMRBind == 0 && o.flags != udat.CompletionSolicitedWait:
		isRefused(t, err, udat.InvalidState, udat.SubStateEPEVDRequest)
		w.shows("RMR-BIND-11")
		return
	case fault != 0:
		isRefused(t, err, fault)
		return
	case err != nil && len(ep.requests)+ep.silent >= ep.attr.MaxRequestDTOs:
		isRefused(t, err, udat.InsufficientResources)
		return
	}
	isOK(t, err)
	o.bind = &mBind{window: win, to: mWindow{off: off, n: n, priv: priv}}
	o.bind.to.remote = udat.RMRTriplet{RMRContext: context, TargetAddress: win.rmr.RMRTriplet().TargetAddress,
		SegmentLength: uint64(n)}
	if ep.state == udat.EPDisconnected {
		ep.complete(o, udat.DTOErrFlushed).rules += " EPST-53 RMR-BIND-08"
		return
	}
	ep.requests = append(ep.requests, o)
	ep.loose++
	w.run(t)
	w.settle(t)
}

// use draws a request that reaches the peer's memory through its window. It returns false if that
// is not possible.
func (ep *mEP) use(t *rapid.T, o *mOp) (udat.RMRTriplet, bool) {
	if ep.peer == nil || ep.peer.seat.window == nil || !oneIn(t, 3, "window") {
		return udat.RMRTriplet{}, false
	}
	win := ep.peer.seat.window
	for _, other := range ep.peer.requests {
		if other.kind == opBind {
			return udat.RMRTriplet{}, false
		}
	}
	if win.unsure || win.n < o.length || o.length == 0 {
		return udat.RMRTriplet{}, false
	}
	need := udat.PrivRemoteWrite
	if o.kind == udat.OpRDMARead {
		need = udat.PrivRemoteRead
	}
	o.remote, o.bad = win.off, win.priv&need == 0
	remote := win.remote
	remote.SegmentLength = uint64(o.length)
	exact := udat.DeviceAttr(ep.w.ia).ExactBounds
	if exact && !o.bad && win.n < modelSlot && oneIn(t, 10, "beyond") { // the region goes on there, the window does not
		remote.TargetAddress += uint64(win.n - o.length + 1)
		o.bad = true
	}
	o.shows = "RMR-BIND-01 RMR-BIND-06"
	return remote, true
}

// queryWindow compares the query of the window of a seat with the model, and checks whether its
// region is in use.
func (w *world) queryWindow(t *rapid.T) {
	s := pick(t, w.seats, "seat")
	if s.window == nil || s.window.unsure {
		t.Skip()
	}
	if s.ep != nil {
		for _, o := range s.ep.requests {
			if o.kind == opBind {
				t.Skip()
			}
		}
	}
	p, err := s.window.rmr.Query()
	isOK(t, err)
	want := udat.RMRParam{IA: w.ia, PZ: w.pz}
	if s.window.n > 0 {
		want.Triplet, want.Privileges, want.Context = s.target.Triplet(s.window.off, s.window.n), s.window.priv,
			s.window.remote.RMRContext
		isRefused(t, s.target.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		w.shows("RMR-BIND-12 LMR-FREE-01")
	}
	if p != want {
		t.Fatalf("the window is %+v, want %+v", p, want)
	}
	w.shows("RMR-QUERY-01")
}
