package udat_test

import (
	"testing"

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
			assert.Equal(t, ev.ConnQual, qual)
			assert.Equal(t, ev.LocalAddr(), b.ia.Addr())
			assert.Equal(t, ev.EVD, b.cr)
			p, err := ev.CR.Query(udat.CRFieldAll)
			assert.NilError(t, err)
			assert.Assert(t, p.LocalEP == nil)
			rule.Proves(t, "PSP-CREATE-07")
			ep := b.another(nil)
			assert.NilError(t, ev.CR.Accept(ep, nil))
			assert.Equal(t, expect(t, b.conn, udat.EventConnectionEstablished).EP, ep, "%d", i)
			expect(t, a.conn, udat.EventConnectionEstablished)
		}
		rule.Proves(t, "PSP-CREATE-01", "PSP-CREATE-02")
		a := newEnd(t, dev, setup{})
		a.call(b, qual, "")
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		assert.NilError(t, psp.Free())
		_, err = psp.Query(udat.PSPFieldAll)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		assert.NilError(t, cr.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
		rule.Proves(t, "PSP-FREE-03", "OBJ-10")
		c := newEnd(t, dev, setup{})
		c.call(b, qual, "")
		expect(t, c.conn, udat.EventConnectionNonPeerRejected)
		empty(t, b.cr)
		rule.Proves(t, "PSP-FREE-01")
	})
}

// TestPSPErrors shows the refusals.
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

// TestPSPNoneLeft takes all free qualifiers.
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

// TestPSPBacklog shows that a full dispatcher is where the backlog ends, and no overflow.
func TestPSPBacklog(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		cno, err := b.ia.CreateCNO(nil)
		assert.NilError(t, err)
		small, err := b.ia.CreateEVD(2, udat.EVDCR, cno)
		assert.NilError(t, err)
		_, psp, err := b.ia.CreatePSPAny(small, udat.PSPConsumer)
		assert.NilError(t, err)
		var callers []*end
		for range 4 {
			a := newEnd(t, dev, setup{})
			a.call(b, psp.Qual(), "")
			callers = append(callers, a)
			if len(callers) > 2 {
				expect(t, a.conn, udat.EventConnectionNonPeerRejected)
			} else {
				_, err := cno.Wait(patience)
				assert.NilError(t, err)
			}
		}
		empty(t, b.ia.AsyncEVD())
		for range 2 {
			assert.NilError(t, expect(t, small, udat.EventConnectionRequest).CR.Reject())
		}
		callers[3].callAgain(b, psp.Qual(), "")
		expect(t, small, udat.EventConnectionRequest)
		rule.Proves(t, "PSP-CREATE-03", "EVD-55")
	})
}

// TestPSPFreeRace frees a service point while requests arrive: each is either told or refused.
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
				assert.Equal(t, refusal.Number, udat.EventConnectionNonPeerRejected, "%d", i)
			} else {
				assert.NilError(t, told.CR.Reject())
				expect(t, a.conn, udat.EventConnectionPeerRejected)
			}
			assert.NilError(t, a.ep.Reset())
		}
		rule.Proves(t, "PSP-FREE-02")
	})
}

// TestPSPProvider shows endpoints that the provider makes.
func TestPSPProvider(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		a := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 3, MaxRDMAReadOut: 2}})
		_, psp, err := b.ia.CreatePSPAny(b.cr, udat.PSPProvider)
		assert.NilError(t, err)
		a.call(b, psp.Qual(), "hello")
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		p, err := cr.Query(udat.CRFieldLocalEP)
		assert.NilError(t, err)
		ep := p.LocalEP
		assert.Assert(t, ep != nil)
		assert.Equal(t, state(t, ep), udat.EPTentativeConnection)
		rule.Proves(t, "PSP-CREATE-04", "CR-QUERY-02", "EPST-21")
		q, err := ep.Query(udat.EPFieldAll)
		assert.NilError(t, err)
		assert.Assert(t, q.PZ == nil && q.RecvEVD == nil && q.RequestEVD == nil && q.ConnectEVD == nil && q.SRQ == nil && q.IA == b.ia)
		assert.Equal(t, q.RemoteAddr, a.ia.Addr())
		assert.DeepEqual(t, []int{q.Attr.MaxRDMAReadIn, q.Attr.MaxRDMAReadOut}, []int{2, 3})
		refused(t, cr.Accept(nil, nil), udat.InvalidState, udat.SubStateEPNotReady)
		refused(t, cr.Accept(b.ep, nil), udat.InvalidHandle, udat.SubHandleEP)
		refused(t, ep.Free(), udat.InvalidState, udat.SubStateEPTentConnPending)
		assert.NilError(t, ep.Modify(udat.EPFieldPZ|udat.EPFieldRecvEVD|udat.EPFieldRequestEVD|udat.EPFieldConnectEVD,
			udat.EPParam{PZ: b.pz, RecvEVD: b.recv, RequestEVD: b.request, ConnectEVD: b.conn}))
		assert.Equal(t, state(t, ep), udat.EPTentativeConnection)
		assert.NilError(t, ep.PostRecv(b.iov(0, 100), 5, 0))
		assert.NilError(t, cr.Accept(nil, []byte("welcome")))
		expect(t, b.conn, udat.EventConnectionEstablished)
		assert.Equal(t, string(expect(t, a.conn, udat.EventConnectionEstablished).PrivateData), "welcome")
		want := a.put(0, 100, 1)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 100), 1, 0))
		assert.Equal(t, completion(t, b.recv, 5).EP, ep)
		assert.DeepEqual(t, b.get(0, 100), want)
		rule.Proves(t, "OBJ-14")
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		expect(t, b.conn, udat.EventConnectionDisconnected)
		assert.NilError(t, ep.Free())

		// A reject takes the endpoint away; the service point goes without its requests.
		expect(t, a.conn, udat.EventConnectionDisconnected)
		a.callAgain(b, psp.Qual(), "")
		cr = expect(t, b.cr, udat.EventConnectionRequest).CR
		p, err = cr.Query(udat.CRFieldLocalEP)
		assert.NilError(t, err)
		assert.NilError(t, psp.Free())
		assert.Equal(t, state(t, p.LocalEP), udat.EPTentativeConnection)
		assert.NilError(t, cr.Reject())
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		_, _, _, err = p.LocalEP.GetStatus()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "EPST-23", "CR-REJECT-02")
	})
}
