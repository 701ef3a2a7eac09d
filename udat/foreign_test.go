package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestForeignObjects passes an object of another adapter on the same device to each call of an
// adapter, one argument at a time. Each call is refused and leaves no reference, and the objects
// still belong to their own adapters.
func TestForeignObjects(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		cr := ask(t, newEnd(t, dev, setup{}), a, nil)
		cno := newCNO(t, b.ia, nil)
		peer := newEnd(t, dev, setup{})
		connect(t, b, peer)
		shared := udat.DeviceAttr(a.ia).MaxSRQ > 0
		windows := udat.DeviceAttr(a.ia).MaxMW > 0
		endpoint := func(pz *udat.PZ, recv, request, conn *udat.EVD) func() error {
			return func() error { _, err := a.ia.CreateEP(pz, recv, request, conn, nil); return err }
		}
		modify := func(mask udat.EPField, p udat.EPParam) func() error {
			return func() error { return a.ep.Modify(mask, p) }
		}
		type call struct {
			name string
			sub  udat.Subtype
			do   func() error
		}
		last := []interface{ Free() error }{cno}
		calls := []call{
			{"ep_create, zone", udat.SubHandlePZ, endpoint(b.pz, a.recv, a.request, a.conn)},
			{"ep_create, receives", udat.SubHandleEVDRecv, endpoint(a.pz, b.recv, a.request, a.conn)},
			{"ep_create, requests", udat.SubHandleEVDRequest, endpoint(a.pz, a.recv, b.request, a.conn)},
			{"ep_create, connections", udat.SubHandleEVDConn, endpoint(a.pz, a.recv, a.request, b.conn)},
			{"ep_modify, zone", udat.SubHandlePZ, modify(udat.EPFieldPZ, udat.EPParam{PZ: b.pz})},
			{"ep_modify, receives", udat.SubHandleEVDRecv, modify(udat.EPFieldRecvEVD, udat.EPParam{RecvEVD: b.recv})},
			{"ep_modify, requests", udat.SubHandleEVDRequest,
				modify(udat.EPFieldRequestEVD, udat.EPParam{RequestEVD: b.request})},
			{"ep_modify, connections", udat.SubHandleEVDConn,
				modify(udat.EPFieldConnectEVD, udat.EPParam{ConnectEVD: b.conn})},
			{"ep_dup_connect", udat.SubHandleEP, func() error { return a.ep.DupConnect(b.ep, patience, nil, 0) }},
			{"cr_accept", udat.SubHandleEP, func() error { return cr.Accept(b.ep, nil) }},
			{"psp_create", udat.SubHandleEVDCR,
				func() error { _, err := a.ia.CreatePSP(4711, b.cr, udat.PSPConsumer); return err }},
			{"psp_create_any", udat.SubHandleEVDCR,
				func() error { _, _, err := a.ia.CreatePSPAny(b.cr, udat.PSPProvider); return err }},
			{"rsp_create, endpoint", udat.SubHandleEP,
				func() error { _, err := a.ia.CreateRSP(4711, peer.another(nil), a.cr); return err }},
			{"rsp_create, dispatcher", udat.SubHandleEVDCR,
				func() error { _, err := a.ia.CreateRSP(4711, a.ep, b.cr); return err }},
			{"evd_create", udat.SubHandleCNO,
				func() error { _, err := a.ia.CreateEVD(4, udat.EVDSoftware, cno); return err }},
			{"evd_modify_cno", udat.SubHandleCNO, func() error { return a.recv.ModifyCNO(cno) }},
			{"lmr_create", udat.SubHandlePZ,
				func() error { _, err := a.ia.CreateLMR(b.pz, make([]byte, 8), udat.PrivAll); return err }},
			{"lmr_create, memory of its own", udat.SubHandlePZ,
				func() error { _, err := a.ia.AllocLMR(b.pz, 8, udat.PrivAll); return err }},
			{"lmr_create of a region, zone", udat.SubHandlePZ,
				func() error { _, err := a.ia.CreateLMRFromLMR(b.pz, a.mem, udat.PrivAll); return err }},
			{"lmr_create of a region, region", udat.SubHandleLMR,
				func() error { _, err := a.ia.CreateLMRFromLMR(a.pz, b.mem, udat.PrivAll); return err }},
		}
		if shared {
			ours, theirs := a.shared(t, udat.SRQAttr{MaxRecvDTOs: 4}), b.shared(t, udat.SRQAttr{MaxRecvDTOs: 4})
			last = append(last, theirs)
			endpoint := func(pz *udat.PZ, recv, request, conn *udat.EVD, s *udat.SRQ) func() error {
				return func() error { _, err := a.ia.CreateEPWithSRQ(pz, recv, request, conn, s, &udat.EPAttr{}); return err }
			}
			calls = append(calls,
				call{"srq_create", udat.SubHandlePZ,
					func() error { _, err := a.ia.CreateSRQ(b.pz, udat.SRQAttr{MaxRecvDTOs: 4}); return err }},
				call{"ep_create_with_srq, zone", udat.SubHandlePZ, endpoint(b.pz, a.recv, a.request, a.conn, ours)},
				call{"ep_create_with_srq, receives", udat.SubHandleEVDRecv,
					endpoint(a.pz, b.recv, a.request, a.conn, ours)},
				call{"ep_create_with_srq, requests", udat.SubHandleEVDRequest,
					endpoint(a.pz, a.recv, b.request, a.conn, ours)},
				call{"ep_create_with_srq, connections", udat.SubHandleEVDConn,
					endpoint(a.pz, a.recv, a.request, b.conn, ours)},
				call{"ep_create_with_srq, queue", udat.SubHandleSRQ,
					endpoint(a.pz, a.recv, a.request, a.conn, theirs)})
		}
		if windows {
			window := a.window(t)
			calls = append(calls, call{"rmr_bind", udat.SubHandleEP,
				func() error { _, err := window.Bind(a.mem.Triplet(0, 8), bothRights, b.ep, 1, 0); return err }})
		}
		for _, c := range calls {
			t.Logf("%s", c.name)
			refused(t, c.do(), udat.InvalidHandle, c.sub)
		}
		ownedBy := func(e *end) {
			t.Helper()
			p := param(t, e.ep)
			assert.Assert(t, p.IA == e.ia && p.PZ == e.pz && p.RecvEVD == e.recv && p.RequestEVD == e.request &&
				p.ConnectEVD == e.conn)
			for _, evd := range []*udat.EVD{e.recv, e.request, e.conn, e.cr} {
				q, err := evd.Query()
				assert.NilError(t, err)
				assert.Assert(t, q.IA == e.ia && q.CNO == nil)
			}
			zone, err := e.pz.Query()
			assert.NilError(t, err)
			assert.Equal(t, zone.IA, e.ia)
			region, err := e.mem.Query()
			assert.NilError(t, err)
			assert.Assert(t, region.IA == e.ia && region.PZ == e.pz)
		}
		ownedBy(a)
		ownedBy(b)
		assert.Equal(t, state(t, a.ep), udat.EPUnconnected)
		assert.NilError(t, cr.Accept(a.ep, nil), "the request is still there")
		expect(t, a.conn, udat.EventConnectionEstablished)
		rule.Proves(t, "GEN-08")
		// A refused call leaves no reference.
		part(t, b, peer, udat.CloseAbrupt)
		for _, o := range append(last, b.ep, b.mem, b.recv, b.request, b.conn, b.cr, b.pz) {
			assert.NilError(t, o.Free())
		}
		assert.NilError(t, b.ia.Close(udat.CloseGraceful))
	})
}
