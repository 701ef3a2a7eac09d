package tcpfabric

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestScattered: the segments of a Send fill the pieces of its receive one after another, wherever
// a segment begins and ends, and no byte outside of them.
func TestScattered(t *testing.T) {
	v := newVictim(t)
	requests := make(chan fabric.Request, 1)
	l, err := v.dev.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(t, err)
	defer l.Close()
	const first, second, gap = 10, 20, 100
	data := []byte("0123456789abcdefghijklmnopqrst")
	for _, cuts := range [][]int{{30}, {4, 16, 30}, {4, 30}, {10, 30}, {9, 11, 29, 30}} {
		for i := range v.mem[rxAt : rxAt+receives*receiveSize] {
			v.mem[rxAt+i] = canary
		}
		p := dial(t, l.Addr())
		request := setup(0)
		frame, err := request.Append(nil)
		assert.NilError(t, err)
		p.bytes(frame)
		r := <-requests
		s := &session{v: v, events: make(chan fabric.ConnEvent, 16)}
		s.qp, err = v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSend: 1, MaxRecv: 1,
			MaxSendSGE: 1, MaxRecvSGE: 2})
		assert.NilError(t, err)
		t.Cleanup(s.close)
		_, err = s.qp.PostRecv([]fabric.RecvWR{{NumSGE: 2}}, []fabric.SGE{
			{Addr: addressOf(v.mem[rxAt:]), Length: first, LKey: v.rx.LKey()},
			{Addr: addressOf(v.mem[rxAt+gap:]), Length: second, LKey: v.rx.LKey()}})
		assert.NilError(t, err)
		s.conn, err = r.Accept(s.qp, fabric.AcceptParams{}, func(ev fabric.ConnEvent) { s.events <- ev })
		assert.NilError(t, err)
		p.reply()
		at := 0
		for _, cut := range cuts {
			p.write(send(1, uint32(at), cut == len(data)), data[at:cut])
			at = cut
		}
		s.expect(fabric.EventEstablished)
		p.Close()
		s.expect(fabric.EventDisconnected)
		want := bytes.Repeat([]byte{canary}, receives*receiveSize)
		copy(want, data[:first])
		copy(want[gap:], data[first:])
		assert.DeepEqual(t, v.mem[rxAt:rxAt+receives*receiveSize], want)
		v.unharmed()
	}
}
