package tcpfabric

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// joinedWith is joined, for a peer that says this hello.
func (v *victim) joinedWith(h iwarp.Hello) (*peer, *session) {
	v.t.Helper()
	p := v.dial()
	p.greet()
	s := v.session()
	h.Segment = iwarp.MaxSegment
	p.write(control(1, iwarp.ControlHello, h.Value()), nil)
	s.expect(fabric.EventEstablished)
	return p, s
}

// TestMessagesWait: a message waits at its sender, with all requests behind it, until the peer
// tells of a receive for it. Its sender asks once for all that wait. Nothing is sent twice.
func TestMessagesWait(t *testing.T) {
	send, imm := fabric.SendWR{Opcode: fabric.OpSend}, fabric.SendWR{Opcode: fabric.OpSendImm}
	write, both := fabric.SendWR{Opcode: fabric.OpWrite}, fabric.SendWR{Opcode: fabric.OpWriteImm}
	for _, shared := range []bool{false, true} {
		v := newVictim(t)
		v.depth = 8
		hello := iwarp.Hello{Window: 2, Limit: 1}
		if shared {
			hello = iwarp.Hello{Window: 2, Shared: true}
		}
		p, s := v.joinedWith(hello)
		l := linkOf(s.qp.(*softnic.QP))
		first := uint32(hello.Limit)
		s.sends([]fabric.SendWR{write, send, imm, both, send, write}, []uint32{1, 2, 3, 4, 5, 6}, func() {})
		frames := p.reads(1 + int(first))
		assert.Equal(t, frames[0].Head.Op, iwarp.OpWrite)
		p.told(iwarp.ControlAsk, 4)
		p.write(control(2, iwarp.ControlGrant, iwarp.Counts(1, first)), nil) // there is none
		ops := [][]iwarp.Opcode{{iwarp.OpSend}, {iwarp.OpSendImm}, {iwarp.OpWrite, iwarp.OpImmediate}, {iwarp.OpSend,
			iwarp.OpWrite}}
		for n := first; n < 4; n++ {
			within(t, "not yet", func() (idle bool) {
				l.inTurn(func() { idle = l.tx.empty() && l.heard.grants.Load() == 1 })
				return idle
			})
			l.inTurn(func() { assert.Equal(t, l.tx.messages, uint64(n)) })
			p.write(control(3+n-first, iwarp.ControlAck, iwarp.Counts(1, n+1)), nil)
			for _, op := range ops[n] {
				h, _ := p.read()
				assert.Equal(t, h.Op, op)
				assert.Assert(t, h.Op.Tagged() || h.MSN == n+1)
			}
		}
		p.write(control(7-first, iwarp.ControlAck, iwarp.Counts(7, 4)), nil)
		assert.DeepEqual(t, s.statuses(6), make([]fabric.Status, 6))
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
}

// TestGivesUp: with retries each message that waits asks for itself, and it fails when they have
// passed after the answer that there is no receive. The requests before it are not hurt.
func TestGivesUp(t *testing.T) {
	for _, retries := range []uint8{0, 6} {
		v := newVictimWith(t, fabric.Options{RNRRetry: retries, Retry: 7})
		p, s := v.joinedWith(iwarp.Hello{Window: 1})
		send := fabric.SendWR{Opcode: fabric.OpSend}
		s.sends([]fabric.SendWR{{Opcode: fabric.OpRead}, send, send}, []uint32{8, 8, 8}, func() {})
		read := p.request()
		p.told(iwarp.ControlAsk, 2)
		p.write(control(2, iwarp.ControlGrant, iwarp.Counts(0, 1)), nil)
		h, _ := p.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		p.told(iwarp.ControlAsk, 2)
		p.write(control(3, iwarp.ControlGrant, iwarp.Counts(2, 1)), nil)
		l := linkOf(s.qp.(*softnic.QP))
		within(t, "it does not give up", func() (gone bool) {
			l.inTurn(func() { gone = l.tx.stuck })
			return gone
		})
		assert.Equal(t, l.qp.Sends().Len(), 3) // the read has no answer yet
		p.answers(read, 0, make([]byte, 8), true)
		assert.DeepEqual(t, s.statuses(3),
			[]fabric.Status{fabric.StatusSuccess, fabric.StatusSuccess, fabric.StatusRNRExceeded})
		p.Close()
		s.over()
	}
}

// TestGivesUpInVain: a receive that is told of before the retries have passed is used, and the end
// of its time fails nothing.
func TestGivesUpInVain(t *testing.T) {
	v := newVictimWith(t, fabric.Options{RNRRetry: 1, Retry: 7})
	p, s := v.joinedWith(iwarp.Hello{Window: 1})
	s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}}, []uint32{8}, func() {})
	p.told(iwarp.ControlAsk, 1)
	l := linkOf(s.qp.(*softnic.QP))
	l.inTurn(func() { // its time is over when both have come
		p.write(control(2, iwarp.ControlGrant, iwarp.Counts(0, 0)), nil)
		p.write(control(3, iwarp.ControlAck, iwarp.Counts(0, 1)), nil)
		within(t, "they do not come", func() bool { return l.heard.limit.Load() == 1 })
		l.exhausted.Store(1)
	})
	h, _ := p.read()
	assert.Equal(t, h.Op, iwarp.OpSend)
	p.write(control(4, iwarp.ControlAck, iwarp.Counts(1, 1)), nil)
	assert.DeepEqual(t, s.statuses(1), []fabric.Status{fabric.StatusSuccess})
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestBytesOfLateReceives: a Send whose receive comes late costs its payload, a header and checksum
// for each segment, as any Send does, and two control messages: of the receive, and of the
// execution. That is at most 5 % more than the payload in both directions together, from 2 KiB on.
func TestBytesOfLateReceives(t *testing.T) {
	const sends = 30
	for _, shared := range []bool{false, true} {
		for _, n := range []int{1 << 10, 2 << 10, 64 << 10} {
			t.Run(fmt.Sprint(shared, n), func(t *testing.T) {
				v := newVictim(t)
				if shared {
					v.share(1)
				}
				mem, mr := v.region(n, fabric.LocalWrite)
				i := v.joins(v.listener.Addr())
				s := v.session()
				s.expect(fabric.EventEstablished)
				out, in := linkOf(i.qp.(*softnic.QP)), linkOf(s.qp.(*softnic.QP))
				first := int(in.limit()) // small receives, for Sends of no byte
				for range first {
					i.post(fabric.SendWR{Opcode: fabric.OpSend}, 0)
				}
				i.ends(first)
				before := int64(0)
				out.inTurn(func() { before += int64(out.tx.written) })
				in.inTurn(func() { before += int64(in.tx.written) })
				for range sends {
					i.post(fabric.SendWR{Opcode: fabric.OpSend}, n)
				}
				for k := range sends {
					within(t, "the next Send does not wait", func() (waits bool) {
						out.inTurn(func() { waits = out.tx.messages == uint64(first+k) && out.heard.grants.Load() > 0 })
						return waits
					})
					sge := fabric.SGE{Addr: addressOf(mem), Length: uint32(n), LKey: mr.LKey()}
					wrs, sges := []fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{sge}
					var err error
					if shared {
						_, err = v.shared.PostRecv(wrs, sges)
					} else {
						_, err = s.qp.PostRecv(wrs, sges)
					}
					assert.NilError(t, err)
				}
				i.ends(sends)
				bytes := -before
				out.inTurn(func() { bytes += int64(out.tx.written) })
				in.inTurn(func() { bytes += int64(in.tx.written) })
				const segment, told, begin = 24, 36, 4 * 36 // begin: the ask, its grant, and what is told before them
				ratio, frames := float64(bytes)/float64(sends*n), 1+n/iwarp.MaxSegment
				t.Logf("%.3f bytes for a byte of payload", ratio)
				assert.Assert(t, bytes <= int64(sends*(n+frames*segment+2*told)+begin))
				assert.Assert(t, ratio <= 1.05 || n < 2<<10)
				i.close()
				s.leaves(t)
				assert.NilError(t, mr.Close())
			})
		}
	}
}

// TestLastLimit: the last acknowledgement tells of no receive that was posted after the queue pair
// has failed. Such receives come and go without a bound, and the peer knows its window only.
func TestLastLimit(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	q := s.qp.(*softnic.QP)
	l := linkOf(q)
	l.inTurn(func() {
		p.write(send(1, 0, true), nil)
		within(t, "the message does not come", func() bool { return l.heard.executed.Load() == 1 })
		assert.NilError(t, q.SetError())
		for range 2 {
			q.Flush(&l.rx.in)
			n, err := q.PostRecv(make([]fabric.RecvWR, receives), nil)
			assert.NilError(t, err)
			assert.Equal(t, n, receives)
		}
	})
	p.told(iwarp.ControlAck, iwarp.Counts(1, receives))
	p.Close()
	assert.NilError(t, s.conn.Disconnect())
}
