package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// window makes an RMR, or skips the test if the device has no windows.
func (e *end) window(t *testing.T) *udat.RMR {
	t.Helper()
	r, err := e.pz.CreateRMR()
	_, a, _, qerr := e.ia.Query()
	assert.NilError(t, qerr)
	if a.MaxRMRs == 0 {
		assert.ErrorIs(t, err, udat.ErrModelNotSupported)
		t.Skip("the device has no memory windows")
	}
	assert.NilError(t, err)
	return r
}

// bind posts a bind and waits for its completion.
func (e *end) bind(t *testing.T, r *udat.RMR, l *udat.LMR, off, n int, priv udat.MemPriv) udat.RMRTriplet {
	t.Helper()
	context, err := r.Bind(l.Triplet(off, n), priv, e.ep, 99, 0)
	assert.NilError(t, err)
	ev := bound(t, e.request, 99)
	assert.Equal(t, ev.RMR, r)
	tr := r.RMRTriplet()
	if n > 0 {
		assert.Equal(t, tr.RMRContext, context)
	}
	return tr
}

// bound waits for the next event, which must be a successful bind completion with the cookie.
func bound(t *testing.T, evd *udat.EVD, cookie udat.Cookie) udat.Event {
	t.Helper()
	ev := expect(t, evd, udat.EventRMRBindCompletion)
	assert.Equal(t, ev.Status, udat.DTOSuccess, "%s", describe(ev))
	assert.Equal(t, ev.Cookie, cookie, "%s", describe(ev))
	assert.Equal(t, ev.Length, uint64(0), "%s", describe(ev))
	return ev
}

// sub returns a triplet for a part of the memory of tr.
func sub(tr udat.RMRTriplet, off, n int) udat.RMRTriplet {
	tr.TargetAddress += uint64(off)
	tr.SegmentLength = uint64(n)
	return tr
}

const bothRights = udat.PrivRemoteRead | udat.PrivRemoteWrite

// TestRMR binds a window and lets the peer use it.
func TestRMR(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		p, err := r.Query()
		assert.NilError(t, err)
		assert.Equal(t, p, udat.RMRParam{IA: b.ia, PZ: b.pz})
		rule.Proves(t, "RMR-CREATE-01")
		l := b.lmr(4096, udat.PrivLocalRead|udat.PrivLocalWrite) // the peer can access it only by the window
		context, err := r.Bind(l.Triplet(1000, 500), bothRights, b.ep, 7, 0)
		assert.NilError(t, err)
		// The context goes to the peer with the next Send: the bind is done before it.
		assert.NilError(t, a.ep.PostRecv(a.iov(0, 10), 1, 0))
		assert.NilError(t, b.ep.PostSend(b.iov(0, 10), 8, 0))
		completion(t, a.recv, 1)
		want := a.put(0, 500, 3)
		remote := udat.RMRTriplet{RMRContext: context, TargetAddress: l.RMRTriplet(1000, 0).TargetAddress, SegmentLength: 500}
		assert.Equal(t, remote, r.RMRTriplet())
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 500), 2, remote, 0))
		completion(t, a.request, 2)
		assert.DeepEqual(t, l.Bytes()[1000:1500], want)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(2000, 500), 3, remote, 0))
		completion(t, a.request, 3)
		assert.DeepEqual(t, a.get(2000, 500), want)
		ev := bound(t, b.request, 7)
		assert.Assert(t, ev.RMR == r && ev.EP == b.ep)
		assert.Equal(t, ev.Operation, udat.DTOBind)
		completion(t, b.request, 8)
		rule.Proves(t, "RMR-BIND-01", "RMR-BIND-02")
		p, err = r.Query()
		assert.NilError(t, err)
		assert.Equal(t, p, udat.RMRParam{IA: b.ia, PZ: b.pz, Triplet: l.Triplet(1000, 500), Privileges: bothRights,
			Context: context})
		rule.Proves(t, "RMR-QUERY-01")
		// The region is in use until the window is no longer bound to it.
		refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		rule.Proves(t, "LMR-FREE-01")
		m := b.lmr(4096, udat.PrivLocalRead|udat.PrivLocalWrite)
		second := b.bind(t, r, m, 0, 100, bothRights)
		assert.Assert(t, second.RMRContext != context)
		refused(t, m.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		assert.NilError(t, l.Free())
		assert.NilError(t, r.Free())
		assert.NilError(t, m.Free())
		rule.Proves(t, "RMR-BIND-12")
	})
}

