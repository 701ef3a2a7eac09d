package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

func param(t *testing.T, ep *udat.EP) udat.EPParam {
	t.Helper()
	p, err := ep.Query()
	assert.NilError(t, err)
	return p
}

// TestEPQuery shows the result of Query in each state.
func TestEPQuery(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		p := param(t, a.ep)
		assert.Assert(t, p.IA == a.ia && p.State == udat.EPUnconnected && p.PZ == a.pz && p.SRQ == nil)
		assert.Assert(t, p.RecvEVD == a.recv && p.RequestEVD == a.request && p.ConnectEVD == a.conn)
		assert.Equal(t, p.LocalAddr, a.ia.Addr())
		assert.Assert(t, !p.RemoteAddr.IsValid() && p.RemotePortQual == 0 && !a.ep.RemoteAddr().IsValid())
		psp := listen(t, b)
		a.call(b, psp.Qual(), "")
		cr := expect(t, b.cr, udat.EventConnectionRequest).CR
		p = param(t, a.ep)
		assert.Equal(t, p.State, udat.EPActiveConnectionPending)
		assert.Equal(t, p.RemoteAddr, b.ia.Addr())
		assert.Equal(t, p.RemotePortQual, uint64(psp.Qual()))
		local := p.LocalPortQual
		assert.Assert(t, local != 0)
		assert.NilError(t, cr.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
		for _, e := range []*end{a, b} {
			p, far := param(t, e.ep), map[*end]*end{a: b, b: a}[e]
			q := param(t, far.ep)
			assert.Equal(t, p.State, udat.EPConnected)
			assert.Equal(t, p.RemoteAddr, far.ia.Addr())
			assert.Equal(t, p.LocalAddr, e.ia.Addr())
			assert.Equal(t, p.RemotePortQual, q.LocalPortQual)
		}
		assert.Equal(t, param(t, a.ep).LocalPortQual, local)
		assert.Equal(t, param(t, b.ep).LocalPortQual, uint64(psp.Qual()))
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		parted(t, a, b)
		for _, e := range []*end{a, b} {
			p := param(t, e.ep)
			assert.Assert(t, p.State == udat.EPDisconnected && !p.RemoteAddr.IsValid() && p.RemotePortQual == 0)
		}
		want := udat.EPAttr{
			MaxMessageSize: 100, MaxRDMASize: 200, RecvCompletionFlags: udat.CompletionSolicitedWait,
			RequestCompletionFlags: udat.CompletionUnsignalled,
			MaxRecvDTOs:            3, MaxRequestDTOs: 4, MaxRecvIOV: 2, MaxRequestIOV: 3, MaxRDMAReadIn: 1, MaxRDMAReadOut: 2,
			SRQSoftHW:      udat.HWDefault,
			MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 2,
		}
		ep, err := a.ia.CreateEP(a.pz, a.evd(8, udat.EVDDTO), a.evd(8, udat.EVDDTO), nil, &want)
		assert.NilError(t, err)
		assert.DeepEqual(t, param(t, ep).Attr, want)
		rule.Proves(t, "EP-QUERY-01")
	})
}

// TestEPQueryStates: Query returns the addresses of both ends in every state that has them, and in
// no other state.
func TestEPQueryStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, s := range canBe(t, dev) {
			e, peer := newEnd(t, dev, setup{script: new(faultfabric.Script)}), newEnd(t, dev, setup{})
			e.enter(peer, s)
			p := param(t, e.ep)
			assert.Equal(t, p.State, s)
			assert.Equal(t, p.LocalAddr, e.ia.Addr(), "%v", s)
			switch s {
			case udat.EPPassiveConnectionPending, udat.EPTentativeConnection, udat.EPActiveConnectionPending,
				udat.EPCompletionPending,
				udat.EPConnected, udat.EPDisconnectPending:
				assert.Equal(t, p.RemoteAddr, peer.ia.Addr(), "%v", s)
				assert.Assert(t, p.RemotePortQual != 0 && p.LocalPortQual != 0, "%v: %d and %d", s, p.LocalPortQual,
					p.RemotePortQual)
				if far := param(t, peer.ep); far.RemotePortQual != 0 {
					assert.Equal(t, p.LocalPortQual, far.RemotePortQual, "%v", s)
					assert.Equal(t, p.RemotePortQual, far.LocalPortQual, "%v", s)
				}
			default:
				assert.Assert(t, !p.RemoteAddr.IsValid() && p.RemotePortQual == 0, "%v: %v %d", s, p.RemoteAddr, p.RemotePortQual)
			}
		}
		rule.Proves(t, "EP-QUERY-02", "EP-QUERY-03")
	})
}

