package udat_test

import (
	"errors"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestRSP tests a reserved service point: one request, one endpoint.
func TestRSP(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 100), 5, 0))
		qual, rsp := listenReserved(t, b, b.ep)
		assert.Equal(t, state(t, b.ep), udat.EPReserved)
		rule.Proves(t, "EPST-18")
		p, err := rsp.Query()
		assert.NilError(t, err)
		assert.Equal(t, p, udat.RSPParam{IA: b.ia, ConnQual: qual, EVD: b.cr, EP: b.ep})
		rule.Proves(t, "RSP-QUERY-01")
		refused(t, b.ep.Free(), udat.InvalidState, udat.SubStateEPReserved)
		_, err = b.ia.CreateRSP(qual+1, b.ep, b.cr)
		refused(t, err, udat.InvalidState, udat.SubStateEPReserved)
		rule.Proves(t, "RSP-CREATE-03")

		a.call(b, qual, "hello")
		ev := expect(t, b.cr, udat.EventConnectionRequest)
		assert.Assert(t, ev.Object == nil)
		assert.Equal(t, ev.ConnQual(), qual)
		assert.Equal(t, state(t, b.ep), udat.EPPassiveConnectionPending)
		assert.Assert(t, !live(rsp))
		assert.ErrorIs(t, rsp.Free(), udat.ErrInvalidHandle)
		rule.Proves(t, "RSP-CREATE-04", "EPST-20", "RSP-FREE-03")
		cp, err := ev.CR.Query()
		assert.NilError(t, err)
		assert.Equal(t, cp.LocalEP, b.ep)
		rule.Proves(t, "CR-QUERY-02")
		q, err := b.ep.Query()
		assert.NilError(t, err)
		assert.Equal(t, q.RemoteAddr, cp.RemoteAddr)
		assert.Equal(t, q.RemotePortQual, cp.RemotePortQual)
		assert.Equal(t, q.LocalPortQual, uint64(qual))
		c := newEnd(t, dev, setup{})
		c.call(b, qual, "")
		expect(t, c.conn, udat.EventConnectionNonPeerRejected)
		rule.Proves(t, "RSP-CREATE-07")
		other := b.another(nil)
		refused(t, ev.CR.Accept(other, nil), udat.InvalidHandle, udat.SubHandleEP)
		assert.NilError(t, ev.CR.Accept(nil, nil))
		expect(t, b.conn, udat.EventConnectionEstablished)
		expect(t, a.conn, udat.EventConnectionEstablished)
		want := a.put(0, 10, 3)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 10), 1, 0))
		completion(t, b.recv, 5)
		assert.DeepEqual(t, b.get(0, 10), want)
		rule.Proves(t, "RSP-CREATE-01", "CR-ACCEPT-01")
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		expect(t, b.conn, udat.EventConnectionDisconnected)
		expect(t, a.conn, udat.EventConnectionDisconnected)
	})
}

// TestRSPOneRequest: of several requests that come at the same time one is reported; the others are
// refused.
func TestRSPOneRequest(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		cno := newCNO(t, b.ia, nil)
		assert.NilError(t, b.cr.ModifyCNO(cno))
		qual, _ := listenReserved(t, b, b.ep)
		var callers []*end
		for range 4 {
			callers = append(callers, newEnd(t, dev, setup{}))
		}
		var called sync.WaitGroup
		for _, a := range callers {
			called.Go(func() {
				assert.Check(t, a.ep.Connect(b.ia.Addr(), qual, patience, nil, udat.QoSBestEffort, 0))
			})
		}
		called.Wait()
		triggered(t, cno, b.cr)
		assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(nil, nil))
		outcomes := map[udat.EventNumber]int{}
		for _, a := range callers {
			outcomes[next(t, a.conn).Number]++
		}
		assert.DeepEqual(t, outcomes, map[udat.EventNumber]int{udat.EventConnectionEstablished: 1,
			udat.EventConnectionNonPeerRejected: 3})
		expect(t, b.conn, udat.EventConnectionEstablished)
		empty(t, b.cr)
		empty(t, b.conn)
		rule.Proves(t, "RSP-CREATE-01", "RSP-CREATE-07")
	})
}

// TestRSPWideQual: the event of a request has the whole qualifier, even if it needs more than 32
// bits and another qualifier has the same port.
func TestRSPWideQual(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for qual := udat.ConnQual(1<<40 + 7); ; qual++ {
			rsp, err := b.ia.CreateRSP(qual, b.ep, b.cr)
			if errors.Is(err, udat.ErrConnQualInUse) {
				continue
			}
			assert.NilError(t, err)
			assert.Equal(t, rsp.Qual(), qual)
			p, err := rsp.Query()
			assert.NilError(t, err)
			assert.Equal(t, p.ConnQual, qual)
			a.call(b, qual, "")
			assert.Equal(t, expect(t, b.cr, udat.EventConnectionRequest).ConnQual(), qual)
			rule.Proves(t, "RSP-CREATE-04")
			return
		}
	})
}

