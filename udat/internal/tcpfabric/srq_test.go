package tcpfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// TestSharedReceiveIsGone: a message waits for a receive of a shared queue. A receive wakes its
// link, but the message of another connection takes this receive. The next receive must go to the
// message that waits.
func TestSharedReceiveIsGone(t *testing.T) {
	v := newVictim(t)
	var err error
	v.shared, err = v.pd.CreateSRQ(receives, 1)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, v.shared.Close()) })
	post := func() {
		sge := fabric.SGE{Addr: addressOf(v.mem[rxAt:]), Length: receiveSize, LKey: v.rx.LKey()}
		_, err := v.shared.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{sge})
		assert.NilError(t, err)
	}
	join := func() (*peer, *session, *link) {
		p, s := v.joined()
		return p, s, linkOf(s.qp.(*softnic.QP))
	}
	waits, waiter, l := join()
	takes, taker, other := join()
	controlled := func(p *peer, c iwarp.Control, value uint64) {
		t.Helper()
		h, _ := p.read()
		assert.Equal(t, h.Op, iwarp.OpControl)
		assert.Equal(t, h.Control, c)
		assert.Equal(t, h.Value, value)
	}
	for n := range uint32(3) {
		waits.write(send(n+1, 0, true), []byte("some"))
		controlled(waits, iwarp.ControlNotReady, uint64(n))
		l.inTurn(func() { // and so hears of the receive when it is gone
			post()
			takes.write(send(n+1, 0, true), []byte("some"))
			within(t, "the receive is not taken", func() bool { return other.executed.Load() == uint64(n+1) })
		})
		controlled(takes, iwarp.ControlAck, uint64(n+1))
		assert.Equal(t, l.starved.Load(), waiting)
		post()
		controlled(waits, iwarp.ControlReady, uint64(n))
		waits.write(control(2+n, iwarp.ControlResume, uint64(n)), nil)
		waits.write(send(n+1, 0, true), []byte("some"))
		controlled(waits, iwarp.ControlAck, uint64(n+1))
	}
	for _, p := range []*peer{waits, takes} {
		p.Close()
	}
	for _, s := range []*session{waiter, taker} {
		s.expect(fabric.EventDisconnected)
	}
}
