package cverbs

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The receives of one SRQ serve several queue pairs. The limit event comes once, when fewer
// receives than the limit are left.
func TestSRQ(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	pd := closing[*PD](t)(ctx.AllocPD())
	srq := closing[*SRQ](t)(pd.CreateSRQ(SRQInit{MaxWR: 32, MaxSGE: 1}))
	attr, err := srq.Query()
	assert.NilError(t, err)
	assert.Assert(t, attr.MaxWR >= 32 && attr.MaxSGE >= 1)
	buf := make([]byte, 1000)
	mr := closing[*MR](t)(pd.RegMR(buf, AccessLocalWrite))
	cq := closing[*CQ](t)(ctx.CreateCQ(64, nil, 0))
	var servers, clients []*end
	for range 2 {
		c, s := newEnd(t, ctx), newEnd(t, ctx)
		s.qp.Close()
		s.pd, s.rcq = pd, cq
		s.qp = closing[*QP](t)(pd.CreateQP(QPInit{SendCQ: s.scq, RecvCQ: cq, SRQ: srq, Cap: defaultCap}))
		assert.NilError(t, s.qp.ToInit(1, 0))
		join(t, c, s)
		servers, clients = append(servers, s), append(clients, c)
	}
	wrs, sges := make([]RecvWR, 8), make([]SGE, 8)
	for i := range wrs {
		wrs[i] = RecvWR{ID: uint64(i), FirstSGE: uint32(i), NumSGE: 1}
		sges[i] = SGE{Addr: mr.Addr() + uint64(i*100), Length: 100, LKey: mr.LKey()}
	}
	n, err := srq.PostRecv(wrs, sges)
	assert.NilError(t, err)
	assert.Equal(t, n, 8)
	assert.NilError(t, srq.SetLimit(6))
	for i := range 4 {
		from := clients[i%2]
		fill(from.buf[:100], byte(i))
		from.send(SendWR{Opcode: OpSend}, from.sge(0, 100))
		from.sent()
		wc := poll(t, cq, 1)[0]
		assert.Equal(t, wc.Status, WCSuccess)
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, wc.QPNum, servers[i%2].qp.Num())
		assert.Assert(t, bytes.Equal(buf[i*100:i*100+100], from.buf[:100]))
	}
	ev, err := ctx.AsyncEvent(soon())
	assert.NilError(t, err)
	assert.Equal(t, ev, AsyncEvent{Type: AsyncSRQLimitReached, SRQ: srq})

	assert.NilError(t, srq.Resize(100))
	_, err = srq.PostRecv([]RecvWR{{FirstSGE: 0, NumSGE: 2}}, sges[:1])
	assert.ErrorContains(t, err, "segments 0 to 2 are not among the 1 given")
	_, err = srq.PostRecv([]RecvWR{{NumSGE: 8}}, sges)
	isErr(t, err, syscall.EINVAL)
	_, err = pd.CreateSRQ(SRQInit{MaxWR: 0, MaxSGE: 1})
	assert.ErrorContains(t, err, "MaxWR 0")
	_, err = pd.CreateSRQ(SRQInit{MaxWR: 1 << 30, MaxSGE: 1})
	assert.ErrorContains(t, err, "DeviceAttr.MaxSRQWR")

	isErr(t, srq.Close(), ErrInUse)
	assert.ErrorContains(t, srq.Close(), "close SRQ: in use by 2 QP")
	assert.ErrorContains(t, pd.Close(), "close PD: in use by 1 MR, 1 SRQ, 2 QP")
	for _, s := range servers {
		assert.NilError(t, s.qp.Close())
	}
	assert.NilError(t, srq.Close())
	assert.Equal(t, srq.Close(), ErrClosed)
	_, err = srq.PostRecv(make([]RecvWR, 1), nil)
	assert.Equal(t, err, ErrClosed)
	assert.Equal(t, srq.SetLimit(1), ErrClosed)
}

