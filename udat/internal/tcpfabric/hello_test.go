package tcpfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// TestHelloFirst: an end that has connected sends no request before its peer's hello, and no
// segment larger than that hello allows.
func TestHelloFirst(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	i := v.joins(addrOf(l.Addr()))
	p, _ := l.request()
	p.replies(iwarp.Setup{Revision: 2, Enhanced: true, Extended: true, In: 1, Out: 1})
	assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventEstablished)
	h, _ := p.read()
	assert.Equal(t, h.Control, iwarp.ControlHello)

	const size, segment = 8 << 10, 2 << 10
	i.post(fabric.SendWR{Opcode: fabric.OpSend}, size)
	p.write(control(1, iwarp.ControlHello, iwarp.Hello{Segment: segment, Window: 1, Limit: 1}.Value()), nil)
	for got := 0; got < size; {
		h, payload := p.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		assert.Equal(t, int(h.MO), got)
		assert.Assert(t, len(payload) > 0 && len(payload) < segment, "%d bytes", len(payload))
		got += len(payload)
	}
	p.write(acks(2, 1), nil)
	i.ends(1)
	i.close()
}