// everyField returns a change of every field that can be changed.
func (e *end) everyField() (udat.EPField, udat.EPParam) {
	return udat.EPFieldPZ | udat.EPFieldRecvEVD | udat.EPFieldRequestEVD | udat.EPFieldConnectEVD |
			udat.EPFieldAttr&^(udat.EPFieldSRQSoftHW|udat.EPFieldNumTransportSpecific|udat.EPFieldTransportSpecific|
				udat.EPFieldNumProviderSpecific|udat.EPFieldProviderSpecific),
		udat.EPParam{
			PZ: e.pz, RecvEVD: e.evd(16, udat.EVDDTO), RequestEVD: e.evd(16, udat.EVDDTO|udat.EVDRMRBind),
			ConnectEVD: e.evd(16, udat.EVDConnection),
			Attr: udat.EPAttr{
				MaxMessageSize: 1000, MaxRDMASize: 2000, RecvCompletionFlags: udat.CompletionUnsignalled,
				RequestCompletionFlags: udat.CompletionUnsignalled,
				MaxRecvDTOs:            9, MaxRequestDTOs: 8, MaxRecvIOV: 1, MaxRequestIOV: 2, MaxRDMAReadIn: 2, MaxRDMAReadOut: 1,
				MaxRDMAReadIOV: 1, MaxRDMAWriteIOV: 1,
				SRQSoftHW: udat.HWDefault,
			},
		}
}

// TestEPModify changes everything and then uses the endpoint.
func TestEPModify(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		assert.NilError(t, b.ep.PostRecv(nil, 77, 0)) // its event is on the old dispatcher, and is destroyed with it
		connect(t, a, b)
		part(t, a, b, udat.CloseAbrupt)
		assert.NilError(t, a.ep.Reset())
		assert.NilError(t, b.ep.Reset())
		assert.Equal(t, udat.Queued(b.recv), 1)
		mask, want := b.everyField()
		assert.NilError(t, b.ep.Modify(mask, want))
		got := param(t, b.ep)
		assert.Assert(t, got.PZ == want.PZ && got.RecvEVD == want.RecvEVD && got.RequestEVD == want.RequestEVD &&
			got.ConnectEVD == want.ConnectEVD)
		assert.DeepEqual(t, got.Attr, want.Attr)
		assert.Equal(t, got.State, udat.EPUnconnected)
		// The dispatchers that are no longer used can be freed without harm to the endpoint.
		assert.NilError(t, b.recv.Free())
		assert.NilError(t, b.request.Free())
		assert.NilError(t, b.conn.Free())
		b.recv, b.request, b.conn = want.RecvEVD, want.RequestEVD, want.ConnectEVD
		refused(t, b.recv.Free(), udat.InvalidState, udat.SubStateEVDInUse)
		for i := range 9 {
			assert.NilError(t, b.ep.PostRecv(b.iov(i*10, 10), udat.Cookie(i), udat.CompletionUnsignalled))
		}
		refused(t, b.ep.PostRecv(b.iov(0, 10), 9, 0), udat.InsufficientResources)
		connect(t, a, b)
		assert.DeepEqual(t, param(t, b.ep).Attr, want.Attr)
		rule.Proves(t, "EPST-45", "ATTR-01")
		for i := range 9 {
			data := a.put(0, 10, byte(i))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 10), udat.Cookie(i), 0))
			completion(t, a.request, udat.Cookie(i))
			completion(t, b.recv, udat.Cookie(i))
			assert.DeepEqual(t, b.get(i*10, 10), data)
		}
		assert.ErrorIs(t, b.ep.PostSend(b.iov(0, 1001), 1, 0), udat.ErrInvalidParameter)
		assert.NilError(t, b.ep.PostSend(b.iov(0, 1), 1, udat.CompletionUnsignalled))
		rule.Proves(t, "OBJ-09", "EVD-FREE-01", "EPST-02")
	})
}

// TestEPModifyManyPending: receives stay posted even if there are more of them than one doorbell
// posts.
func TestEPModifyManyPending(t *testing.T) {
	const many = 150
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRecvDTOs: many}})
		for i := range many {
			assert.NilError(t, b.ep.PostRecv(b.iov(i*4, 4), udat.Cookie(i), 0))
		}
		assert.NilError(t, b.ep.Modify(udat.EPFieldMaxRecvDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRecvDTOs: many + 1}}))
		connect(t, a, b)
		for i := range many {
			data := a.put(0, 4, byte(i))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 4), udat.Cookie(i), 0))
			completion(t, a.request, udat.Cookie(i))
			completion(t, b.recv, udat.Cookie(i))
			assert.DeepEqual(t, b.get(i*4, 4), data)
		}
	})
}

