package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// call starts to connect the end to a qualifier at another.
func (e *end) call(to *end, qual udat.ConnQual, private string) {
	e.t.Helper()
	assert.NilError(e.t, e.ep.Connect(to.ia.Addr(), qual, patience, []byte(private), udat.QoSBestEffort, 0))
}

// callAgain is call after whatever ended the last one.
func (e *end) callAgain(to *end, qual udat.ConnQual, private string) {
	e.t.Helper()
	assert.NilError(e.t, e.ep.Reset())
	e.call(to, qual, private)
}

// TestPSP shows a public service point at work: many requests, each with an event and a CR.
func TestPSP(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		qual, psp, err := b.ia.CreatePSPAny(b.cr, udat.PSPConsumer)
		assert.NilError(t, err)
		assert.Equal(t, psp.Qual(), qual)
		assert.Assert(t, qual > 1023 && qual <= 65535)
		_, other, err := b.ia.CreatePSPAny(b.cr, udat.PSPConsumer)
		assert.NilError(t, err)
		assert.Assert(t, other.Qual() != qual)
		_, err = b.ia.CreatePSP(qual, b.cr, udat.PSPConsumer)
		assert.ErrorIs(t, err, udat.ErrConnQualInUse)
		rule.Proves(t, "PSP-ANY-01", "PSP-ANY-03")
		for i := range 3 {
			a := newEnd(t, dev, setup{})
			a.call(b, qual, "hello")
			ev := expect(t, b.cr, udat.EventConnectionRequest)
			assert.Equal(t, ev.Object, udat.Handle(psp))
			assert.Equal(t, ev.ConnQual(), qual)
			assert.Equal(t, ev.LocalAddr(), b.ia.Addr())
			assert.Equal(t, ev.EVD, b.cr)
			p, err := ev.CR.Query()
			assert.NilError(t, err)
			assert.Assert(t, p.LocalEP == nil)
			rule.Proves(t, "PSP-CREATE-07")
			ep := b.another(nil)
			assert.NilError(t, ev.CR.Accept(ep, nil))
			assert.Equal(t, expect(t, b.conn, udat.EventConnectionEstablished).EP, ep, "%d", i)
			expect(t, a.conn, udat.EventConnectionEstablished)
		}
		rule.Proves(t, "PSP-CREATE-01", "PSP-CREATE-02")
		assert.NilError(t, psp.Free())
		_, err = psp.Query()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		c := newEnd(t, dev, setup{})
		c.call(b, qual, "")
		expect(t, c.conn, udat.EventConnectionNonPeerRejected)
		empty(t, b.cr)
		rule.Proves(t, "PSP-FREE-01")
	})
}

// TestPSPFreeLeavesRequests frees service points whose requests are dequeued or still queued: the
// requests and the provider's endpoints can still be used.
func TestPSPFreeLeavesRequests(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.PSPFlags{udat.PSPConsumer, udat.PSPProvider} {
			b := newEnd(t, dev, setup{})
			qual, psp, err := b.ia.CreatePSPAny(b.cr, flags)
			assert.NilError(t, err)
			callers := map[uint64]*end{}
			for range 4 {
				a := newEnd(t, dev, setup{})
				queued := udat.Queued(b.cr)
				a.call(b, qual, "hello")
				until(t, "the request is queued", func() bool { return udat.Queued(b.cr) == queued+1 })
				callers[param(t, a.ep).LocalPortQual] = a
			}
			var requests []*udat.CR
			for i := range 4 {
				if i == 2 {
					assert.NilError(t, psp.Free())
				}
				requests = append(requests, expect(t, b.cr, udat.EventConnectionRequest).CR)
			}
			for i, cr := range requests {
				p, err := cr.Query()
				assert.NilError(t, err)
				assert.Equal(t, string(p.PrivateData), "hello")
				a := callers[p.RemotePortQual]
				if i%2 == 0 {
					assert.NilError(t, cr.Reject(nil))
					expect(t, a.conn, udat.EventConnectionPeerRejected)
					continue
				}
				own := b.another(nil)
				ep := own
				if flags == udat.PSPProvider {
					ep, own = p.LocalEP, nil
					assert.NilError(t, ep.Modify(udat.EPFieldPZ|udat.EPFieldConnectEVD, udat.EPParam{PZ: b.pz, ConnectEVD: b.conn}))
				}
				assert.NilError(t, cr.Accept(own, nil))
				assert.Equal(t, expect(t, b.conn, udat.EventConnectionEstablished).EP, ep)
				expect(t, a.conn, udat.EventConnectionEstablished)
			}
			empty(t, b.cr)
		}
		rule.Proves(t, "PSP-FREE-03", "OBJ-10")
	})
}