// A window of either type gives the peer access to part of a region, with a separate key.
func TestMW(t *testing.T) {
	ctx := openRoCE(t)
	for _, typ := range []MWType{MWType1, MWType2} {
		a, b := newPair(t, ctx)
		mw, err := b.pd.AllocMW(typ)
		if errors.Is(err, ErrNotSupported) {
			t.Skip(err)
		}
		closing[*MW](t)(mw, err)
		bind := BindWR{ID: 4, Flags: SendSignaled, MR: b.mr, Addr: b.mr.Addr() + 100, Length: 200,
			Access: AccessRemoteWrite | AccessRemoteRead}
		for range 2 {
			before := mw.RKey()
			key, err := b.qp.BindMW(mw, bind)
			assert.NilError(t, err)
			assert.Equal(t, key, mw.RKey())
			assert.Assert(t, key != before)
			wc := b.sent()
			assert.Equal(t, wc.Opcode, WCBindMW)
			assert.Equal(t, wc.ID, uint64(4))
			fill(a.buf[:200], 9)
			a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr() + 100, RKey: key}, a.sge(0, 200))
			a.sent()
			assert.Assert(t, bytes.Equal(b.buf[100:300], a.buf[:200]))
			if typ == MWType2 { // the owner invalidates, and may bind again
				b.send(SendWR{Opcode: OpLocalInv, RKey: key})
				assert.Equal(t, b.sent().Opcode, WCLocalInv)
			}
		}
		if typ == MWType1 {
			bind.Length = 0
			_, err = b.qp.BindMW(mw, bind)
			assert.NilError(t, err)
			b.sent()
		}
	}
}

// The peer's send invalidates the key of a type 2 window: the receive's completion carries the key,
// and the key no longer works.
func TestSendWithInvalidate(t *testing.T) {
	a, b := newPair(t, openRoCE(t))
	mw, err := b.pd.AllocMW(MWType2)
	if errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	}
	closing[*MW](t)(mw, err)
	key, err := b.qp.BindMW(mw,
		BindWR{Flags: SendSignaled, MR: b.mr, Addr: b.mr.Addr(), Length: 64, Access: AccessRemoteWrite})
	assert.NilError(t, err)
	b.sent()
	b.recv(1, b.sge(100, 8))
	a.send(SendWR{Opcode: OpSendWithInv, RKey: key}, a.sge(0, 8))
	a.sent()
	wc := b.received()
	assert.Equal(t, wc.Flags&WCWithInv, WCWithInv)
	assert.Equal(t, wc.Imm, key) // a key is not immediate data: no byte swap
	a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: key}, a.sge(0, 8))
	assert.Equal(t, poll(t, a.scq, 1)[0].Status, WCRemAccessErr)
}

// A UD queue pair takes only sends. Any other request, and a bind, is refused before the driver
// sees it: soft-RoCE's driver crashes on it.
func TestUDOpcodes(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	e := newEnd(t, ctx, func(i *QPInit) { i.Type = QPTypeUD })
	e.connect(e)
	ah := closing[*AH](t)(e.pd.CreateAH(e.path(0).AH))
	for op := range OpAtomicWrite + 1 {
		n, err := e.qp.PostSend([]SendWR{{Opcode: op, Flags: SendSignaled, NumSGE: 1, RemoteAddr: 8, RKey: 1, AH: ah.Handle(),
			RemoteQPN: e.qp.Num()}}, []SGE{e.sge(0, 8)})
		if op == OpSend || op == OpSendWithImm {
			assert.NilError(t, err)
			e.sent()
			continue
		}
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, fmt.Sprintf("does not support opcode %v on a queue pair of type UD", op))
		assert.Equal(t, n, 0)
	}
	for _, typ := range []MWType{MWType1, MWType2} {
		mw, err := e.pd.AllocMW(typ)
		if errors.Is(err, ErrNotSupported) {
			t.Skip(err)
		}
		closing[*MW](t)(mw, err)
		_, err = e.qp.BindMW(mw, BindWR{MR: e.mr, Addr: e.mr.Addr(), Length: 8, Access: AccessRemoteRead})
		isErr(t, err, syscall.EINVAL)
		assert.ErrorContains(t, err, "type UD")
	}
}

