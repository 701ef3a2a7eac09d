//go:build linux && cgo

package cverbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// openExtended opens a device with extended queue pairs. It skips the test if creating one returns
// ErrNotSupported.
func openExtended(t *testing.T) *Context {
	ctx := openDevice(t)
	pd := closing[*PD](t)(ctx.AllocPD())
	cq := closing[*CQ](t)(ctx.CreateCQ(16, nil, 0))
	init := QPInit{SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		SendOps: WithSend}
	q, err := pd.CreateQP(init)
	if err != nil {
		assert.ErrorIs(t, err, ErrNotSupported)
		t.Skipf("this device has no extended queue pairs: %v", err)
	}
	assert.NilError(t, q.Close())
	init.SendOps = 1 << 40
	_, err = pd.CreateQP(init)
	assert.ErrorContains(t, err, "SendOps 0x10000000000 are unknown")
	return ctx
}

const extendedOps = WithRDMAWrite | WithRDMAWriteWithImm | WithSend | WithSendWithImm | WithRDMARead

// Each operation of an extended queue pair moves its data.
func TestExtendedQP(t *testing.T) {
	a, b := newPair(t, openExtended(t), func(i *QPInit) { i.SendOps = extendedOps })
	for _, imm := range []bool{false, true} {
		fill(a.buf[:3000], 1)
		b.recv(7, b.sge(0, 1000), b.sge(1000, 2000))
		wr := SendWR{Opcode: OpSend}
		if imm {
			wr = SendWR{Opcode: OpSendWithImm, Imm: 0x01020304}
		}
		a.send(wr, a.sge(0, 3000))
		a.sent()
		wc := b.received()
		assert.Equal(t, wc.ID, uint64(7))
		assert.Equal(t, wc.Imm, wr.Imm)
		assert.Assert(t, bytes.Equal(a.buf[:3000], b.buf[:3000]))
	}

	fill(a.buf[:50000], 2)
	wr := SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	a.send(wr, a.sge(0, 50000))
	a.sent()
	assert.Assert(t, bytes.Equal(a.buf[:50000], b.buf[:50000]))
	b.recv(8)
	fill(a.buf[:100], 3)
	wr.Opcode, wr.Imm = OpRDMAWriteWithImm, 99
	a.send(wr, a.sge(0, 100))
	a.sent()
	assert.Equal(t, b.received().Imm, uint32(99))
	assert.Assert(t, bytes.Equal(a.buf[:100], b.buf[:100]))
	fill(b.buf[:100], 4)
	wr.Opcode = OpRDMARead
	a.send(wr, a.sge(0, 100))
	assert.Equal(t, a.sent().Opcode, WCRDMARead)
	assert.Assert(t, bytes.Equal(a.buf[:100], b.buf[:100]))
}

// The driver gathers the segments of a send, and those of inline data.
func TestExtendedSegments(t *testing.T) {
	a, b := newPair(t, openExtended(t), func(i *QPInit) { i.SendOps = WithRDMAWrite })
	if a.ctx.rxe != 0 {
		t.Skip("soft-RoCE's driver gathers nothing: cverbs refuses segments, and copies inline data itself")
	}
	wr := SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	for _, wr.Flags = range []SendFlags{0, SendInline} {
		fill(a.buf[:60], 9)
		clear(b.buf[:60])
		a.send(wr, a.sge(40, 20), a.sge(0, 10), a.sge(10, 30))
		a.sent()
		assert.Assert(t, bytes.Equal(b.buf[:60], append(bytes.Clone(a.buf[40:60]), a.buf[:40]...)))
	}
}