// TestPSPErrors shows the errors of the calls.
func TestPSPErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		psp := listen(t, b)
		for _, c := range []struct {
			qual  udat.ConnQual
			evd   *udat.EVD
			flags udat.PSPFlags
			want  *udat.Error
		}{
			{psp.Qual(), b.cr, udat.PSPConsumer, udat.ErrConnQualInUse},
			{psp.Qual(), b.cr, udat.PSPProvider, udat.ErrConnQualInUse},
			{0, b.cr, udat.PSPConsumer, udat.ErrInvalidParameter},
			{4711, b.cr, 2, udat.ErrInvalidParameter},
			{4711, nil, udat.PSPConsumer, udat.ErrInvalidHandle},
			{4711, b.conn, udat.PSPConsumer, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDCR)},
		} {
			_, err := b.ia.CreatePSP(c.qual, c.evd, c.flags)
			assert.ErrorIs(t, err, c.want, "%+v", c)
			if c.qual != 0 && c.qual != psp.Qual() {
				_, _, err = b.ia.CreatePSPAny(c.evd, c.flags)
				assert.ErrorIs(t, err, c.want, "%+v", c)
			}
		}
		rule.Proves(t, "PSP-CREATE-05")
		assert.ErrorIs(t, b.cr.Free(), udat.WithSubtype(udat.InvalidState, udat.SubStateEVDInUse))
		assert.NilError(t, psp.Free())
		assert.NilError(t, b.cr.Free())
	})
}

// TestPSPNoneLeft uses up all free qualifiers.
func TestPSPNoneLeft(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		for {
			_, _, err := b.ia.CreatePSPAny(b.cr, udat.PSPConsumer)
			if err != nil {
				assert.ErrorIs(t, err, udat.ErrConnQualUnavailable)
				break
			}
		}
		rule.Proves(t, "PSP-ANY-02")
	})
}

// called starts n connects to a qualifier, each by a new end, and waits until the dispatcher has n
// more events.
func called(t *testing.T, dev string, b *end, qual udat.ConnQual, evd *udat.EVD, n int) {
	t.Helper()
	for range n {
		queued := udat.Queued(evd)
		newEnd(t, dev, setup{}).call(b, qual, "")
		until(t, "the request is queued", func() bool { return udat.Queued(evd) == queued+1 })
	}
}

// turnedAway makes a connect that must be refused because there is no place.
func turnedAway(t *testing.T, dev string, b *end, qual udat.ConnQual) {
	t.Helper()
	a := newEnd(t, dev, setup{})
	a.call(b, qual, "")
	expect(t, a.conn, udat.EventConnectionNonPeerRejected)
}

