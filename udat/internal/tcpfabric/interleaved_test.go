package tcpfabric

import (
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// TestInterleaved: frames of other messages between the segments of a Send change nothing of it,
// and a Send between the segments of a write changes nothing of that.
func TestInterleaved(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	imm := iwarp.Header{Op: iwarp.OpSendSEImm, MSN: 1, Word: 0x01020304}
	atomic := iwarp.Header{Op: iwarp.OpAtomicRequest, MSN: 1, Atomic: iwarp.FetchAdd, ID: 1, Key: v.mr.RKey(),
		Offset: v.at(0), Operand: 1}
	write := iwarp.Header{Op: iwarp.OpWrite, Key: v.mr.RKey(), Offset: v.at(8)}
	p.write(imm, []byte("abc"))
	p.write(atomic, nil)
	p.write(write, []byte("12345"))
	atomic.MSN, atomic.ID, atomic.Atomic = 2, 2, iwarp.CmpSwap
	p.write(atomic, nil)
	imm.MO, imm.Last = 3, true
	p.write(imm, []byte("de"))
	write.Offset, write.Last = v.at(13), true
	p.write(write, []byte("6789"))
	p.write(iwarp.Header{Op: iwarp.OpImmediate, MSN: 2, Value: 9}, nil)
	want := []fabric.WC{
		{ID: 0, Opcode: fabric.OpWCRecv, ByteLen: 5, Imm: 0x01020304, Flags: fabric.WCWithImm},
		{ID: 1, Opcode: fabric.OpWCRecvWithImm, ByteLen: 9, Imm: 9, Flags: fabric.WCWithImm},
	}
	var got []fabric.WC
	within(t, "not every message completes", func() bool {
		var wcs [4]fabric.WC
		n, err := v.cq.Poll(wcs[:], 1)
		assert.NilError(t, err)
		got = append(got, wcs[:n]...)
		return len(got) >= len(want)
	})
	assert.Equal(t, len(got), len(want))
	for i := range want {
		want[i].QPNum, want[i].SrcQP = got[i].QPNum, got[i].SrcQP
	}
	assert.DeepEqual(t, got, want)
	assert.Equal(t, string(v.mem[rxAt:rxAt+5]), "abcde")
	assert.Equal(t, string(v.room()[8:17]), "123456789")
	copy(v.room(), v.mem[:17])
	p.Close()
	s.expect(fabric.EventDisconnected)
}
