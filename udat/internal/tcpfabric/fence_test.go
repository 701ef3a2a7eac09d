package tcpfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// quiet checks that the victim's end sends nothing although it has worked: it has executed n
// requests of the peer.
func (p *peer) quiet(s *session, n uint64) {
	p.t.Helper()
	l := linkOf(s.qp.(*softnic.QP))
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: s.v.mr.RKey(), Offset: s.v.at(0)}, []byte("some"))
	within(p.t, "the write does not come", func() bool { return l.executed.Load() == n })
	before := uint64(0)
	l.inTurn(func() { before = l.tx.next })
	l.inTurn(func() { assert.Equal(p.t, l.tx.next, before) })
}

// TestFence: a fenced request waits for the answers to all reads and atomics before it. A request
// without a fence does not.
func TestFence(t *testing.T) {
	v := newVictim(t)
	for _, op := range []fabric.Opcode{fabric.OpSend, fabric.OpRead} {
		p, s := v.joined()
		wrs := []fabric.SendWR{{Opcode: fabric.OpRead}, {Opcode: fabric.OpRead}, {Opcode: fabric.OpSend},
			{Opcode: op, Flags: fabric.Fence}}
		s.sends(wrs, []uint32{0, 0, 8, 0}, func() {})
		frames := p.reads(3)
		assert.Equal(t, frames[2].Head.Op, iwarp.OpSend)
		p.answers(frames[0].Head, 0, nil, true)
		p.quiet(s, 1)
		p.write(control(2, iwarp.ControlAck, 3), nil)
		p.answers(frames[1].Head, 0, nil, true)
		last, _ := p.read()
		for last.Op == iwarp.OpControl { // an acknowledgement of the write
			last, _ = p.read()
		}
		if op == fabric.OpRead {
			assert.Equal(t, last.Op, iwarp.OpReadRequest)
			p.answers(last, 0, nil, true)
		} else {
			assert.Equal(t, last.Op, iwarp.OpSend)
			p.write(control(3, iwarp.ControlAck, 4), nil)
		}
		assert.DeepEqual(t, s.statuses(4), make([]fabric.Status, 4))
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
}

// TestReadsInFlight: no more reads and atomics are in flight than the depth that the peer accepts.
// Other requests need no depth. With depth 0 a read fails.
func TestReadsInFlight(t *testing.T) {
	v := newVictim(t)
	for _, depth := range []uint16{0, 1, 2} {
		p := v.dial()
		request := setup(extended)
		request.In = depth
		p.connect(request)
		s := v.session()
		h, _ := p.read()
		assert.Equal(t, h.Control, iwarp.ControlHello)
		p.write(hello, nil)
		s.expect(fabric.EventEstablished)
		read := fabric.SendWR{Opcode: fabric.OpRead}
		if depth == 0 {
			s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}, read}, []uint32{8, 8}, func() {})
			h, _ = p.read()
			assert.Equal(t, h.Op, iwarp.OpSend)
			p.write(control(2, iwarp.ControlAck, 1), nil)
			assert.DeepEqual(t, s.statuses(2), []fabric.Status{fabric.StatusSuccess, fabric.StatusLocalQPOp})
			p.Close()
			s.over()
			continue
		}
		s.sends([]fabric.SendWR{{Opcode: fabric.OpWrite}, read, read, read}, make([]uint32, 4), func() {})
		flying := p.reads(1 + int(depth))[1:]
		p.quiet(s, 1)
		for n := range 3 {
			assert.Equal(t, flying[0].Head.Op, iwarp.OpReadRequest)
			p.answers(flying[0].Head, 0, nil, true)
			flying = flying[1:]
			if n+int(depth) < 3 {
				for h.Op = iwarp.OpControl; h.Op == iwarp.OpControl; {
					h, _ = p.read()
				}
				flying = append(flying, sentFrame{h, nil})
			}
		}
		p.write(control(2, iwarp.ControlAck, 4), nil)
		assert.DeepEqual(t, s.statuses(4), make([]fabric.Status, 4))
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
}
