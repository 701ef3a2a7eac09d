package tcpfabric

import (
	"bytes"
	"math"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// liar is a peer that says what is not so.
type liar struct {
	*peer
	s *session
	l *link
}

// standing is how far a request of the victim's end has come.
type standing struct {
	posted fabric.Opcode
	most   int64 // bytes that the socket takes; 0: none
}

// TestLies: a peer acknowledges, answers, grants or asks what the rules do not allow in the state
// of the victim's request: when it is in a batch, half written, or written and done. That breaks
// the connection. No request completes by it, no memory changes, and the peer gets no more bytes of
// it.
func TestLies(t *testing.T) {
	acking := func(executed uint32) iwarp.Header {
		return iwarp.Header{Op: iwarp.OpSend, Last: true, MSN: 1, Word: iwarp.Word(uint16(executed), plenty)}
	}
	lie := func(h iwarp.Header, payload ...byte) func(*liar) { return func(x *liar) { x.write(h, payload) } }
	answer := func(x *liar) {
		x.write(iwarp.Header{Op: iwarp.OpReadResponse, Last: true, Key: x.l.sinkKey + 1}, []byte("overflow"))
	}
	for _, at := range []standing{{fabric.OpSend, 0}, {fabric.OpSend, 30}, {fabric.OpWrite, 0}, {fabric.OpWrite, 20},
		{fabric.OpRead, 0}, {fabric.OpRead, 40}, {fabric.OpFetchAdd, 0}, {fabric.OpFetchAdd, 70}} {
		lies := map[string]func(*liar){
			"an acknowledgement":       lie(acks(2, 1)),
			"a later acknowledgement":  lie(acks(2, 2)),
			"an earlier one":           lie(acks(2, math.MaxUint32)),
			"a Send that acknowledges": lie(acking(1)),
			"an answer":                answer,
			"the old value": func(x *liar) {
				x.write(iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: 1, ID: x.l.sinkKey + 1, Value: math.MaxUint64}, nil)
			},
			"a grant": lie(control(2, iwarp.ControlGrant, iwarp.Counts(0, plenty))),
		}
		for name, do := range lies {
			t.Run(name, func(t *testing.T) { at.refuses(t, do) })
		}
	}
}

// refuses has the victim post a request, and checks that what the peer does then is refused.
func (at standing) refuses(t *testing.T, do func(*liar)) {
	v := newVictim(t)
	p, s := v.joined()
	x := &liar{peer: p, s: s, l: linkOf(s.qp.(*softnic.QP))}
	before := bytes.Clone(v.mem)
	sock := x.stalls(at.most)
	s.sends([]fabric.SendWR{{Opcode: at.posted}}, []uint32{8}, func() {})
	x.l.inTurn(func() { assert.Equal(t, x.l.tx.next, uint64(1)) })
	do(x)
	assert.Assert(t, s.statuses(1)[0] != fabric.StatusSuccess)
	assert.Equal(t, sock.left.Load(), int64(0))
	assert.Assert(t, bytes.Equal(v.mem, before))
	p.Close()
	s.over()
}

// stalls makes the victim's socket take most more bytes.
func (x *liar) stalls(most int64) (sock *stalls) {
	x.l.inTurn(func() {
		sock = x.l.stalling()
		sock.left.Store(most)
	})
	return sock
}

