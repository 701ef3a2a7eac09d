package tcpfabric

import (
	"encoding/binary"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// TestAtomics: an atomic has operands, a comparison and an old value of 64 bits. After it nothing
// holds the word's region.
func TestAtomics(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(8, fabric.LocalWrite|fabric.RemoteAtomic)
	i := v.joins(v.listener.Addr())
	s := v.session()
	assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventEstablished)
	const high = 1 << 40
	binary.NativeEndian.PutUint64(mem, high+5)
	for _, c := range []struct {
		wr       fabric.SendWR
		was, now uint64
	}{
		{fabric.SendWR{Opcode: fabric.OpFetchAdd, CompareAdd: high + 1}, high + 5, 2*high + 6},
		{fabric.SendWR{Opcode: fabric.OpCmpSwap, CompareAdd: high + 6, Swap: 1}, 2*high + 6, 2*high + 6},
		{fabric.SendWR{Opcode: fabric.OpCmpSwap, CompareAdd: 2*high + 6, Swap: 7*high + 7}, 2*high + 6, 7*high + 7},
	} {
		c.wr.RKey, c.wr.RemoteAddr = mr.RKey(), addressOf(mem)
		i.post(c.wr, 8)
		i.ends(1)
		assert.Equal(t, binary.NativeEndian.Uint64(i.mem), c.was)
		assert.Equal(t, binary.NativeEndian.Uint64(mem), c.now)
	}
	closed := make(chan error, 1)
	go func() { closed <- mr.Close() }()
	select {
	case err := <-closed:
		assert.NilError(t, err)
	case <-time.After(patience):
		t.Error("the region is held")
	}
	i.close()
	s.next()
}

// TestAtomicWithinSend: an atomic between two segments of a send is executed, and the send goes on.
func TestAtomicWithinSend(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	was := binary.NativeEndian.Uint64(v.room())
	p.write(send(1, 0, false), []byte("se"))
	p.write(iwarp.Header{Op: iwarp.OpAtomicRequest, MSN: 1, Atomic: iwarp.FetchAdd, Key: v.mr.RKey(), Offset: v.at(0),
		Operand: 1}, nil)
	p.write(send(1, 2, true), []byte("nt"))
	for h := (iwarp.Header{}); h.Op != iwarp.OpAtomicResponse; {
		h, _ = p.read()
	}
	within(t, "the send has not come", func() bool { return linkOf(s.qp.(*softnic.QP)).heard.executed.Load() == 2 })
	assert.Equal(t, binary.NativeEndian.Uint64(v.room()), was+1)
	assert.Equal(t, string(v.mem[rxAt:rxAt+4]), "sent")
	p.Close()
	s.expect(fabric.EventDisconnected)
}