// Datagrams reach the destination of the address handle. The 40 bytes of the global route header
// precede the data.
func TestUD(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	datagrams(t, ctx, func(i *QPInit) { i.Type = QPTypeUD })
}

// datagrams exchanges datagrams between queue pairs that ud configures.
func datagrams(t *testing.T, ctx *Context, ud func(*QPInit)) {
	t.Helper()
	a, b := newEnd(t, ctx, ud), newEnd(t, ctx, ud)
	for _, e := range []*end{a, b} {
		assert.NilError(t, e.qp.ToRTR(QPAttr{}))
		assert.NilError(t, e.qp.ToRTS(QPAttr{}))
	}
	_, err := a.pd.CreateAH(AHAttr{Port: 1, IsGlobal: true, DGID: a.path(0).AH.DGID, SGIDIndex: 250})
	var refused *Error
	assert.Assert(t, errors.As(err, &refused) && refused.Errno != 0, "%v", err)
	assert.ErrorContains(t, err, "from SGIDIndex 250 of port 1")
	ah := closing[*AH](t)(a.pd.CreateAH(a.path(0).AH))
	b.recv(1, b.sge(0, 140))
	fill(a.buf[:100], 5)
	wr := SendWR{Opcode: OpSendWithImm, Imm: 0xcafe, AH: ah.Handle(), RemoteQPN: b.qp.Num(), RemoteQKey: 0x11111111}
	a.send(wr, a.sge(0, 100))
	a.sent()
	wc := b.received()
	assert.Equal(t, wc.ByteLen, uint32(140))
	assert.Equal(t, wc.SrcQP, a.qp.Num())
	assert.Equal(t, wc.Flags, WCGRH|WCWithImm)
	assert.Equal(t, wc.Imm, uint32(0xcafe))
	assert.Assert(t, bytes.Equal(b.buf[40:140], a.buf[:100]))

	// Every post checks the address handle: a closed handle or a random number is refused.
	assert.NilError(t, ah.Close())
	again := closing[*AH](t)(a.pd.CreateAH(a.path(0).AH)) // may get the same slot
	for _, h := range []uint64{0, ah.Handle(), 1 << 40, 12345} {
		wr.AH = h
		n, err := a.qp.PostSend([]SendWR{wr}, nil)
		assert.ErrorContains(t, err, "address handle")
		assert.Equal(t, n, 0)
	}
	assert.Assert(t, again.Handle() != ah.Handle())
	assert.Equal(t, ah.Close(), ErrClosed)
}

// An event carries its object; without an event the wait ends at its deadline.
func TestAsyncEvents(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	a, _ := newPair(t, ctx)
	_, err := ctx.AsyncEvent(time.Now().Add(20 * time.Millisecond))
	assert.Assert(t, err != nil)
	ctx.WakeAsync()
	_, err = ctx.AsyncEvent(time.Time{})
	assert.Assert(t, err != nil)

	for range 3 { // SQD: the send queue is drained
		assert.NilError(t, a.qp.Modify(QPAttr{State: QPStateSQD, EnSQDAsyncNotify: true}, QPAttrState|QPAttrEnSQDAsyncNotify))
		ev, err := ctx.AsyncEvent(soon())
		assert.NilError(t, err)
		assert.Equal(t, ev, AsyncEvent{Type: AsyncSQDrained, QP: a.qp})
		assert.NilError(t, a.qp.Modify(QPAttr{State: QPStateRTS}, QPAttrState))
	}
	// An object with an unread event can be closed.
	assert.NilError(t, a.qp.Modify(QPAttr{State: QPStateSQD, EnSQDAsyncNotify: true}, QPAttrState|QPAttrEnSQDAsyncNotify))
	time.Sleep(20 * time.Millisecond)
	assert.NilError(t, a.qp.Close())
}
