package tcpfabric

import (
	"math"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// stalls is a socket that has room for left bytes.
type stalls struct {
	socket
	left atomic.Int64
}

// stalling makes the link use a socket that stalls. The caller is in the link's turn.
func (l *link) stalling() *stalls {
	sock := new(stalls)
	l.wrapSocket(func(s socket) socket {
		sock.socket = s
		return sock
	})
	return sock
}

func (s *stalls) write(bufs [][]byte) (int, error) {
	left := s.left.Load()
	if left == 0 {
		return 0, errAgain
	}
	var some [][]byte
	for _, b := range bufs {
		some = append(some, b[:min(int64(len(b)), left)])
		left -= int64(len(some[len(some)-1]))
	}
	n, err := s.socket.write(some)
	s.left.Add(-int64(n))
	return n, err
}

// TestRequestOfWhatIsGone: a request whose memory is deregistered when its frame waits for room in
// the socket fails in its turn. The requests before it are sent, and none after it.
func TestRequestOfWhatIsGone(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(copyLimit+1, fabric.LocalWrite)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	var sock *stalls
	l.inTurn(func() { sock = l.stalling() })
	send := fabric.SendWR{Opcode: fabric.OpSend}
	s.sends([]fabric.SendWR{send, send, send}, []uint32{8, copyLimit + 1, 8}, func() {
		sends := l.qp.Sends()
		sends.Slot(sends.Head() + 1).SGEs[0] = fabric.SGE{Addr: addressOf(mem), Length: copyLimit + 1, LKey: mr.LKey()}
	})
	assert.NilError(t, mr.Close())
	sock.left.Store(math.MaxInt64)
	l.writable()
	h, payload := p.read()
	assert.Equal(t, h.Op, iwarp.OpSend)
	assert.DeepEqual(t, payload, v.room()[:8])
	p.write(acks(2, 1), nil)
	assert.DeepEqual(t, s.statuses(3),
		[]fabric.Status{fabric.StatusSuccess, fabric.StatusLocalProt, fabric.StatusFlush})
	assert.NilError(t, s.conn.Disconnect())
	p.rest(func(h iwarp.Header, _ []byte) { t.Errorf("%v was sent", h.Op) })
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestAnswersAfterFailed: while a request that has failed at this end waits for the one before it,
// the peer's reads are answered. Otherwise two ends in that state would wait for each other.
func TestAnswersAfterFailed(t *testing.T) {
	v := newVictim(t)
	_, gone := v.region(8, fabric.LocalWrite)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	s.sends([]fabric.SendWR{{Opcode: fabric.OpRead}, {Opcode: fabric.OpSend}}, []uint32{0, 8}, func() {
		for n := range uint32(2) {
			p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: n + 1, SinkKey: n, Key: v.mr.RKey(), Offset: v.at(0),
				Length: 8}, nil)
		}
		within(t, "the reads have not come", func() bool { return l.heard.reads.Load() == 2 })
		l.qp.Sends().Slot(l.qp.Sends().Head() + 1).SGEs[0].LKey = gone.LKey()
		assert.NilError(t, gone.Close())
	})
	var asked iwarp.Header
	for answers := uint32(0); answers < 2; {
		h, payload := p.read()
		switch h.Op {
		case iwarp.OpReadRequest:
			asked = h
		case iwarp.OpReadResponse:
			assert.Equal(t, h.Key, answers)
			assert.DeepEqual(t, payload, v.room()[:8])
			answers++
		}
	}
	p.answers(asked, 0, nil, true)
	assert.DeepEqual(t, s.statuses(2), []fabric.Status{fabric.StatusSuccess, fabric.StatusLocalProt})
	p.Close()
	s.over()
}