// TestEPModifyPending shows that posted receives stay posted, in order, after any number of
// changes.
func TestEPModifyPending(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		for i := range 6 {
			assert.NilError(t, b.ep.PostRecv([]udat.LMRTriplet{b.mem.Triplet(i*20, 5), {}, b.mem.Triplet(i*20+10, 5)},
				udat.Cookie(i), 0))
		}
		for i, evd := range []*udat.EVD{b.evd(50, udat.EVDDTO), b.evd(60, udat.EVDDTO|udat.EVDSoftware)} {
			assert.NilError(t, b.ep.Modify(udat.EPFieldRecvEVD|udat.EPFieldMaxRecvDTOs,
				udat.EPParam{RecvEVD: evd, Attr: udat.EPAttr{MaxRecvDTOs: 40 + i}}))
			b.recv = evd
			assert.NilError(t, b.ep.PostRecv(b.iov(200+i, 1), udat.Cookie(6+i), 0))
		}
		allocated, _, err := b.ep.RecvQuery()
		assert.NilError(t, err)
		assert.Equal(t, allocated, 8)
		refused(t, b.ep.Modify(udat.EPFieldMaxRecvDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRecvDTOs: 7}}),
			udat.InvalidParameter)
		refused(t, b.ep.Modify(udat.EPFieldMaxRecvIOV, udat.EPParam{Attr: udat.EPAttr{MaxRecvIOV: 1}}), udat.InvalidParameter)
		assert.NilError(t, b.ep.Modify(udat.EPFieldPZ, udat.EPParam{}))
		assert.NilError(t, b.ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: b.pz}))
		refused(t, b.ep.Modify(udat.EPFieldRecvCompletionFlags,
			udat.EPParam{Attr: udat.EPAttr{RecvCompletionFlags: udat.CompletionEVDThreshold}}), udat.InvalidState)
		rule.Proves(t, "EP-MODIFY-05")
		connect(t, a, b)
		for i := range 8 {
			data := a.put(0, 10, byte(i))
			n := 10
			if i >= 6 {
				n = 1
			}
			assert.NilError(t, a.ep.PostSend(a.iov(0, n), udat.Cookie(i), 0))
			completion(t, a.request, udat.Cookie(i))
			assert.Equal(t, completion(t, b.recv, udat.Cookie(i)).Length, uint64(n))
			if i < 6 {
				assert.DeepEqual(t, b.get(i*20, 5), data[:5])
				assert.DeepEqual(t, b.get(i*20+10, 5), data[5:])
			} else {
				assert.DeepEqual(t, b.get(200+i-6, 1), data[:1])
			}
		}
		empty(t, b.recv)
	})
}

// TestEPModifyZone changes the zone while receives are posted.
func TestEPModifyZone(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		pz, err := b.ia.CreatePZ()
		assert.NilError(t, err)
		both, err := b.ia.CreateLMRFromLMR(pz, b.mem, udat.PrivAll)
		assert.NilError(t, err)
		assert.NilError(t, b.ep.PostRecv(nil, 1, 0)) // names no region
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 10), 2, 0))
		assert.NilError(t, b.ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: pz}))
		assert.Equal(t, param(t, b.ep).PZ, pz)
		assert.NilError(t, b.ep.PostRecv([]udat.LMRTriplet{both.Triplet(20, 10)}, 3, 0))
		assert.ErrorIs(t, b.ep.PostRecv(b.iov(0, 10), 4, 0), udat.ErrProtectionViolation)
		connect(t, a, b)
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))
		completion(t, b.recv, 1)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 10), 2, 0))
		failed(t, b.recv, 2, udat.DTOErrLocalProtection)
		flushed(t, b.recv, 3)
		broken(t, a, b)
		rule.Proves(t, "EP-MODIFY-03")
	})
}