// Each atomic operation of an extended queue pair returns the old value and stores the new one.
func TestExtendedAtomics(t *testing.T) {
	ctx := openExtended(t)
	init := func(i *QPInit) { i.SendOps = WithAtomicCmpAndSwp | WithAtomicFetchAndAdd }
	skipWithout(t, ctx, init)
	a, b := newPair(t, ctx, init)
	wr := SendWR{RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	le := binary.NativeEndian
	le.PutUint64(b.buf, 5)
	wr.Opcode, wr.CompareAdd = OpAtomicFetchAndAdd, 10
	a.send(wr, a.sge(8, 8))
	a.sent()
	assert.Equal(t, le.Uint64(a.buf[8:]), uint64(5))
	wr.Opcode, wr.CompareAdd, wr.Swap = OpAtomicCmpAndSwp, 15, 99
	a.send(wr, a.sge(8, 8))
	a.sent()
	assert.Equal(t, le.Uint64(a.buf[8:]), uint64(15))
	assert.Equal(t, le.Uint64(b.buf), uint64(99))
}

// skipWithout skips the test if the error says that the device does not support this kind of queue
// pair.
func skipWithout(t *testing.T, ctx *Context, change func(*QPInit)) {
	t.Helper()
	e := newEnd(t, ctx)
	init := QPInit{SendCQ: e.scq, RecvCQ: e.rcq, Cap: defaultCap}
	change(&init)
	q, err := e.pd.CreateQP(init)
	if err != nil {
		orSkip[*QP](t, "ibv_create_qp_ex")(q, err)
	}
	assert.NilError(t, q.Close())
}

// Inline data is copied during the post and needs no key. It may come from up to 32 segments, even
// if other sends may have fewer segments.
func TestExtendedInline(t *testing.T) {
	const longest = 96
	a, b := newPair(t, openExtended(t), func(i *QPInit) {
		i.SendOps, i.Cap.MaxInline, i.Cap.MaxSendSGE = WithRDMAWrite|WithSend, longest, 1
	})
	wr := SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: SendInline | SendSignaled}
	post := func(places, length int) (want []byte, err error) { // posts the segments in reverse order
		var sges []SGE
		for k := range places {
			at := 1000 * (places - k)
			sges = append(sges, SGE{Addr: a.mr.Addr() + uint64(at), Length: uint32(length + k%2), LKey: 1})
			want = append(want, a.buf[at:at+length+k%2]...)
		}
		wr.FirstSGE, wr.NumSGE = 1, uint32(places)
		_, err = a.qp.PostSend([]SendWR{wr}, append([]SGE{{}}, sges...))
		return want, err
	}
	for _, places := range []int{1, 2, 3, 31, 32} {
		for _, wr.Opcode = range []WROpcode{OpRDMAWrite, OpSend} {
			fill(a.buf, byte(places))
			clear(b.buf[:200])
			if wr.Opcode == OpSend {
				b.recv(1, b.sge(0, 200))
			}
			want, err := post(places, 2)
			assert.NilError(t, err)
			fill(a.buf, byte(places+1))
			a.sent()
			if wr.Opcode == OpSend {
				assert.Equal(t, b.received().ByteLen, uint32(len(want)))
			}
			assert.Assert(t, bytes.Equal(b.buf[:200], append(want, make([]byte, 200-len(want))...)), "%d places", places)
		}
	}
	_, err := post(33, 1)
	assert.ErrorContains(t, err, "request 0: 33 segments, the queue takes 32")
	for _, places := range []int{1, 2, 32} {
		_, err = post(places, 5000)
		var v *Error
		assert.Assert(t, errors.As(err, &v), "%d places: %v", places, err)
		t.Log(err)
	}
	many := a.qp.Cap().MaxSendSGE + 1
	wr.Flags, wr.FirstSGE, wr.NumSGE = SendSignaled, 0, many
	_, err = a.qp.PostSend([]SendWR{wr}, make([]SGE, many))
	assert.ErrorContains(t, err, fmt.Sprintf("request 0: %d segments, the queue takes %d", many, many-1))

	b.recv(2, b.sge(0, 200)) // the refused requests have had no effect
	wr.Flags, wr.Opcode = SendSignaled|SendInline, OpSend
	want, err := post(4, 3)
	assert.NilError(t, err)
	a.sent()
	assert.Equal(t, b.received().ByteLen, uint32(len(want)))
	assert.Assert(t, bytes.Equal(b.buf[:len(want)], want))
}