// TestRMRRebind shows that old contexts give no access.
func TestRMRRebind(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		unbind := func() {
			t.Helper()
			b.bind(t, r, nil, 0, 0, 0)
			p, err := r.Query()
			assert.NilError(t, err)
			assert.Equal(t, p, udat.RMRParam{IA: b.ia, PZ: b.pz})
		}
		unbind() // a window that was never bound
		brief := b.lmr(100, udat.PrivAll)
		b.bind(t, r, brief, 0, 100, bothRights)
		unbind()
		assert.NilError(t, brief.Free())
		unbind() // a window that was bound to a freed region
		for _, end := range []struct {
			name string
			old  func(first udat.RMRTriplet)
			rule string
		}{
			{"rebind", func(udat.RMRTriplet) { b.bind(t, r, b.mem, 1000, 100, bothRights) }, "RMR-BIND-04"},
			{"unbind", func(udat.RMRTriplet) { unbind() }, "RMR-BIND-05"},
			{"free", func(udat.RMRTriplet) { assert.NilError(t, r.Free()) }, "RMR-FREE-01"},
		} {
			first := b.bind(t, r, b.mem, 0, 100, bothRights)
			a.put(0, 10, 1)
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 1, first, 0))
			completion(t, a.request, 1)
			clear(b.get(0, 10))
			end.old(first)
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 2, first, 0), end.name)
			failed(t, a.request, 2, udat.DTOErrRemoteAccess)
			broken(t, a)
			targetOfFault(t, b)
			assert.DeepEqual(t, b.get(0, 10), make([]byte, 10))
			again(t, a, b)
			rule.Proves(t, end.rule)
		}
		// Freed while bound: the region is free again.
		assert.NilError(t, b.mem.Free())
		// An unbound one can be freed too.
		assert.NilError(t, b.window(t).Free())
	})
}

// TestRMRRights shows that a window grants only its own rights, and that the region must have
// rights for them.
func TestRMRRights(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		readable := b.lmr(100, udat.PrivLocalRead)
		writable := b.lmr(100, udat.PrivLocalWrite)
		for _, c := range []struct {
			l    *udat.LMR
			priv udat.MemPriv
			sub  udat.Subtype
		}{
			{readable, udat.PrivRemoteWrite, udat.SubPrivilegesWrite},
			{readable, bothRights, udat.SubPrivilegesWrite},
			{writable, udat.PrivRemoteRead, udat.SubPrivilegesRead},
		} {
			_, err := r.Bind(c.l.Triplet(0, 100), c.priv, b.ep, 1, 0)
			refused(t, err, udat.PrivilegesViolation, c.sub)
		}
		only := b.bind(t, r, readable, 0, 100, udat.PrivRemoteRead)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 100), 1, only, 0))
		completion(t, a.request, 1)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), 2, only, 0))
		failed(t, a.request, 2, udat.DTOErrRemoteAccess)
		broken(t, a)
		targetOfFault(t, b)
		again(t, a, b)
		only = b.bind(t, r, writable, 0, 100, udat.PrivRemoteWrite)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), 3, only, 0))
		completion(t, a.request, 3)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(0, 100), 4, only, 0))
		failed(t, a.request, 4, udat.DTOErrRemoteAccess)
		broken(t, a)
		targetOfFault(t, b)
		rule.Proves(t, "RMR-BIND-06")
	})
}