// TestEPModifyNoZone gives an endpoint its zone later.
func TestEPModifyNoZone(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		ep, err := b.ia.CreateEP(nil, nil, nil, b.conn, nil)
		assert.NilError(t, err)
		refused(t, ep.Connect(a.ia.Addr(), 4711, patience, nil, 0, 0), udat.InvalidState, udat.SubStateEPNotReady)
		assert.NilError(t, ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: b.pz}))
		assert.NilError(t, ep.Modify(udat.EPFieldPZ, udat.EPParam{}))
		assert.NilError(t, ep.PostRecv(nil, 1, 0))
		posted, err := ep.PostRecvBatch([]udat.Recv{{Cookie: 2}, {Cookie: 3, IOV: []udat.LMRTriplet{{}}}, {IOV: b.iov(0, 1)}})
		assert.ErrorIs(t, err, udat.ErrProtectionViolation)
		assert.Equal(t, posted, 2)
		allocated, _, err := ep.RecvQuery()
		assert.NilError(t, err)
		assert.Equal(t, allocated, 3)
		assert.NilError(t, ep.Modify(udat.EPFieldRecvEVD, udat.EPParam{RecvEVD: b.recv})) // still without a zone
		assert.NilError(t, ep.PostRecv(nil, 4, 0))
		assert.NilError(t, ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: b.pz}))
		assert.NilError(t, b.ep.Free())
		b.ep = ep
		assert.NilError(t, ep.PostRecv(b.iov(0, 10), 5, 0))
		connect(t, a, b)
		for i := range udat.Cookie(4) {
			assert.NilError(t, a.ep.PostSend(nil, i, 0))
			completion(t, b.recv, 1+i)
		}
		assert.NilError(t, a.ep.PostSend(a.iov(0, 10), 4, 0))
		completion(t, b.recv, 5)
		empty(t, b.recv)
		rule.Proves(t, "EPST-50", "EP-RECV-04", "EP-RECV-14")
	})
}

// TestEPModifyEachIOV changes each limit of segments separately: each limit applies only to its own
// operation.
func TestEPModifyEachIOV(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const most = 4
		posts := []func(a, b *end, iov []udat.LMRTriplet) error{
			func(a, _ *end, iov []udat.LMRTriplet) error { return a.ep.PostSend(iov, 0, 0) },
			func(a, b *end, iov []udat.LMRTriplet) error {
				return a.ep.PostRDMAWrite(iov, 1, b.mem.RMRTriplet(0, 8*most), 0)
			},
			func(a, b *end, iov []udat.LMRTriplet) error {
				return a.ep.PostRDMARead(iov, 2, b.mem.RMRTriplet(0, length(iov)), 0)
			},
			func(a, _ *end, iov []udat.LMRTriplet) error { return a.ep.PostRecv(iov, 3, 0) },
		}
		for i, c := range []struct {
			field udat.EPField
			attr  udat.EPAttr
		}{
			{udat.EPFieldMaxRequestIOV, udat.EPAttr{MaxRequestIOV: most}},
			{udat.EPFieldMaxRDMAWriteIOV, udat.EPAttr{MaxRDMAWriteIOV: most}},
			{udat.EPFieldMaxRDMAReadIOV, udat.EPAttr{MaxRDMAReadIOV: most}},
			{udat.EPFieldMaxRecvIOV, udat.EPAttr{MaxRecvIOV: most}},
		} {
			one := udat.EPAttr{MaxRequestIOV: 1, MaxRDMAWriteIOV: 1, MaxRDMAReadIOV: 1, MaxRecvIOV: 1, MaxRDMAReadIn: 4}
			a, b := newEnd(t, dev, setup{attr: &one}), newEnd(t, dev, setup{})
			if i == 2 && udat.DeviceAttr(a.ia).MaxReadSGE < most {
				continue
			}
			assert.NilError(t, a.ep.Modify(c.field, udat.EPParam{Attr: c.attr}))
			assert.NilError(t, b.ep.PostRecv(b.iov(1024, 64), 9, 0))
			connect(t, a, b)
			var iov []udat.LMRTriplet
			for k := range most {
				iov = append(iov, a.iov(16*k, 8)...)
			}
			for kind, post := range posts {
				if kind != i {
					refused(t, post(a, b, iov[:2]), udat.InvalidParameter)
				}
			}
			refused(t, posts[i](a, b, append(iov, iov[0])), udat.InvalidParameter)
			assert.NilError(t, posts[i](a, b, iov))
			evd := a.request
			if i == 3 {
				evd = a.recv
				assert.NilError(t, b.ep.PostSend(b.iov(0, 8*most), 1, 0))
			}
			completion(t, evd, udat.Cookie(i))
		}
		rule.Proves(t, "EP-MODIFY-04", "POST-12")
	})
}

