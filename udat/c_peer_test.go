package udat_test

import (
	"bytes"
	"math/bits"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// cPeer is a peer that behaves like a C program: it uses verbs and the connection manager, but none
// of this library's conventions.
type cPeer struct {
	t   *testing.T
	ch  *cverbs.EventChannel
	id  *cverbs.CMID
	cq  *cverbs.CQ
	qp  *cverbs.QP
	mr  *cverbs.MR
	buf []byte
}

func closing[T interface{ Close() error }](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		assert.NilError(t, err)
		t.Cleanup(func() { v.Close() })
		return v
	}
}

// newCPeer makes such a peer on the end's device. It skips the test if the device is neither
// InfiniBand nor RoCE.
func newCPeer(t *testing.T, e *end) *cPeer {
	t.Helper()
	attr := e.ia.Device().Attr()
	if attr.Info.Fabric != "verbs" || attr.Transport == "iWARP" {
		t.Skip("C programs are met on InfiniBand and RoCE")
	}
	p := &cPeer{t: t, buf: make([]byte, 4096)}
	ctx := closing[*cverbs.Context](t)(cverbs.OpenDevice(attr.Info.Name))
	pd := closing[*cverbs.PD](t)(ctx.AllocPD())
	p.mr = closing[*cverbs.MR](t)(pd.RegMR(p.buf, cverbs.AccessLocalWrite|cverbs.AccessRemoteWrite))
	p.cq = closing[*cverbs.CQ](t)(ctx.CreateCQ(16, nil, 0))
	p.qp = closing[*cverbs.QP](t)(pd.CreateQP(cverbs.QPInit{
		Type: cverbs.QPTypeRC, SendCQ: p.cq, RecvCQ: p.cq, Cap: cverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1,
			MaxRecvSGE: 1},
	}))
	assert.NilError(t, p.qp.ToInit(1, cverbs.AccessRemoteWrite))
	p.ch = closing[*cverbs.EventChannel](t)(cverbs.CreateEventChannel())
	p.id = closing[*cverbs.CMID](t)(p.ch.CreateID(cverbs.PortSpaceTCP))
	return p
}

func (p *cPeer) event(want cverbs.CMEventType) cverbs.CMEvent {
	p.t.Helper()
	ev, err := p.ch.Get(time.Now().Add(patience))
	assert.NilError(p.t, err)
	assert.Equal(p.t, ev.Type, want)
	return ev
}

func (p *cPeer) drive(id *cverbs.CMID) {
	p.t.Helper()
	for _, s := range []cverbs.QPState{cverbs.QPStateRTR, cverbs.QPStateRTS} {
		attr, mask, err := id.InitQPAttr(s)
		assert.NilError(p.t, err)
		assert.NilError(p.t, p.qp.Modify(attr, mask))
	}
}

// listens returns the qualifier on which the peer listens.
func (p *cPeer) listens(addr netip.Addr) udat.ConnQual {
	p.t.Helper()
	assert.NilError(p.t, p.id.BindAddr(netip.AddrPortFrom(addr, 0)))
	assert.NilError(p.t, p.id.Listen(4))
	return udat.ConnQual(p.id.LocalAddr().Port())
}

// request returns the connection request that has come to the peer.
func (p *cPeer) request() cverbs.CMEvent {
	p.t.Helper()
	ev := p.event(cverbs.CMEventConnectRequest)
	p.t.Cleanup(func() { ev.ID.Close() })
	return ev
}

// calls sends a connection request to a service point.
func (p *cPeer) calls(addr netip.Addr, qual udat.ConnQual, private []byte) {
	p.t.Helper()
	assert.NilError(p.t, p.id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(addr, uint16(qual)), patience))
	p.event(cverbs.CMEventAddrResolved)
	assert.NilError(p.t, p.id.ResolveRoute(patience))
	p.event(cverbs.CMEventRouteResolved)
	assert.NilError(p.t, p.id.Connect(cverbs.ConnParam{PrivateData: private, QPNum: p.qp.Num(), RetryCount: 7,
		RNRRetryCount: 7}))
}

func (p *cPeer) sge(n int) []cverbs.SGE {
	return []cverbs.SGE{{Addr: uint64(uintptr(unsafe.Pointer(&p.buf[0]))), Length: uint32(n), LKey: p.mr.LKey()}}
}

func (p *cPeer) recv() {
	p.t.Helper()
	_, err := p.qp.PostRecv([]cverbs.RecvWR{{NumSGE: 1}}, p.sge(len(p.buf)))
	assert.NilError(p.t, err)
}

func (p *cPeer) send(wr cverbs.SendWR) {
	p.t.Helper()
	wr.NumSGE, wr.Flags = 1, cverbs.SendSignaled
	_, err := p.qp.PostSend([]cverbs.SendWR{wr}, p.sge(8))
	assert.NilError(p.t, err)
	p.completion()
}

func (p *cPeer) completion() cverbs.WC {
	p.t.Helper()
	var wc [1]cverbs.WC
	eventually(p.t, func() bool { n, err := p.cq.Poll(wc[:]); assert.NilError(p.t, err); return n > 0 },
		"a completion at the C peer")
	assert.Equal(p.t, wc[0].Status, cverbs.WCSuccess)
	return wc[0]
}

// inMemory returns the imm_data of a C program that does not swap bytes, if cverbs has v.
func inMemory(v uint32) uint32 {
	if one := uint16(1); *(*byte)(unsafe.Pointer(&one)) == 1 {
		return bits.ReverseBytes32(v)
	}
	return v
}