// TestRMRBounds shows that a window gives access only to its range, on devices that enforce the
// range.
func TestRMRBounds(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		_, _, p, err := b.ia.Query()
		assert.NilError(t, err)
		if p.Specific(udat.AttrRMRExactBounds) != "TRUE" {
			t.Skip("the device does not keep peers to the bounds of a window")
		}
		for _, off := range []int{-1, 1, 50, 100} {
			tr := b.bind(t, r, b.mem, 100, 100, bothRights)
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 100), 1, sub(tr, off, 100), 0))
			failed(t, a.request, 1, udat.DTOErrRemoteAccess)
			broken(t, a)
			targetOfFault(t, b)
			again(t, a, b)
		}
	})
}

// TestRMRErrors shows the errors of Bind; no error changes the binding.
func TestRMRErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		pz, err := b.ia.CreatePZ()
		assert.NilError(t, err)
		zoned, err := b.ia.AllocLMR(pz, 100, udat.PrivAll)
		assert.NilError(t, err)
		otherEP, err := b.ia.CreateEP(pz, b.recv, b.request, b.conn, nil)
		assert.NilError(t, err)
		freed := b.lmr(10, udat.PrivAll)
		assert.NilError(t, freed.Free())
		noBinds, err := b.ia.CreateEP(b.pz, b.recv, b.evd(16, udat.EVDDTO), b.conn, nil)
		assert.NilError(t, err)
		for _, ep := range []*udat.EP{otherEP, noBinds} {
			peer, on := newEnd(t, dev, setup{}), *b
			on.ep = ep
			connect(t, peer, &on)
		}
		tr := b.bind(t, r, b.mem, 0, 100, bothRights)
		for _, c := range []struct {
			name  string
			t     udat.LMRTriplet
			priv  udat.MemPriv
			ep    *udat.EP
			flags udat.CompletionFlags
			want  *udat.Error
		}{
			{"outside", b.mem.Triplet(1, endMemory), bothRights, b.ep, 0, udat.ErrInvalidParameter},
			{"below", b.mem.Triplet(-1, 10), bothRights, b.ep, 0, udat.ErrInvalidParameter},
			{"local privilege", b.mem.Triplet(0, 10), udat.PrivLocalRead, b.ep, 0, udat.ErrInvalidParameter},
			{"zone of the region", zoned.Triplet(0, 10), bothRights, b.ep, 0, udat.ErrProtectionViolation},
			{"zone of the endpoint", b.mem.Triplet(0, 10), bothRights, otherEP, 0, udat.ErrProtectionViolation},
			{"freed region", freed.Triplet(0, 10), bothRights, b.ep, 0, udat.ErrPrivilegesViolation},
			{"no region", udat.LMRTriplet{SegmentLength: 1}, bothRights, b.ep, 0, udat.ErrPrivilegesViolation},
			{"no endpoint", b.mem.Triplet(0, 10), bothRights, nil, 0, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEP)},
			{"another adapter's", b.mem.Triplet(0, 10), bothRights, a.ep, 0,
				udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEP)},
			{"flag", b.mem.Triplet(0, 10), bothRights, b.ep, udat.CompletionSolicitedWait, udat.ErrInvalidParameter},
			{"unsignalled", b.mem.Triplet(0, 10), bothRights, b.ep, udat.CompletionUnsignalled, udat.ErrInvalidParameter},
			{"dispatcher", b.mem.Triplet(0, 10), bothRights, noBinds, 0,
				udat.WithSubtype(udat.InvalidState, udat.SubStateEPEVDRequest)},
			{"unconnected", b.mem.Triplet(0, 10), bothRights, b.another(nil), 0,
				udat.WithSubtype(udat.InvalidState, udat.SubStateEPUnconnected)},
		} {
			_, err := r.Bind(c.t, c.priv, c.ep, 1, c.flags)
			assert.ErrorIs(t, err, c.want, c.name)
			assert.Equal(t, r.RMRTriplet(), tr, c.name)
		}
		empty(t, b.request)
		rule.Proves(t, "RMR-BIND-10", "RMR-BIND-11")
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 1, tr, 0))
		completion(t, a.request, 1)
	})
}

