package tcpfabric

import (
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestCompletions: the completion of a receive says what has come, how long it is, and its
// immediate data or invalidated key. It is solicited if the sender says so.
func TestCompletions(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(8, fabric.LocalWrite|fabric.WindowBind)
	defer func() { assert.NilError(t, mr.Close()) }() // after the windows
	i := v.joins(v.listener.Addr())
	s := v.session()
	assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventEstablished)
	const at = 1 << 10
	var wcs [1]fabric.WC
	next := func() fabric.WC {
		t.Helper()
		within(t, "no completion", func() bool {
			n, err := v.cq.Poll(wcs[:], 1)
			assert.NilError(t, err)
			return n > 0 && (wcs[0].Opcode == fabric.OpWCRecv || wcs[0].Opcode == fabric.OpWCRecvWithImm)
		})
		return wcs[0]
	}
	for _, solicited := range []fabric.SendFlags{0, fabric.Solicited} {
		for _, c := range []struct {
			op    fabric.Opcode
			n     int
			want  fabric.WCOpcode
			flags fabric.WCFlags
		}{
			{fabric.OpSend, 10, fabric.OpWCRecv, 0},
			{fabric.OpSendImm, 20, fabric.OpWCRecv, fabric.WCWithImm},
			{fabric.OpSendInv, 30, fabric.OpWCRecv, fabric.WCWithInv},
			{fabric.OpWriteImm, at, fabric.OpWCRecvWithImm, fabric.WCWithImm},
			{fabric.OpWriteImm, 1, fabric.OpWCRecvWithImm, fabric.WCWithImm},
			{fabric.OpWriteImm, 0, fabric.OpWCRecvWithImm, fabric.WCWithImm},
		} {
			wr := fabric.SendWR{Opcode: c.op, Flags: solicited, Imm: 0xF1234567, RKey: v.mr.RKey(), RemoteAddr: v.at(0)}
			imm := uint32(0xF1234567)
			if c.flags == 0 {
				imm = 0
			}
			if c.op == fabric.OpSendInv {
				mw, err := v.pd.AllocMW()
				assert.NilError(t, err)
				defer mw.Close()
				imm, err = s.qp.Bind(mw, fabric.BindWR{MR: mr, Addr: addressOf(mem), Length: 8, Access: fabric.RemoteWrite})
				assert.NilError(t, err)
				wr.RKey = imm
				within(t, "the window is not bound", func() bool { return s.qp.(*softnic.QP).Sends().Len() == 0 })
			}
			assert.NilError(t, v.cq.Arm(true))
			i.post(fabric.SendWR{Opcode: fabric.OpWrite, RKey: v.mr.RKey(), RemoteAddr: v.at(at)}, 100)
			i.post(wr, c.n)
			i.ends(2)
			if solicited != 0 {
				_, err := v.cq.Wait(time.Now().Add(patience))
				assert.NilError(t, err)
			}
			wc := next()
			assert.Equal(t, wc.Status, fabric.StatusSuccess)
			assert.Equal(t, wc.Opcode, c.want)
			assert.Equal(t, wc.Flags, c.flags)
			assert.Equal(t, int(wc.ByteLen), c.n, "%v", c.op)
			assert.Equal(t, wc.Imm, imm)
			if solicited == 0 {
				_, err := v.cq.Wait(time.Now())
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			sge := fabric.SGE{Addr: addressOf(v.mem[rxAt:]), Length: receiveSize, LKey: v.rx.LKey()}
			_, err := s.qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{sge})
			assert.NilError(t, err)
		}
	}
	i.close()
	s.next()
}