// TestCPeerImmediate: a C program on OpenFabrics DAPL, which sends immediate data as it is in
// memory, gets the integer that was posted here, and the reverse.
func TestCPeerImmediate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		p := newCPeer(t, e)
		assert.NilError(t, e.ep.Connect(e.ia.Addr(), p.listens(e.ia.Addr()), patience, nil, 0, 0))
		id := p.request().ID
		p.drive(id)
		p.recv()
		assert.NilError(t, id.Accept(cverbs.ConnParam{QPNum: p.qp.Num(), RNRRetryCount: 7}))
		p.event(cverbs.CMEventEstablished)
		expect(t, e.conn, udat.EventConnectionEstablished)
		for i, imm := range []uint32{0x1111, 0x01020304, 0xfffefdfc} {
			assert.NilError(t, e.ep.PostSendImmediate(e.iov(0, 8), 1, imm, 0))
			completion(t, e.request, 1)
			assert.Equal(t, inMemory(p.completion().Imm), imm)
			p.recv()
			remote := udat.RMRTriplet{RMRContext: p.mr.RKey(), TargetAddress: p.mr.Addr(), SegmentLength: 8}
			assert.NilError(t, e.ep.PostRDMAWriteImmediate(e.iov(0, 8), 2, remote, imm, 0))
			completion(t, e.request, 2)
			assert.Equal(t, inMemory(p.completion().Imm), imm)
			p.recv()

			assert.NilError(t, e.ep.PostRecv(e.iov(64, 64), udat.Cookie(i), 0))
			p.send(cverbs.SendWR{Opcode: cverbs.OpSendWithImm, Imm: inMemory(imm)})
			assert.Equal(t, completion(t, e.recv, udat.Cookie(i)).Immediate, imm)
			to := e.mem.RMRTriplet(0, 8)
			assert.NilError(t, e.ep.PostRecv(e.iov(64, 64), udat.Cookie(i), 0))
			p.send(cverbs.SendWR{Opcode: cverbs.OpRDMAWriteWithImm, Imm: inMemory(imm), RemoteAddr: to.TargetAddress,
				RKey: to.RMRContext})
			assert.Equal(t, completion(t, e.recv, udat.Cookie(i)).Immediate, imm)
		}
		assert.NilError(t, id.Disconnect())
		rule.Proves(t, "EXT-03", "EXT-04")
	})
}

// TestCPeerConnects: private data of a C program is reported with its padding, and marked as
// padded. The C program gets the Consumer's data followed by zeroes.
func TestCPeerConnects(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		psp := listen(t, e)
		for _, answer := range []string{"accept", "reject"} {
			p := newCPeer(t, e)
			p.calls(e.ia.Addr(), psp.Qual(), []byte("hello"))
			cr := expect(t, e.cr, udat.EventConnectionRequest).CR
			q, err := cr.Query()
			assert.NilError(t, err)
			assert.DeepEqual(t, q.PrivateData, append([]byte("hello"), make([]byte, 51)...))
			assert.Assert(t, q.PrivateDataPadded && q.PrivateDataSize == 56)
			if answer == "reject" {
				assert.NilError(t, cr.Reject([]byte("busy")))
				assert.DeepEqual(t, p.event(cverbs.CMEventRejected).PrivateData,
					append([]byte("\x02\x00\x02\x00busy"), make([]byte, 140)...))
				continue
			}
			assert.NilError(t, cr.Accept(e.ep, []byte("welcome")))
			assert.DeepEqual(t, p.event(cverbs.CMEventConnectResponse).PrivateData,
				append([]byte("welcome"), make([]byte, 189)...))
			assert.NilError(t, e.ep.Disconnect(udat.CloseAbrupt))
			next(t, e.conn)
		}
		rule.Proves(t, "CR-QUERY-01", "GAP-42", "GAP-43")
	})
}

// TestCPeerAnswers tests the answers of a C program, which have neither a marker nor a length.
func TestCPeerAnswers(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, c := range []struct {
			name, data string
			accept     bool
			want       udat.EventNumber
			got        []byte
			padded     bool
		}{
			{"accept", "hi", true, udat.EventConnectionEstablished, append([]byte("hi"), make([]byte, 194)...), true},
			{"reject of a DAT Consumer", "\x02\x00\x02\x00no", false, udat.EventConnectionPeerRejected,
				append([]byte("no"), make([]byte, 142)...), true},
			{"plain reject with data", "go away", false, udat.EventConnectionNonPeerRejected,
				append([]byte("go away"), make([]byte, 141)...), true},
			{"plain reject", "", false, udat.EventConnectionNonPeerRejected, nil, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				e := newEnd(t, dev, setup{})
				p := newCPeer(t, e)
				out := bytes.Repeat([]byte{0xDA, 0x7A, 0xC3, 5}, 13)
				assert.NilError(t, e.ep.Connect(e.ia.Addr(), p.listens(e.ia.Addr()), patience, out, 0, 0))
				req := p.request()
				assert.DeepEqual(t, req.PrivateData, append(out, 0, 0, 0, 0))
				if c.accept {
					p.drive(req.ID)
					assert.NilError(t, req.ID.Accept(cverbs.ConnParam{QPNum: p.qp.Num(), PrivateData: []byte(c.data)}))
				} else {
					assert.NilError(t, req.ID.Reject([]byte(c.data)))
				}
				ev := expect(t, e.conn, c.want)
				assert.DeepEqual(t, ev.PrivateData(), c.got)
				assert.Equal(t, ev.PrivateDataPadded(), c.padded)
			})
		}
		rule.Proves(t, "GAP-45", "GAP-42", "EPST-13", "EPST-14")
	})
}