// TestRMRStates binds in every state of the endpoint; a flushed bind leaves the window as it was.
func TestRMRStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		for _, s := range canBe(t, dev) {
			if s == udat.EPConnected || s == udat.EPDisconnected {
				continue
			}
			e, _ := inState(t, dev, s, setup{})
			_, err := e.window(t).Bind(e.mem.Triplet(0, 10), bothRights, e.ep, 1, 0)
			refused(t, err, udat.InvalidState, subtypes[s])
		}
		tr := b.bind(t, r, b.mem, 0, 10, bothRights)
		l := b.lmr(100, udat.PrivAll)
		assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
		parted(t, a, b)
		_, err := r.Bind(l.Triplet(0, 10), bothRights, b.ep, 5, udat.CompletionSuppress)
		assert.NilError(t, err)
		ev := expect(t, b.request, udat.EventRMRBindCompletion)
		assert.Assert(t, ev.Status == udat.DTOErrFlushed && ev.Cookie == 5 && ev.RMR == r && ev.EP == b.ep, "%s",
			describe(ev))
		rule.Proves(t, "RMR-BIND-08", "EPST-53")
		assert.Equal(t, r.RMRTriplet(), tr)
		assert.NilError(t, l.Free())
	})
}

// TestRMRBindAfterFlush binds a window on a new connection after binds were flushed that the device
// has not executed.
func TestRMRBindAfterFlush(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		b.bind(t, r, b.mem, 0, 10, bothRights)
		for round := range 2 {
			assert.NilError(t, b.ep.Disconnect(udat.CloseAbrupt))
			parted(t, a, b)
			for i := range 2 {
				_, err := r.Bind(b.mem.Triplet(0, 10*i), bothRights, b.ep, 5, 0)
				assert.NilError(t, err)
				ev := expect(t, b.request, udat.EventRMRBindCompletion)
				assert.Equal(t, ev.Status, udat.DTOErrFlushed, "%s", describe(ev))
			}
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
			connect(t, a, b)
			tr := b.bind(t, r, b.mem, 10*round, 10, bothRights)
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 6, tr, 0))
			completion(t, a.request, 6)
		}
	})
}

// TestRMRFlags tests the flags of a bind.
func TestRMRFlags(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{RequestCompletionFlags: udat.CompletionUnsignalled}})
		r := b.window(t)
		_, err := r.Bind(b.mem.Triplet(0, 100), bothRights, b.ep, 1, udat.CompletionSuppress)
		assert.NilError(t, err)
		assert.NilError(t, b.ep.PostSend(nil, 2, udat.CompletionSuppress))
		assert.NilError(t, a.ep.PostRecv(nil, 2, 0))
		completion(t, a.recv, 2)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 10), 3, r.RMRTriplet(), 0))
		completion(t, a.request, 3)
		eventually(t, func() bool { _, _, idle, err := b.ep.GetStatus(); return err == nil && idle }, "idle")
		empty(t, b.request)
		refused(t, b.mem.Free(), udat.InvalidState, udat.SubStateLMRInUse) // the suppressed bind counts
		w := waitOn(t, b.request, udat.Infinite, 1)
		_, err = r.Bind(b.mem.Triplet(50, 50), bothRights, b.ep, 4, udat.CompletionUnsignalled|udat.CompletionBarrierFence)
		assert.NilError(t, err)
		w.still(t) // it wakes nobody
		_, err = r.Bind(b.mem.Triplet(50, 50), bothRights, b.ep, 5, udat.CompletionBarrierFence)
		assert.NilError(t, err)
		got := w.result(t)
		assert.NilError(t, got.err)
		assert.Equal(t, got.ev.Cookie, udat.Cookie(4))
		bound(t, b.request, 5)
		rule.Proves(t, "RMR-BIND-07", "F-02", "EVD-21")
	})
}