// TestPSPBacklog: the backlog of a service point is its dispatcher's queue. A request occupies a
// place until its event is dequeued, whether or not the request has been answered. A refusal is no
// overflow.
func TestPSPBacklog(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.PSPFlags{udat.PSPConsumer, udat.PSPProvider} {
			b := newEnd(t, dev, setup{})
			small, other := b.evd(2, udat.EVDCR), b.evd(1, udat.EVDCR)
			qual, psp, err := b.ia.CreatePSPAny(small, flags)
			assert.NilError(t, err)
			otherQual, otherPSP, err := b.ia.CreatePSPAny(other, flags)
			assert.NilError(t, err)
			var open []*udat.CR // requests that nobody has answered
			fresh := map[*udat.EP]bool{}
			take := func(n int) {
				t.Helper()
				for range n {
					cr := expect(t, small, udat.EventConnectionRequest).CR
					open = append(open, cr)
					p, err := cr.Query()
					assert.NilError(t, err)
					assert.Equal(t, p.LocalEP != nil, flags == udat.PSPProvider)
					if p.LocalEP != nil {
						assert.Assert(t, !fresh[p.LocalEP], "another request has the endpoint")
						assert.Equal(t, state(t, p.LocalEP), udat.EPTentativeConnection)
						fresh[p.LocalEP] = true
					}
				}
			}
			called(t, dev, b, qual, small, 2)
			turnedAway(t, dev, b, qual)
			take(2)
			called(t, dev, b, qual, small, 2) // though two requests are unanswered
			turnedAway(t, dev, b, qual)
			rule.Proves(t, "PSP-CREATE-03", "PSP-CREATE-04", "EVD-55")

			assert.NilError(t, open[0].Reject(nil)) // an answer frees no place: the place was freed when the event was dequeued
			turnedAway(t, dev, b, qual)
			assert.NilError(t, small.Resize(3))
			called(t, dev, b, qual, small, 1)
			turnedAway(t, dev, b, qual)
			take(2)
			assert.NilError(t, small.Resize(1))
			turnedAway(t, dev, b, qual)
			take(1)
			rule.Proves(t, "PSP-CREATE-03", "EVD-55", "EVD-RESIZE-01")

			// A request that is handed off occupies a place in the other queue until its event
			// there is dequeued.
			assert.NilError(t, open[1].Handoff(otherQual))
			assert.ErrorIs(t, open[2].Handoff(otherQual), udat.ErrInsufficientResources)
			turnedAway(t, dev, b, otherQual)
			called(t, dev, b, qual, small, 1)
			open[1] = expect(t, other, udat.EventConnectionRequest).CR
			assert.NilError(t, open[2].Handoff(otherQual))
			open[2] = expect(t, other, udat.EventConnectionRequest).CR
			called(t, dev, b, otherQual, other, 1)
			open = append(open, expect(t, other, udat.EventConnectionRequest).CR)
			take(1)
			rule.Proves(t, "PSP-CREATE-03", "EVD-55")

			empty(t, b.ia.AsyncEVD())
			for _, evd := range []*udat.EVD{small, other} { // a peer that has not received its refusal sends the request again
				for ev, err := evd.Dequeue(); err == nil; ev, err = evd.Dequeue() {
					open = append(open, ev.CR)
				}
			}
			for _, cr := range open[1:] {
				assert.NilError(t, cr.Reject(nil))
			}
			// Nothing is left of the refused requests, not even the endpoints that the provider
			// made for them.
			assert.NilError(t, psp.Free())
			assert.NilError(t, otherPSP.Free())
			for _, h := range []interface{ Free() error }{small, other, b.ep, b.mem, b.pz, b.recv, b.request, b.conn, b.cr} {
				assert.NilError(t, h.Free())
			}
			assert.NilError(t, b.ia.Close(udat.CloseGraceful))
		}
	})
}