// TestRSPRejectAndFree shows the two ways to get the endpoint back.
func TestRSPRejectAndFree(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		qual, _ := listenReserved(t, b, b.ep)
		a.call(b, qual, "")
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		assert.NilError(t, cr.Reject(nil))
		assert.Assert(t, !live(cr))
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		assert.Equal(t, state(t, b.ep), udat.EPUnconnected)
		rule.Proves(t, "EPST-22", "CR-REJECT-01", "CR-REJECT-02")
		qual, rsp := listenReserved(t, b, b.ep)
		assert.Equal(t, state(t, b.ep), udat.EPReserved)
		assert.NilError(t, rsp.Free())
		assert.Equal(t, state(t, b.ep), udat.EPUnconnected)
		a.callAgain(b, qual, "")
		expect(t, a.conn, udat.EventConnectionNonPeerRejected)
		rule.Proves(t, "EPST-19", "RSP-FREE-01")
		qual, _ = listenReserved(t, b, b.ep) // it can be used again
		a.callAgain(b, qual, "")
		assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(nil, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
		rule.Proves(t, "RSP-CREATE-05")
	})
}

// TestRSPProvider tests a reserved service point whose endpoint the provider makes.
func TestRSPProvider(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		qual, rsp := listenReserved(t, b, nil)
		p, err := rsp.Query()
		assert.NilError(t, err)
		assert.Assert(t, p.EP == nil)
		a.call(b, qual, "")
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		cp, err := cr.Query()
		assert.NilError(t, err)
		assert.Equal(t, state(t, cp.LocalEP), udat.EPTentativeConnection)
		assert.Assert(t, !live(rsp))
		assert.NilError(t, cp.LocalEP.Modify(udat.EPFieldPZ|udat.EPFieldConnectEVD,
			udat.EPParam{PZ: b.pz, ConnectEVD: b.conn}))
		assert.NilError(t, cr.Accept(nil, nil))
		assert.Equal(t, expect(t, b.conn, udat.EventConnectionEstablished).EP, cp.LocalEP)
		expect(t, a.conn, udat.EventConnectionEstablished)
		rule.Proves(t, "RSP-CREATE-02")
	})
}

// TestRSPErrors shows the errors of the calls.
func TestRSPErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		psp := listen(t, b)
		fresh := b.another(nil)
		unzoned, err := b.ia.CreateEP(nil, b.recv, b.request, b.conn, nil)
		assert.NilError(t, err)
		for _, c := range []struct {
			name string
			qual udat.ConnQual
			ep   *udat.EP
			evd  *udat.EVD
			want *udat.Error
		}{
			{"connected", 4711, b.ep, b.cr, udat.ErrInvalidState},
			{"no zone", 4711, unzoned, b.cr, udat.WithSubtype(udat.InvalidState, udat.SubStateEPNotReady)},
			{"of another adapter", 4711, a.ep, b.cr, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEP)},
			{"qualifier 0", 0, fresh, b.cr, udat.ErrInvalidParameter},
			{"in use", psp.Qual(), fresh, b.cr, udat.ErrConnQualInUse},
			{"no dispatcher", 4711, fresh, nil, udat.ErrInvalidHandle},
			{"wrong dispatcher", 4711, fresh, b.conn, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDCR)},
		} {
			_, err := b.ia.CreateRSP(c.qual, c.ep, c.evd)
			assert.ErrorIs(t, err, c.want, c.name)
			assert.Equal(t, state(t, fresh), udat.EPUnconnected, c.name)
		}
		rule.Proves(t, "RSP-CREATE-06")
	})
}

// TestRSPFullDispatcher shows that a request for which there is no place does not end the service
// point.
func TestRSPFullDispatcher(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		b.cr = b.evd(1, udat.EVDCR|udat.EVDSoftware)
		qual, rsp := listenReserved(t, b, b.ep)
		assert.NilError(t, b.cr.PostSE(udat.Event{Number: udat.EventSoftware}))
		a.call(b, qual, "")
		expect(t, a.conn, udat.EventConnectionNonPeerRejected)
		assert.Assert(t, live(rsp))
		assert.Equal(t, state(t, b.ep), udat.EPReserved)
		expect(t, b.cr, udat.EventSoftware)
		a.callAgain(b, qual, "")
		expect(t, b.cr, udat.EventConnectionRequest)
		assert.Assert(t, !live(rsp))
	})
}