// TestLiesTwice: what the peer has said once, it may not say again: an answer, a grant, or an ask
// before its grant. An answer that comes twice changes nothing, even if its request's place is used
// again.
func TestLiesTwice(t *testing.T) {
	read := fabric.SendWR{Opcode: fabric.OpRead}
	for name, c := range map[string]struct {
		hello iwarp.Hello
		do    func(x *liar)
		want  iwarp.Fault
	}{
		"an answer": {iwarp.Hello{}, func(x *liar) {
			x.s.sends([]fabric.SendWR{read}, []uint32{8}, func() {})
			h := x.request()
			x.answers(h, 0, make([]byte, 8), true)
			assert.DeepEqual(x.t, x.s.statuses(1), make([]fabric.Status, 1))
			for range x.l.qp.Sends().Depth() { // up to the same place
				x.s.sends([]fabric.SendWR{{Opcode: fabric.OpWrite}}, []uint32{8}, func() {})
				x.request()
			}
			x.answers(h, 0, []byte("overflow"), true)
		}, iwarp.FaultOpcode},
		"an answer while the next is asked": {iwarp.Hello{}, func(x *liar) {
			x.s.sends([]fabric.SendWR{read, read}, []uint32{8, 8}, func() {})
			h := x.request()
			x.answers(h, 0, make([]byte, 8), true)
			x.answers(h, 0, []byte("overflow"), true)
		}, iwarp.FaultTaggedKey},
		"a grant": {iwarp.Hello{Window: 1}, func(x *liar) {
			x.s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}}, []uint32{8}, func() {})
			x.told(iwarp.ControlAsk, 1)
			x.write(control(2, iwarp.ControlGrant, 0), nil)
			x.write(control(3, iwarp.ControlGrant, 0), nil)
		}, iwarp.FaultOperation},
		"a shared receive that was not asked for": {iwarp.Hello{Window: 2, Shared: true}, func(x *liar) {
			x.s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}}, []uint32{8}, func() {})
			x.told(iwarp.ControlAsk, 1)
			x.write(control(2, iwarp.ControlGrant, iwarp.Counts(0, 2)), nil)
		}, iwarp.FaultOperation},
		"a shared receive before the ask": {iwarp.Hello{Window: 2, Shared: true}, func(x *liar) {
			sock := x.stalls(0)
			x.s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}}, []uint32{8}, func() {})
			x.write(control(2, iwarp.ControlAck, iwarp.Counts(0, 1)), nil)
			within(x.t, "it is not refused", x.l.refusing.Load)
			sock.left.Store(math.MaxInt64)
			x.l.writable()
		}, iwarp.FaultOperation},
		"an ask": {iwarp.Hello{}, func(x *liar) {
			sock := x.stalls(0)
			x.write(control(2, iwarp.ControlAsk, 5), nil)
			x.write(control(3, iwarp.ControlAsk, 6), nil)
			within(x.t, "it is not refused", x.l.refusing.Load)
			sock.left.Store(math.MaxInt64)
			x.l.writable()
		}, iwarp.FaultOperation},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			p, s := v.joinedWith(c.hello)
			x := &liar{peer: p, s: s, l: linkOf(s.qp.(*softnic.QP))}
			clear(v.room()[:8])
			before := bytes.Clone(v.mem)
			c.do(x)
			p.terminatedWith(c.want)
			p.Close()
			s.over()
			assert.Assert(t, bytes.Equal(v.mem, before))
		})
	}
}

// holds is a socket whose first write returns only when then has returned.
type holds struct {
	socket
	then func()
}

func (h *holds) write(bufs [][]byte) (int, error) {
	n, err := h.socket.write(bufs)
	if h.then != nil {
		h.then()
		h.then = nil
	}
	return n, err
}

// TestEarlyGrant: what a kept frame says counts once, also if a part of it was right before.
func TestEarlyGrant(t *testing.T) {
	v := newVictim(t)
	p, s := v.joinedWith(iwarp.Hello{Window: 16})
	l := linkOf(s.qp.(*softnic.QP))
	s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}}, []uint32{8}, func() {})
	within(t, "nothing is asked for", func() bool { return l.sent.asks.Load() == 1 })
	l.inTurn(func() {
		l.wrapSocket(func(sock socket) socket {
			return &holds{sock, func() {
				p.write(control(3, iwarp.ControlGrant, iwarp.Counts(1, 1)), nil)
				within(t, "the frame is not kept", l.sent.recheck.Load)
			}}
		})
		p.write(control(2, iwarp.ControlAck, iwarp.Counts(0, 1)), nil)
		within(t, "the receive is not known", func() bool { return l.heard.limit.Load() == 1 })
	}) // the turn goes on in this goroutine, so another one reads during the write
	assert.DeepEqual(t, s.statuses(1), []fabric.Status{fabric.StatusSuccess})
	assert.Equal(t, l.heard.grants.Load(), uint64(1))
	p.Close()
	s.over()
}

// TestEarly: an acknowledgement that comes before the write that it belongs to has been counted is
// kept, and nobody waits for the writer. When the write has been counted, it completes the request,
// or is refused if it acknowledges more. What has come behind it is acknowledged too.
func TestEarly(t *testing.T) {
	for executed, want := range map[uint32]fabric.Status{1: fabric.StatusSuccess, 2: fabric.StatusFlush} {
		v := newVictim(t)
		p, s := v.joined()
		l := linkOf(s.qp.(*softnic.QP))
		l.inTurn(func() {
			l.wrapSocket(func(sock socket) socket {
				return &holds{sock, func() {
					behind := iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0), Payload: 1}
					p.bytes(append(frame(acks(2, executed), nil, p.crc), frame(behind, []byte{1}, p.crc)...))
					within(t, "the frame is not kept", l.sent.recheck.Load)
					within(t, "the receiving half is not free", func() bool {
						if !l.qp.In.TryLock() {
							return false
						}
						defer l.qp.In.Unlock()
						return l.rx.early && l.heard.acked.Load() == 0
					})
				}}
			})
		})
		s.sends([]fabric.SendWR{{Opcode: fabric.OpWrite}}, []uint32{8}, func() {})
		if want == fabric.StatusSuccess { // also if nobody polls
			within(t, "the frame is forgotten", func() bool { return l.heard.acked.Load() == 1 })
			within(t, "the peer waits for ever", func() bool { return l.sent.executed.Load() == 1 })
		} else {
			p.terminatedWith(iwarp.FaultOperation)
		}
		assert.DeepEqual(t, s.statuses(1), []fabric.Status{want})
		p.Close()
		s.over()
	}
}
