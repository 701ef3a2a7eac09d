package tcpfabric

import (
	"io"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// sentFrame is a frame that the victim's end has sent.
type sentFrame struct {
	Head    iwarp.Header
	Payload []byte
}

// reads reads n frames.
func (p *peer) reads(n int) (all []sentFrame) {
	p.t.Helper()
	for range n {
		h, payload := p.read()
		all = append(all, sentFrame{h, payload})
	}
	return all
}

// sends posts requests at the victim's end, in one turn of the link, and calls then in that turn.
// Each request with a length gets the first bytes of the room.
func (s *session) sends(wrs []fabric.SendWR, lengths []uint32, then func()) {
	s.v.t.Helper()
	var sges []fabric.SGE
	for i := range wrs {
		wrs[i].ID, wrs[i].Flags = uint64(100+i), wrs[i].Flags|fabric.Signaled
		if lengths[i] > 0 {
			wrs[i].FirstSGE, wrs[i].NumSGE = uint32(len(sges)), 1
			sges = append(sges, fabric.SGE{Addr: s.v.at(0), Length: lengths[i], LKey: s.v.mr.LKey()})
		}
	}
	linkOf(s.qp.(*softnic.QP)).inTurn(func() {
		_, err := s.qp.PostSend(wrs, sges)
		assert.NilError(s.v.t, err)
		then()
	})
}

// statuses waits for the completions of n requests that sends has posted, and returns their
// statuses in the order of the posts.
func (s *session) statuses(n int) (all []fabric.Status) {
	s.v.t.Helper()
	for until := time.Now().Add(patience); len(all) < n; {
		var wcs [1]fabric.WC
		got, err := s.v.cq.Poll(wcs[:], 1)
		assert.NilError(s.v.t, err)
		if got > 0 && wcs[0].ID >= 100 {
			assert.Equal(s.v.t, wcs[0].ID, uint64(100+len(all)))
			all = append(all, wcs[0].Status)
		}
		assert.Assert(s.v.t, time.Now().Before(until), "%d of %d completions", len(all), n)
	}
	return all
}

// TestNothingAfterFailed: a request that fails at this end completes in its turn, after the
// requests before it. No request after it is sent meanwhile.
func TestNothingAfterFailed(t *testing.T) {
	v := newVictim(t)
	for name, c := range map[string]struct {
		wr     fabric.SendWR
		length uint32
		status fabric.Status
	}{
		"short payload":   {fabric.SendWR{Opcode: fabric.OpSend}, 8, fabric.StatusLocalProt},
		"long payload":    {fabric.SendWR{Opcode: fabric.OpSend}, copyLimit + 1, fabric.StatusLocalProt},
		"read":            {fabric.SendWR{Opcode: fabric.OpRead}, 1, fabric.StatusLocalProt},
		"no key":          {fabric.SendWR{Opcode: fabric.OpLocalInv, RKey: 1}, 0, fabric.StatusLocalQPOp},
		"a fault's share": {fabric.SendWR{Opcode: fabric.OpWrite}, 0, fabric.StatusGeneral},
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.t = t
			_, gone := w.region(copyLimit+1, fabric.LocalWrite)
			p, s := w.joined()
			wrs := []fabric.SendWR{{Opcode: fabric.OpRead}, c.wr, {Opcode: fabric.OpSend}, {Opcode: fabric.OpRead}}
			l := linkOf(s.qp.(*softnic.QP))
			if c.status == fabric.StatusGeneral {
				nicfault.Of(v.dev.(*Device)).FailOp(2, c.status)
			}
			s.sends(wrs, []uint32{0, c.length, 8, 8}, func() {
				if c.length > 0 {
					l.qp.Sends().Slot(l.qp.Sends().Head() + 1).SGEs[0].LKey = gone.LKey()
				}
				assert.NilError(t, gone.Close())
			})
			h, _ := p.read()
			p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}, []byte("some"))
			within(t, "the write does not come", func() bool { return l.heard.executed.Load() == 1 })
			l.inTurn(func() {}) // so that it would have sent
			p.answers(h, 0, nil, true)
			assert.DeepEqual(t, s.statuses(4),
				[]fabric.Status{fabric.StatusSuccess, c.status, fabric.StatusFlush, fabric.StatusFlush})
			assert.NilError(t, s.conn.Disconnect())
			err := p.rest(func(h iwarp.Header, _ []byte) { assert.Equal(t, h.Op, iwarp.OpControl) })
			assert.Equal(t, err, io.EOF) // not within a frame
			p.Close()
			s.expect(fabric.EventDisconnected)
		})
	}
}
