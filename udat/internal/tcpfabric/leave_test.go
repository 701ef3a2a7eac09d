package tcpfabric

import (
	"bytes"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// sips is a socket that always has room, for one byte.
type sips struct{ socket }

func (s sips) write(bufs [][]byte) (int, error) {
	for _, b := range bufs {
		if len(b) > 0 {
			return s.socket.write([][]byte{b[:1]})
		}
	}
	return 0, nil
}

// TestSentByteByByte: what is sent is complete even if the socket takes one byte at a time: a
// message, an answer, and the terminate at the end.
func TestSentByteByByte(t *testing.T) {
	v := newVictim(t)
	const size = copyLimit + 1 // not copied
	for i := range v.room() {
		v.room()[i] = byte(i)
	}
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	s.expect(fabric.EventEstablished)
	l := linkOf(s.qp.(*softnic.QP))
	l.inTurn(func() { l.wrapSocket(func(s socket) socket { return sips{s} }) })
	sge := fabric.SGE{Addr: v.at(0), Length: size, LKey: v.mr.LKey()}
	_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend, NumSGE: 1}}, []fabric.SGE{sge})
	assert.NilError(t, err)
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, Key: v.mr.RKey(), Offset: v.at(1), Length: size}, nil)
	var sent, answered []byte
	for len(sent) < size || len(answered) < size {
		h, payload := p.read()
		if h.Op == iwarp.OpSend {
			sent = append(sent, payload...)
		} else {
			assert.Equal(t, h.Op, iwarp.OpReadResponse)
			answered = append(answered, payload...)
		}
	}
	assert.Assert(t, bytes.Equal(sent, v.room()[:size]))
	assert.Assert(t, bytes.Equal(answered, v.room()[1:][:size]))
	p.write(send(2, 0, true), nil)
	p.terminatedWith(iwarp.FaultMSN)
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestEndsWithBoth: if a queue pair fails, its stream stays open until its program disconnects. If
// the peer has ended its stream too, the socket is closed then, and nothing waits for a timer.
func TestEndsWithBoth(t *testing.T) {
	v := newVictim(t)
	for _, peerFirst := range []bool{false, true} {
		p := v.dial()
		p.connect(setup(0))
		s := v.session()
		s.expect(fabric.EventEstablished)
		l := linkOf(s.qp.(*softnic.QP))
		assert.NilError(t, s.qp.SetError())
		if peerFirst {
			p.closeWrite()
			s.expect(fabric.EventDisconnected)
		}
		var closed bool
		l.inTurn(func() { closed = l.tx.closed })
		parted := l.leaving.Load() // the time until which the program must disconnect is over
		assert.Assert(t, parted || !closed && l.live.Load())
		assert.NilError(t, s.conn.Disconnect())
		_, err := io.Copy(io.Discard, p)
		assert.NilError(t, err)
		p.Close()
		within(t, "the socket stays open", func() bool { return !l.live.Load() })
		assert.Assert(t, !l.killed.Load())
		if !peerFirst {
			s.expect(fabric.EventDisconnected)
		}
	}
}

// full is a socket that takes nothing, as that of a peer that does not read.
type full struct{ socket }

func (full) write([][]byte) (int, error) { return 0, errAgain }

// TestLeavesDeafPeer: the socket is closed after the times that leaving may take, although the peer
// reads nothing of what is left to be sent, whether or not that is copied.
func TestLeavesDeafPeer(t *testing.T) {
	v := newVictim(t)
	for _, options := range []int{0, withCRC} {
		p := v.dial()
		p.connect(setup(options))
		s := v.session()
		s.expect(fabric.EventEstablished)
		l := linkOf(s.qp.(*softnic.QP))
		l.inTurn(func() { l.wrapSocket(func(s socket) socket { return full{s} }) })
		p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, Key: v.mr.RKey(), Offset: v.at(0), Length: roomSize}, nil)
		within(t, "nothing is left to be sent", func() (left bool) {
			l.inTurn(func() { left = !l.tx.empty() })
			return left
		})
		assert.NilError(t, s.conn.Disconnect())
		within(t, "the socket stays open", func() bool {
			l.inTurn(func() {
				if l.linger != nil {
					l.linger.Reset(0) // its time is over
				}
			})
			return !l.live.Load()
		})
		p.Close()
	}
}

// TestHandlerHoldsUpNothing: while the handler of a connection's event does not return, the other
// connections of the device go on.
func TestHandlerHoldsUpNothing(t *testing.T) {
	v := newVictim(t)
	leaver, left := v.joined()
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	s.expect(fabric.EventEstablished)
	for range cap(left.events) {
		left.events <- fabric.ConnEvent{}
	}
	defer func() {
		for len(left.events) > 0 { // so that the handler returns even if the test fails
			<-left.events
		}
	}()
	leaver.Close()
	for n := range uint32(3) { // the first answer may come before the leaver's end is seen
		p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: n + 1, Key: v.mr.RKey(), Offset: v.at(0), Length: 8}, nil)
		h, _ := p.read()
		assert.Equal(t, h.Op, iwarp.OpReadResponse)
	}
	for range cap(left.events) {
		<-left.events
	}
	left.expect(fabric.EventDisconnected)
	p.Close()
	s.expect(fabric.EventDisconnected)
}