// TestEPModifyStates tries each group of fields in each state.
func TestEPModifyStates(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		always := udat.EPFieldRecvEVD | udat.EPFieldRequestEVD | udat.EPFieldConnectEVD | udat.EPFieldServiceType |
			udat.EPFieldMaxMessageSize |
			udat.EPFieldMaxRDMASize | udat.EPFieldQoS | udat.EPFieldRecvCompletionFlags | udat.EPFieldRequestCompletionFlags |
			udat.EPFieldMaxRecvDTOs |
			udat.EPFieldMaxRequestDTOs | udat.EPFieldMaxRecvIOV | udat.EPFieldMaxRequestIOV | udat.EPFieldMaxRDMAReadIn |
			udat.EPFieldMaxRDMAReadOut |
			udat.EPFieldMaxRDMAReadIOV | udat.EPFieldMaxRDMAWriteIOV
		specific := udat.EPFieldNumTransportSpecific | udat.EPFieldTransportSpecific | udat.EPFieldNumProviderSpecific |
			udat.EPFieldProviderSpecific
		fixed := udat.EPFieldIA | udat.EPFieldState | udat.EPFieldLocalAddr | udat.EPFieldLocalPortQual |
			udat.EPFieldRemoteAddr |
			udat.EPFieldRemotePortQual | udat.EPFieldSRQ | udat.EPFieldSRQSoftHW
		assert.Equal(t, always|specific|fixed|udat.EPFieldPZ, udat.EPFieldAll)
		for _, s := range canBe(t, dev) {
			e, _ := inState(t, dev, s, setup{})
			p := param(t, e.ep)
			before := s == udat.EPUnconnected || s == udat.EPReserved || s == udat.EPPassiveConnectionPending ||
				s == udat.EPTentativeConnection
			for bit := range 32 {
				f := udat.EPField(1) << bit
				var want error
				switch {
				case f&udat.EPFieldAll == 0 || f&fixed != 0:
					want = udat.ErrInvalidParameter
				case f&udat.EPFieldPZ != 0 && s != udat.EPUnconnected && s != udat.EPTentativeConnection,
					f&specific != 0 && s != udat.EPUnconnected,
					f&always != 0 && !before:
					want = udat.ErrInvalidState
				}
				err := e.ep.Modify(f, p)
				if want == nil {
					assert.NilError(t, err, "%v 0x%x", s, uint32(f))
				} else {
					assert.ErrorIs(t, err, want, "%v 0x%x", s, uint32(f))
				}
			}
			assert.Equal(t, param(t, e.ep).State, s)
		}
		rule.Proves(t, "EP-MODIFY-01", "EP-MODIFY-02", "EP-MODIFY-06", "EPST-02")
	})
}

// TestEPModifyBefore changes each field separately in each state before the connection, and then
// uses the endpoint.
func TestEPModifyBefore(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, s := range []udat.EPState{udat.EPUnconnected, udat.EPReserved, udat.EPPassiveConnectionPending,
			udat.EPTentativeConnection} {
			e, peer := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
			qual, own := udat.ConnQual(0), e.ep
			switch s {
			case udat.EPUnconnected:
				qual = listen(t, e).Qual()
			case udat.EPTentativeConnection:
				_, psp, err := e.ia.CreatePSPAny(e.cr, udat.PSPProvider)
				assert.NilError(t, err)
				qual = psp.Qual()
			default:
				qual, _ = listenReserved(t, e, e.ep)
			}
			var cr *udat.CR
			ask := func() {
				peer.call(e, qual, "")
				cr = expect(t, e.cr, udat.EventConnectionRequest).CR
			}
			if s == udat.EPPassiveConnectionPending || s == udat.EPTentativeConnection {
				ask()
			}
			if s == udat.EPTentativeConnection {
				p, err := cr.Query()
				assert.NilError(t, err)
				e.ep = p.LocalEP
				assert.NilError(t, e.ep.Modify(udat.EPFieldPZ, udat.EPParam{PZ: e.pz}))
			}
			mask, want := e.everyField()
			for bit := range 32 {
				if f := udat.EPField(1) << bit; f&mask != 0 && f != udat.EPFieldPZ && f&udat.EPFieldNumTransportSpecific == 0 {
					assert.NilError(t, e.ep.Modify(f, want), "%v 0x%x", s, uint32(f))
				}
			}
			got := param(t, e.ep)
			assert.Equal(t, got.State, s)
			assert.Assert(t, got.RecvEVD == want.RecvEVD && got.RequestEVD == want.RequestEVD &&
				got.ConnectEVD == want.ConnectEVD, "%v", s)
			assert.DeepEqual(t, got.Attr, want.Attr)
			for i := range 9 {
				assert.NilError(t, e.ep.PostRecv(e.iov(0, 8), udat.Cookie(i), udat.CompletionUnsignalled), "%v", s)
			}
			refused(t, e.ep.PostRecv(e.iov(0, 8), 9, 0), udat.InsufficientResources)
			if cr == nil {
				ask()
			}
			if s == udat.EPUnconnected {
				assert.NilError(t, cr.Accept(own, nil))
			} else {
				assert.NilError(t, cr.Accept(nil, nil))
			}
			expect(t, want.ConnectEVD, udat.EventConnectionEstablished)
			expect(t, peer.conn, udat.EventConnectionEstablished)
			assert.NilError(t, peer.ep.PostRecv(nil, 3, 0))
			assert.NilError(t, peer.ep.PostSend(peer.iov(0, 8), 1, 0))
			completionNow(t, want.RecvEVD, 0)
			assert.NilError(t, e.ep.PostSend(nil, 2, udat.CompletionUnsignalled))
			completion(t, peer.recv, 3)
			completionNow(t, want.RequestEVD, 2)
			refused(t, e.ep.PostSend(e.iov(0, 1001), 2, 0), udat.InvalidParameter)
			for _, evd := range []*udat.EVD{e.recv, e.request, e.conn} {
				empty(t, evd)
			}
		}
		rule.Proves(t, "EP-MODIFY-04")
	})
}