// A batch that is longer than a chain arrives in order. If a request is refused, the requests
// before it are posted and the requests after it are not.
func TestExtendedBatch(t *testing.T) {
	a, b := newPair(t, openExtended(t), func(i *QPInit) {
		i.SendOps, i.Cap.MaxSendWR, i.Cap.MaxRecvWR = WithSend, 300, 300
	})
	const count = 290
	sends, recvs := make([]SendWR, count), make([]RecvWR, count)
	for i := range count {
		recvs[i].ID = uint64(i)
		sends[i] = SendWR{ID: uint64(i), Opcode: OpSend, Flags: SendSignaled}
	}
	post := func(want int) error {
		t.Helper()
		n, err := b.qp.PostRecv(recvs[:want], nil)
		assert.NilError(t, err)
		assert.Equal(t, n, want)
		n, err = a.qp.PostSend(sends, nil)
		assert.Equal(t, n, want)
		for i, wc := range poll(t, a.scq, want) {
			assert.Equal(t, wc.ID, uint64(i))
		}
		for i, wc := range poll(t, b.rcq, want) {
			assert.Equal(t, wc.ID, uint64(i))
		}
		return err
	}
	assert.NilError(t, post(count))
	for _, c := range []struct {
		at   int
		wr   SendWR
		text string
	}{
		{0, SendWR{Opcode: OpRDMAWrite}, "request 0: RDMA_WRITE is not among the SendOps"},
		{200, SendWR{Opcode: OpSend, NumSGE: 1}, "request 200: segments 0 to 1 are not among the 0"},
		{289, SendWR{Opcode: 77}, "request 289: WROpcode(77) is not among the SendOps"},
		{1, SendWR{Opcode: OpTSO}, "request 1: TSO is not among the SendOps"},
		{128, SendWR{Opcode: OpAtomicWrite}, "request 128: ATOMIC_WRITE is not among the SendOps"},
	} {
		was := sends[c.at]
		sends[c.at] = c.wr
		assert.ErrorContains(t, post(c.at), c.text)
		sends[c.at] = was
	}
}

// Datagrams of an extended queue pair go to their address handle, which each post checks.
func TestExtendedUD(t *testing.T) {
	ctx, init := openExtended(t), func(i *QPInit) { i.Type, i.SendOps = QPTypeUD, WithSendWithImm }
	skipWithout(t, ctx, init)
	datagrams(t, ctx, init)
}

// A turn posts to an extended queue pair as PostSend does: only operations for which the queue pair
// was created.
func TestExtendedTurn(t *testing.T) {
	a, b := newPair(t, openExtended(t), func(i *QPInit) { i.SendOps = WithSend })
	b.recv(1, b.sge(0, 8))
	fill(a.buf[:8], 1)
	write := []SendWR{{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}
	_, alone := a.qp.PostSend(write, nil)
	var turn Turn
	turn.PostSend(a.qp, write, nil)
	turn.PostSend(a.qp, []SendWR{{Opcode: OpSend, Flags: SendSignaled, NumSGE: 1}}, []SGE{a.sge(0, 8)})
	_, err := turn.Run(nil, nil, 1)
	assert.NilError(t, err)
	assert.Equal(t, turn.Refused(), 1)
	_, err = turn.Posted(0)
	assert.Error(t, err, alone.Error())
	a.sent()
	b.received()
	assert.Assert(t, bytes.Equal(a.buf[:8], b.buf[:8]))
}

// A chain that the send queue has no room for returns ENOMEM, as on an ordinary queue pair, and
// nothing of it is posted.
func TestExtendedFull(t *testing.T) {
	ctx, init := openExtended(t), func(i *QPInit) { i.SendOps = WithSend }
	a, _ := newPair(t, ctx, init)
	sends := make([]SendWR, 128)
	for range 1 + int(a.qp.Cap().MaxSendWR)/len(sends) { // the peer has no receives
		for i := range sends {
			sends[i] = SendWR{Opcode: OpSend, NumSGE: 1}
		}
		n, err := a.qp.PostSend(sends, []SGE{a.sge(0, 8)})
		if err != nil {
			isErr(t, err, syscall.ENOMEM)
			assert.ErrorContains(t, err, "is full")
			assert.Equal(t, n, 0)
			return
		}
	}
	t.Fatal("a full queue took everything")
}
