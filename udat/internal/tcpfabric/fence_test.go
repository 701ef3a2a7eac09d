package tcpfabric

import (
	"slices"
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
	within(p.t, "the write does not come", func() bool { return l.heard.executed.Load() == n })
	before := uint64(0)
	l.inTurn(func() { before = l.tx.next })
	l.inTurn(func() { assert.Equal(p.t, l.tx.next, before) })
}

// request reads up to the next frame of a request, past acknowledgements.
func (p *peer) request() iwarp.Header {
	p.t.Helper()
	for {
		if h, _ := p.read(); h.Op != iwarp.OpControl {
			return h
		}
	}
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
		assert.Assert(t, frames[0].Head.SinkKey != frames[1].Head.SinkKey)
		p.answers(frames[0].Head, 0, nil, true)
		p.quiet(s, 1)
		p.write(acks(2, 3), nil)
		p.answers(frames[1].Head, 0, nil, true)
		last := p.request()
		if op == fabric.OpRead {
			assert.Equal(t, last.Op, iwarp.OpReadRequest)
			p.answers(last, 0, nil, true)
		} else {
			assert.Equal(t, last.Op, iwarp.OpSend)
			p.write(acks(3, 4), nil)
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
			p.write(acks(2, 1), nil)
			assert.DeepEqual(t, s.statuses(2), []fabric.Status{fabric.StatusSuccess, fabric.StatusLocalQPOp})
			p.Close()
			s.over()
			continue
		}
		wrs := []fabric.SendWR{read, read, read}
		s.sends(slices.Insert(wrs, int(depth), fabric.SendWR{Opcode: fabric.OpWrite}), make([]uint32, 4), func() {})
		flying := p.reads(int(depth) + 1)
		assert.Equal(t, flying[depth].Head.Op, iwarp.OpWrite)
		flying = flying[:depth]
		p.quiet(s, 1)
		for n := range 3 {
			assert.Equal(t, flying[0].Head.Op, iwarp.OpReadRequest)
			p.answers(flying[0].Head, 0, nil, true)
			flying = flying[1:]
			if n+int(depth) < 3 {
				flying = append(flying, sentFrame{p.request(), nil})
			}
		}
		p.write(acks(2, 4), nil)
		assert.DeepEqual(t, s.statuses(4), make([]fabric.Status, 4))
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
}

// TestDoneBeyond4Billion: after 2^32 requests and reads a request completes no sooner than before:
// when the peer has answered or acknowledged it. An answer that nobody has asked for is refused.
func TestDoneBeyond4Billion(t *testing.T) {
	const start = 1 << 32
	v := newVictim(t)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	l.countFrom(start)
	s.sends([]fabric.SendWR{{Opcode: fabric.OpRead}, {Opcode: fabric.OpWrite}}, []uint32{0, 8}, func() {})
	frames := p.reads(2)
	p.quiet(s, start+1)
	assert.Equal(t, l.qp.Sends().Len(), 2)
	p.answers(frames[0].Head, 0, nil, true)
	within(t, "the read does not complete", func() bool { return l.qp.Sends().Len() == 1 })
	p.write(acks(2, 2), nil)
	assert.DeepEqual(t, s.statuses(2), make([]fabric.Status, 2))
	p.answers(frames[0].Head, 0, nil, true) // once more
	p.terminatedWith(iwarp.FaultOpcode)
	p.Close()
	s.expect(fabric.EventDisconnected)
}