// TestEPModifyErrors shows that a Modify that returns an error changes nothing.
func TestEPModifyErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, e := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		assert.NilError(t, e.ep.PostRecv(e.iov(0, 10), 1, 0))
		_, err := e.ia.CreateEP(e.pz, e.recv, nil, nil, nil) // another stream on the dispatcher
		assert.NilError(t, err)
		attr := udat.DeviceAttr(e.ia)
		before := param(t, e.ep)
		freed := e.evd(1, udat.EVDDTO)
		assert.NilError(t, freed.Free())
		pz, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		assert.NilError(t, pz.Free())
		merged := e.evd(8, udat.EVDDTO|udat.EVDConnection)
		good := udat.EPFieldMaxRDMASize
		for _, c := range []struct {
			mask udat.EPField
			p    udat.EPParam
			want error
		}{
			{udat.EPFieldServiceType, udat.EPParam{Attr: udat.EPAttr{ServiceType: 1}}, udat.ErrInvalidParameter},
			{udat.EPFieldQoS, udat.EPParam{Attr: udat.EPAttr{QoS: udat.QoSPremium}}, udat.ErrModelNotSupported},
			{udat.EPFieldMaxRecvDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRecvDTOs: attr.MaxQPWR + 1}}, udat.ErrInvalidParameter},
			{udat.EPFieldMaxRecvDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRecvDTOs: -7}}, udat.ErrInvalidParameter},
			{udat.EPFieldMaxRequestDTOs, udat.EPParam{Attr: udat.EPAttr{MaxRequestDTOs: attr.MaxQPWR + 1}},
				udat.ErrInvalidParameter},
			{udat.EPFieldMaxRDMAReadIn, udat.EPParam{Attr: udat.EPAttr{MaxRDMAReadIn: attr.MaxReadIn + 1}},
				udat.ErrInvalidParameter},
			{udat.EPFieldMaxMessageSize, udat.EPParam{Attr: udat.EPAttr{MaxMessageSize: attr.MaxMessage + 1}},
				udat.ErrInvalidParameter},
			{udat.EPFieldRequestCompletionFlags,
				udat.EPParam{Attr: udat.EPAttr{RequestCompletionFlags: udat.CompletionSuppress}}, udat.ErrInvalidParameter},
			{udat.EPFieldProviderSpecific, udat.EPParam{Attr: udat.EPAttr{ProviderSpecific: []udat.NamedAttr{{}}}},
				udat.ErrInvalidParameter},
			{udat.EPFieldRecvEVD, udat.EPParam{RecvEVD: e.conn}, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDRecv)},
			{udat.EPFieldRequestEVD, udat.EPParam{RequestEVD: freed}, udat.ErrInvalidHandle},
			{udat.EPFieldConnectEVD, udat.EPParam{ConnectEVD: e.recv},
				udat.WithSubtype(udat.InvalidHandle, udat.SubHandleEVDConn)},
			{udat.EPFieldPZ, udat.EPParam{PZ: pz}, udat.WithSubtype(udat.InvalidHandle, udat.SubHandlePZ)},
			// Flags that are not allowed with the other streams of a dispatcher.
			{udat.EPFieldRequestEVD | udat.EPFieldRequestCompletionFlags,
				udat.EPParam{RequestEVD: e.recv, Attr: udat.EPAttr{RequestCompletionFlags: udat.CompletionEVDThreshold}},
				udat.ErrInvalidParameter},
			{udat.EPFieldRequestEVD | udat.EPFieldRequestCompletionFlags,
				udat.EPParam{RequestEVD: merged, Attr: udat.EPAttr{RequestCompletionFlags: udat.CompletionUnsignalled}},
				udat.ErrInvalidParameter},
			{1 << 11, udat.EPParam{}, udat.ErrInvalidParameter},
			{1 << 31, udat.EPParam{}, udat.ErrInvalidParameter},
		} {
			p := c.p
			p.Attr.MaxRDMASize = 77 // valid by itself
			err := e.ep.Modify(c.mask|good, p)
			assert.ErrorIs(t, err, c.want, "0x%x", uint32(c.mask))
			assert.DeepEqual(t, param(t, e.ep).Attr, before.Attr)
			after := param(t, e.ep)
			assert.Assert(t, after.PZ == before.PZ && after.RecvEVD == before.RecvEVD &&
				after.RequestEVD == before.RequestEVD && after.ConnectEVD == before.ConnectEVD)
		}
		other, err := e.ia.CreatePZ()
		assert.NilError(t, err)
		err = e.ep.Modify(udat.EPFieldPZ|udat.EPFieldRecvCompletionFlags,
			udat.EPParam{PZ: other, Attr: udat.EPAttr{RecvCompletionFlags: udat.CompletionUnsignalled}})
		assert.ErrorIs(t, err, udat.ErrInvalidState) // a receive is posted
		assert.Equal(t, other.Posting(), 0)
		rule.Proves(t, "EP-MODIFY-07", "EP-MODIFY-08")
		assert.NilError(t, merged.Free()) // no reference is left
		assert.NilError(t, other.Free())
		connect(t, a, e)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 10), 1, 0))
		completion(t, e.recv, 1)
		rule.Proves(t, "EP-MODIFY-09")
	})
}