// TestBacklogMerged: completions that are still on the device occupy places of a dispatcher for
// several streams. If they fill the dispatcher, it has no place for a connection request of any
// kind.
func TestBacklogMerged(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const qlen = 4
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{unkept: true})
		merged := b.evd(qlen, udat.EVDDTO|udat.EVDCR)
		var err error
		b.ep, err = b.ia.CreateEP(b.pz, b.recv, merged, b.conn, &udat.EPAttr{MaxRequestDTOs: qlen})
		assert.NilError(t, err)
		connect(t, a, b)
		_, elsewhere, err := b.ia.CreatePSPAny(b.cr, udat.PSPConsumer)
		assert.NilError(t, err)
		qual, _, err := b.ia.CreatePSPAny(merged, udat.PSPProvider)
		assert.NilError(t, err)
		reserved := b.another(nil)
		apart := b.cr
		b.cr = merged
		reservedQual, rsp := listenReserved(t, b, reserved)
		called(t, dev, b, elsewhere.Qual(), apart, 1)
		cr := expect(t, apart, udat.EventConnectionRequest).CR
		cq := udat.CompletionQueue(merged)
		for _, request := range []func(){
			func() { turnedAway(t, dev, b, qual) },
			func() { turnedAway(t, dev, b, reservedQual) },
			func() { assert.ErrorIs(t, cr.Handoff(qual), udat.ErrInsufficientResources) },
		} {
			for i := range udat.Cookie(qlen) {
				assert.NilError(t, cq.Arm(false))
				assert.NilError(t, b.ep.PostRDMAWrite(b.iov(0, 8), i, a.mem.RMRTriplet(0, 8), 0))
				fired, err := cq.Wait(time.Now().Add(patience))
				assert.NilError(t, err)
				assert.Assert(t, fired)
			}
			assert.Equal(t, udat.Queued(merged), 0)
			request()
			assert.Equal(t, udat.Queued(merged), qlen)
			for i := range udat.Cookie(qlen) {
				completion(t, merged, i)
			}
		}
		assert.Assert(t, live(rsp))
		assert.Equal(t, state(t, reserved), udat.EPReserved)
		empty(t, b.ia.AsyncEVD())
		called(t, dev, b, qual, merged, qlen-2)
		called(t, dev, b, reservedQual, merged, 1)
		assert.NilError(t, cr.Handoff(qual))
		turnedAway(t, dev, b, qual)
		for range qlen {
			assert.NilError(t, expect(t, merged, udat.EventConnectionRequest).CR.Reject(nil))
		}
		empty(t, merged)
		empty(t, b.ia.AsyncEVD())
		rule.Proves(t, "EVD-55")
	})
}

// TestPSPFreeRace frees a service point while requests arrive: each request is either reported or
// refused. On iWARP a request may be lost with the listener's TCP connection, and then nobody
// answers.
func TestPSPFreeRace(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		a := newEnd(t, dev, setup{})
		for i := range 10 {
			psp := listen(t, b)
			a.call(b, psp.Qual(), "")
			assert.NilError(t, psp.Free())
			var told, refusal udat.Event
			until(t, "told or refused", func() bool {
				var err, err2 error
				told, err = b.cr.Dequeue()
				refusal, err2 = a.conn.Dequeue()
				return err == nil || err2 == nil
			})
			if told.CR == nil {
				lost := refusal.Number == udat.EventConnectionUnreachable && !acknowledged(a)
				assert.Assert(t, refusal.Number == udat.EventConnectionNonPeerRejected || lost, "%d: %s", i, describe(refusal))
			} else {
				assert.NilError(t, told.CR.Reject(nil))
				expect(t, a.conn, udat.EventConnectionPeerRejected)
			}
			assert.NilError(t, a.ep.Reset())
			empty(t, a.conn)
		}
		time.Sleep(quiet)
		empty(t, b.cr) // refused requests leave no event
		rule.Proves(t, "PSP-FREE-02")
	})
}