// TestRMRFailure makes a bind fail after the post.
func TestRMRFailure(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		tr := b.bind(t, r, b.mem, 0, 10, bothRights)
		l := b.lmr(100, udat.PrivAll)
		b.nic().FailOp(1, fabric.StatusMWBind)
		_, err := r.Bind(l.Triplet(0, 10), bothRights, b.ep, 5, 0)
		assert.NilError(t, err)
		ev := expect(t, b.request, udat.EventRMRBindCompletion)
		assert.Assert(t, ev.Status == udat.RMROperationFailed && ev.Cookie == 5 && ev.EP == b.ep && ev.RMR == r &&
			ev.EVD == b.request, "%s", describe(ev))
		assert.Equal(t, expect(t, b.conn, udat.EventConnectionBroken).EP, b.ep)
		become(t, b.ep, udat.EPDisconnected)
		expect(t, a.conn, udat.EventConnectionDisconnected)
		assert.Equal(t, r.RMRTriplet(), tr)
		assert.NilError(t, l.Free())
		rule.Proves(t, "RMR-BIND-09")
	})
}

// TestRMROutcomeUnknown frees an endpoint with binds in flight: Query still returns the previous
// binding. Because the window may be bound to the regions of these binds, they stay in use until
// the window is bound again or freed.
func TestRMROutcomeUnknown(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for _, anew := range []bool{true, false} {
			_, b := pair(t, dev, setup{})
			r := b.window(t)
			l, m := b.lmr(100, udat.PrivAll), b.lmr(100, udat.PrivAll)
			tr := b.bind(t, r, b.mem, 0, 10, bothRights)
			b.faults().Delay(patience)
			for range 2 {
				_, err := r.Bind(l.Triplet(0, 10), bothRights, b.ep, 1, 0)
				assert.NilError(t, err)
			}
			assert.NilError(t, b.ep.Free())
			b.faults().Delay(0)
			assert.Equal(t, r.RMRTriplet(), tr)
			refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse)
			refused(t, b.mem.Free(), udat.InvalidState, udat.SubStateLMRInUse)
			if anew {
				b.ep = b.another(nil)
				connect(t, newEnd(t, dev, setup{}), b)
				b.bind(t, r, m, 0, 10, bothRights)
			} else {
				assert.NilError(t, r.Free())
			}
			assert.NilError(t, l.Free())
			assert.NilError(t, b.mem.Free())
		}
		rule.Proves(t, "RMR-BIND-12")
	})
}

// TestRMROutcomeIsItsOwn: completions that use the slot of an earlier bind do not settle a bind in
// flight, which is then flushed and leaves the window as it was.
func TestRMROutcomeIsItsOwn(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const places = 4 // of a queue of 3 requests
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: places - 1}})
		r := b.window(t)
		needAcknowledged(t, b)
		l := b.lmr(100, udat.PrivAll)
		tr := b.bind(t, r, b.mem, 0, 10, bothRights)
		for range places - 1 {
			assert.NilError(t, b.ep.PostRDMAWrite(b.iov(0, 8), 1, a.mem.RMRTriplet(0, 8), 0))
			completion(t, b.request, 1)
		}
		// The receive is posted before the send. Otherwise the send waits for it, and soft-RoCE may
		// lose a waiting send if a bind follows.
		assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 1, 0))
		assert.NilError(t, b.ep.PostSend(b.iov(0, 2), 2, 0)) // as many bytes as the window will have had binds
		assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 3, 0)) // for which the peer has no receive
		_, err := r.Bind(l.Triplet(0, 10), bothRights, b.ep, 4, 0)
		assert.NilError(t, err)
		completion(t, b.request, 2)
		part(t, b, a, udat.CloseAbrupt)
		flushed(t, b.request, 3)
		ev := expect(t, b.request, udat.EventRMRBindCompletion)
		assert.Assert(t, ev.Status == udat.DTOErrFlushed && ev.Cookie == 4, "%s", describe(ev))
		assert.Equal(t, r.RMRTriplet(), tr)
		// A device may have executed the bind before flushing it: the window keeps both regions in
		// use until it is freed.
		refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		refused(t, b.mem.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		assert.NilError(t, r.Free())
		assert.NilError(t, l.Free())
		rule.Proves(t, "RMR-BIND-08", "RMR-BIND-12", "LMR-FREE-01")
	})
}