// TestEPModifyMem makes the device fail in the middle of a change.
func TestEPModifyMem(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, e := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		assert.NilError(t, e.ep.PostRecv(e.iov(0, 10), 1, 0))
		e.faults().Exhaust(softnic.QPs, 1)
		mask, p := e.everyField()
		mask &^= udat.EPFieldRecvCompletionFlags
		p.Attr.RecvCompletionFlags = 0
		before := param(t, e.ep)
		refused(t, e.ep.Modify(mask, p), udat.InsufficientResources, udat.SubResourceTEP)
		assert.DeepEqual(t, param(t, e.ep).Attr, before.Attr)
		assert.NilError(t, p.RecvEVD.Free())
		assert.NilError(t, p.RequestEVD.Free())
		e.faults().Exhaust(softnic.QPs, 1)
		refused(t, e.ep.Modify(udat.EPFieldRequestCompletionFlags,
			udat.EPParam{Attr: udat.EPAttr{RequestCompletionFlags: udat.CompletionUnsignalled}}), udat.InsufficientResources)
		e.another(nil) // the old flags still hold on the dispatchers
		connect(t, a, e)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 10), 1, 0))
		completion(t, e.recv, 1)
		assert.NilError(t, e.ep.PostSend(nil, 2, 0))
		assert.NilError(t, a.ep.PostRecv(nil, 3, 0))
		completion(t, e.request, 2)
	})
}

// TestEPModifyRace changes an endpoint while others post, query and free it. They are always busy:
// in a bubble no time would pass.
func TestEPModifyRace(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		evds := []*udat.EVD{e.recv, e.evd(64, udat.EVDDTO), nil}
		stop := make(chan struct{})
		done := make(chan struct{})
		works := []func(i int){
			func(i int) {
				e.ep.Modify(udat.EPFieldRecvEVD|udat.EPFieldRequestEVD, udat.EPParam{RecvEVD: evds[i%3], RequestEVD: evds[i/3%3]})
			},
			func(i int) { e.ep.PostRecv(e.iov(0, 1), 1, 0) },
			func(i int) { e.ep.GetStatus(); e.ep.RecvQuery(); e.ep.Query() },
			func(i int) { e.ep.PostSend(nil, 1, 0); e.ep.SetWatermark(i%5, -1) },
			func(i int) { e.ep.Connect(e.ia.Addr(), 1, patience, nil, 0, 0); e.ep.Disconnect(0); e.ep.Reset() },
		}
		for _, w := range works {
			go func() {
				defer func() { done <- struct{}{} }()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						w(i)
					}
				}
			}()
		}
		for range 30 {
			e.recv.Wait(quiet/30, 1)
		}
		assert.NilError(t, e.ep.Free())
		close(stop)
		for range works {
			<-done
		}
		for _, evd := range []*udat.EVD{e.recv, evds[1], e.request} {
			assert.NilError(t, evd.Free(), "no stream is left on it")
		}
	})
}