// TestPSPProvider tests endpoints that the provider makes.
func TestPSPProvider(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		a := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 3, MaxRDMAReadOut: 2}})
		_, psp, err := b.ia.CreatePSPAny(b.cr, udat.PSPProvider)
		assert.NilError(t, err)
		a.call(b, psp.Qual(), "hello")
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		p, err := cr.Query()
		assert.NilError(t, err)
		ep := p.LocalEP
		assert.Assert(t, ep != nil)
		assert.Equal(t, state(t, ep), udat.EPTentativeConnection)
		rule.Proves(t, "PSP-CREATE-04", "CR-QUERY-02", "EPST-21")
		q, err := ep.Query()
		assert.NilError(t, err)
		assert.Assert(t, q.PZ == nil && q.RecvEVD == nil && q.RequestEVD == nil && q.ConnectEVD == nil && q.SRQ == nil &&
			q.IA == b.ia)
		assert.Equal(t, q.RemoteAddr, a.ia.Addr())
		assert.DeepEqual(t, []int{q.Attr.MaxRDMAReadIn, q.Attr.MaxRDMAReadOut}, []int{2, 3})
		refused(t, cr.Accept(nil, nil), udat.InvalidState, udat.SubStateEPNotReady)
		refused(t, cr.Accept(b.ep, nil), udat.InvalidHandle, udat.SubHandleEP)
		refused(t, ep.Free(), udat.InvalidState, udat.SubStateEPTentConnPending)
		assert.NilError(t, ep.PostRecv(nil, 4, 0))
		rule.Proves(t, "EPST-50")
		assert.NilError(t, ep.Modify(udat.EPFieldPZ|udat.EPFieldRecvEVD|udat.EPFieldRequestEVD|udat.EPFieldConnectEVD,
			udat.EPParam{PZ: b.pz, RecvEVD: b.recv, RequestEVD: b.request, ConnectEVD: b.conn}))
		assert.Equal(t, state(t, ep), udat.EPTentativeConnection)
		assert.NilError(t, ep.PostRecv(b.iov(0, 100), 5, 0))
		assert.NilError(t, cr.Accept(nil, []byte("welcome")))
		expect(t, b.conn, udat.EventConnectionEstablished)
		assert.Equal(t, string(expect(t, a.conn, udat.EventConnectionEstablished).PrivateData()), "welcome")
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		completion(t, b.recv, 4)
		want := a.put(0, 100, 1)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 100), 1, 0))
		assert.Equal(t, completion(t, b.recv, 5).EP, ep)
		assert.DeepEqual(t, b.get(0, 100), want)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		expect(t, b.conn, udat.EventConnectionDisconnected)
		assert.NilError(t, ep.Free())

		// A reject destroys the endpoint. The service point can be freed without its requests.
		expect(t, a.conn, udat.EventConnectionDisconnected)
		a.callAgain(b, psp.Qual(), "")
		cr = expect(t, b.cr, udat.EventConnectionRequest).CR
		p, err = cr.Query()
		assert.NilError(t, err)
		assert.NilError(t, psp.Free())
		assert.Equal(t, state(t, p.LocalEP), udat.EPTentativeConnection)
		assert.NilError(t, cr.Reject(nil))
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		_, _, _, err = p.LocalEP.GetStatus()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "EPST-23", "CR-REJECT-02")
	})
}

// TestPSPProviderDepths: the endpoint that the provider makes has the read depths of the request,
// and needs a zone of the Consumer's for each.
func TestPSPProviderDepths(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		_, psp, err := b.ia.CreatePSPAny(b.cr, udat.PSPProvider)
		assert.NilError(t, err)
		for _, c := range []struct{ in, out, wantIn, wantOut int }{{3, 2, 2, 3}, {1, 4, 4, 1}, {udat.None, 1, 1, 0},
			{2, udat.None, 0, 2}} {
			a := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: c.in, MaxRDMAReadOut: c.out}})
			a.call(b, psp.Qual(), "")
			cr := expect(t, b.cr, udat.EventConnectionRequest).CR
			p, err := cr.Query()
			assert.NilError(t, err)
			q := param(t, p.LocalEP)
			assert.Assert(t, q.PZ == nil && q.RecvEVD == nil && q.RequestEVD == nil && q.ConnectEVD == nil)
			assert.DeepEqual(t, []int{q.Attr.MaxRDMAReadIn, q.Attr.MaxRDMAReadOut}, []int{c.wantIn, c.wantOut})
			refused(t, cr.Accept(nil, nil), udat.InvalidState, udat.SubStateEPNotReady)
			assert.NilError(t, p.LocalEP.Modify(udat.EPFieldPZ|udat.EPFieldRecvEVD|udat.EPFieldConnectEVD,
				udat.EPParam{PZ: b.pz, RecvEVD: b.recv, ConnectEVD: b.conn}))
			assert.NilError(t, p.LocalEP.PostRecv(b.iov(0, 8), 1, 0))
			assert.NilError(t, cr.Accept(nil, nil))
			assert.Equal(t, expect(t, b.conn, udat.EventConnectionEstablished).EP, p.LocalEP)
			expect(t, a.conn, udat.EventConnectionEstablished)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 1, 0))
			completion(t, b.recv, 1)
		}
		rule.Proves(t, "OBJ-14", "ATTR-01")
	})
}