// TestDupConnect connects endpoints to the address to which another endpoint is connected.
func TestDupConnect(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		psp := listen(t, b)
		a.call(b, psp.Qual(), "")
		assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(b.ep, nil))
		expect(t, a.conn, udat.EventConnectionEstablished)
		expect(t, b.conn, udat.EventConnectionEstablished)
		dup := a.another(nil)
		up, down := a.put(0, udat.DeviceAttr(a.ia).MaxConnData, 3), b.put(0, udat.DeviceAttr(b.ia).MaxConnData, 7)
		assert.NilError(t, dup.DupConnect(a.ep, patience, up, udat.QoSBestEffort))
		assert.Equal(t, state(t, dup), udat.EPActiveConnectionPending)
		ev := expect(t, b.cr, udat.EventConnectionRequest)
		assert.Equal(t, ev.ConnQual(), psp.Qual())
		p, err := ev.CR.Query()
		assert.NilError(t, err)
		sameBytes(t, p.PrivateData, up)
		assert.NilError(t, ev.CR.Accept(b.another(nil), down))
		got := expect(t, a.conn, udat.EventConnectionEstablished)
		assert.Equal(t, got.EP, dup)
		sameBytes(t, got.PrivateData(), down)
		expect(t, b.conn, udat.EventConnectionEstablished)
		assert.Equal(t, param(t, dup).RemotePortQual, param(t, a.ep).RemotePortQual)
		assert.Equal(t, param(t, dup).RemoteAddr, param(t, a.ep).RemoteAddr)
		rule.Proves(t, "EP-DUPCONN-01", "EVD-WAIT-27")

		fresh := a.another(nil)
		for _, c := range []struct {
			name    string
			ep, dup *udat.EP
			timeout int
			qos     udat.QoS
			private int
			want    error
		}{
			{"unconnected", fresh, a.another(nil), 1, 0, 0, udat.WithSubtype(udat.InvalidState, udat.SubStateEPUnconnected)},
			{"itself", fresh, fresh, 1, 0, 0, udat.ErrInvalidState},
			{"connected already", dup, a.ep, 1, 0, 0, udat.WithSubtype(udat.InvalidState, udat.SubStateEPConnected)},
			{"nil", fresh, nil, 1, 0, 0, udat.ErrInvalidHandle},
			{"another adapter's", fresh, b.ep, 1, 0, 0, udat.ErrInvalidHandle},
			{"timeout", fresh, a.ep, 0, 0, 0, udat.ErrInvalidParameter},
			{"quality", fresh, a.ep, 1, udat.QoSLowLatency, 0, udat.ErrModelNotSupported},
			{"private data", fresh, a.ep, 1, 0, udat.DeviceAttr(a.ia).MaxConnData + 1, udat.ErrInvalidParameter},
		} {
			err := c.ep.DupConnect(c.dup, patience*time.Duration(c.timeout), make([]byte, c.private), c.qos)
			assert.ErrorIs(t, err, c.want, c.name)
		}
		assert.Equal(t, state(t, fresh), udat.EPUnconnected)
		rule.Proves(t, "EP-DUPCONN-03", "GEN-06")
		assert.NilError(t, fresh.DupConnect(a.ep, patience, nil, udat.QoSBestEffort))
		assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Reject(nil))
		expect(t, a.conn, udat.EventConnectionPeerRejected)
		assert.NilError(t, fresh.Reset())
		begun := time.Now()
		assert.NilError(t, fresh.DupConnect(a.ep, 300*time.Millisecond, nil, udat.QoSBestEffort))
		expect(t, b.cr, udat.EventConnectionRequest) // which nobody answers
		expect(t, a.conn, udat.EventConnectionTimedOut)
		took := time.Since(begun)
		assert.Assert(t, took >= 300*time.Millisecond && took < patience/2, "%v", took)
		assert.Equal(t, state(t, fresh), udat.EPDisconnected)
		assert.NilError(t, fresh.Reset())
		assert.NilError(t, psp.Free())
		assert.NilError(t, fresh.DupConnect(a.ep, patience, nil, udat.QoSBestEffort))
		expect(t, a.conn, udat.EventConnectionNonPeerRejected)
		assert.Equal(t, state(t, fresh), udat.EPDisconnected)
		rule.Proves(t, "EP-DUPCONN-02")
	})
}
