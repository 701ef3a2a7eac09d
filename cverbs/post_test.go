package cverbs

import (
	"errors"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// Segment ranges outside the slice, too many segments and unknown opcodes return an error that
// names the problem. Earlier requests of the batch are posted.
func TestPostRefusals(t *testing.T) {
	a, b := newPair(t, openDevice(t))
	sges := make([]SGE, 40)
	for i := range sges {
		sges[i] = a.sge(i, 1)
	}
	good := SendWR{ID: 1, Opcode: OpRDMAWrite, Flags: SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), NumSGE: 1}
	for _, c := range []struct {
		change func(*SendWR)
		want   string
	}{
		{func(w *SendWR) { w.FirstSGE = 40 }, "request 1: segments 40 to 41 are not among the 40 given"},
		{func(w *SendWR) { w.FirstSGE, w.NumSGE = 39, 2 }, "segments 39 to 41"},
		{func(w *SendWR) { w.FirstSGE, w.NumSGE = 1<<32-1, 1<<32-1 }, "not among the 40"},
		{func(w *SendWR) { w.NumSGE = 39 }, "39 segments, the queue takes"},
		{func(w *SendWR) { w.Opcode = OpBindMW }, "does not support opcode BIND_MW"},
		{func(w *SendWR) { w.Opcode = 200 }, "does not support opcode WROpcode(200)"},
	} {
		bad := good
		c.change(&bad)
		n, err := a.qp.PostSend([]SendWR{good, bad, good}, sges)
		assert.ErrorContains(t, err, c.want)
		assert.Assert(t, errors.Is(err, syscall.EINVAL))
		assert.Equal(t, n, 1)
		a.sent()
		k, err := a.scq.Poll(make([]WC, 4))
		assert.NilError(t, err)
		assert.Equal(t, k, 0, "nothing after the refused request was posted")
	}
	n, err := a.qp.PostRecv([]RecvWR{{NumSGE: 1}, {FirstSGE: 5, NumSGE: 36}}, sges)
	assert.ErrorContains(t, err, "request 1: segments 5 to 41 are not among the 40 given")
	assert.Equal(t, n, 1)
	n, err = a.qp.PostSend(nil, nil)
	assert.NilError(t, err)
	assert.Equal(t, n, 0)
}

// A post to an almost full receive queue accepts the requests that fit, and returns ENOMEM.
func TestPostRecvFull(t *testing.T) {
	e := newEnd(t, openDevice(t))
	wrs := make([]RecvWR, 600)
	for i := range wrs {
		wrs[i] = RecvWR{ID: uint64(i), NumSGE: 1}
	}
	n, err := e.qp.PostRecv(wrs, []SGE{e.sge(0, 8)})
	assert.Assert(t, errors.Is(err, syscall.ENOMEM), "%v", err)
	assert.ErrorContains(t, err, "is full")
	assert.Assert(t, n >= int(defaultCap.MaxRecvWR) && n < len(wrs), "%d", n)
}

// A request in the second or third chain of a batch is refused: n counts all requests before it,
// and exactly these requests are posted.
func TestPostRefusedLater(t *testing.T) {
	ctx := openRoCE(t)
	const depth, longest = 300, 600
	for _, bad := range []int{1, 127, 128, 129, 200, 255, 256, 257, longest} { // longest: none is bad
		recvs, sends := make([]RecvWR, longest), make([]SendWR, longest)
		for i := range longest {
			recvs[i] = RecvWR{ID: uint64(i), NumSGE: 1}
			sends[i] = SendWR{ID: uint64(i), Opcode: OpSend, Flags: SendSignaled, NumSGE: 1}
		}
		a, _ := newPair(t, ctx, func(i *QPInit) { i.Cap.MaxRecvWR, i.Cap.MaxSendWR = depth, depth })
		sges := []SGE{a.sge(0, 8)}
		refused := func(n int, err error, atLeast uint32) {
			t.Helper()
			if bad < longest {
				assert.ErrorContains(t, err, "are not among the 1 given")
				assert.Equal(t, n, bad)
			} else { // the device refuses a request, because the queue is full
				isErr(t, err, syscall.ENOMEM)
				assert.Assert(t, n >= depth && n >= int(atLeast) && n < longest, "%d of a queue of %d", n, atLeast)
			}
		}
		if bad < longest {
			recvs[bad].FirstSGE, sends[bad].FirstSGE = 1, 1
		}
		n, err := a.qp.PostRecv(recvs, sges)
		refused(n, err, a.qp.Cap().MaxRecvWR)
		m, err := a.qp.PostSend(sends, sges) // the peer has no receives
		refused(m, err, a.qp.Cap().MaxSendWR)
		assert.NilError(t, a.qp.ToError())
		for cq, posted := range map[*CQ]int{a.rcq: n, a.scq: m} {
			for i, wc := range poll(t, cq, posted) {
				assert.Equal(t, wc.Status, WCWRFlushErr)
				assert.Equal(t, wc.ID, uint64(i))
			}
			k, err := cq.Poll(make([]WC, 1))
			assert.NilError(t, err)
			assert.Equal(t, k, 0, "no more than n were posted")
		}
	}
}

// A post to an almost full send queue accepts the requests that fit, and returns ENOMEM. Polled
// completions free slots. The test skips on iWARP, where no send waits for a receive.
func TestPostFull(t *testing.T) {
	a, b := newPair(t, openRoCE(t))
	wrs := make([]SendWR, 600)
	for i := range wrs {
		wrs[i] = SendWR{ID: uint64(i), Opcode: OpSend, Flags: SendSignaled}
	}
	n, err := a.qp.PostSend(wrs, nil) // no receive is posted, so nothing completes
	assert.Assert(t, errors.Is(err, syscall.ENOMEM), "%v", err)
	assert.ErrorContains(t, err, "is full")
	assert.Assert(t, n >= int(defaultCap.MaxSendWR) && n < len(wrs), "%d", n)
	for range n {
		b.recv(1)
		assert.Equal(t, poll(t, a.scq, 1)[0].Status, WCSuccess)
	}
	b.recv(1)
	n, err = a.qp.PostSend(wrs[:1], nil)
	assert.NilError(t, err)
	assert.Equal(t, n, 1)
	a.sent()
}

// Posts that the state does not allow are refused before the driver can queue them.
func TestPostState(t *testing.T) {
	ctx := openRoCE(t)
	e := newEnd(t, ctx)
	n, err := e.qp.PostSend([]SendWR{{Opcode: OpSend}}, nil)
	assert.ErrorContains(t, err, "in INIT: it needs RTS")
	assert.Equal(t, n, 0)
	e.recv(1, e.sge(0, 8)) // receives may be posted in INIT
	assert.NilError(t, e.qp.ToError())
	assert.Equal(t, poll(t, e.rcq, 1)[0].Status, WCWRFlushErr)
	assert.NilError(t, e.qp.ToReset())
	_, err = e.qp.PostRecv([]RecvWR{{}}, nil)
	assert.ErrorContains(t, err, "in RESET: it needs")
	_, err = e.qp.PostSend([]SendWR{{Opcode: OpSend}}, nil)
	assert.ErrorContains(t, err, "in RESET: it needs")
	assert.Assert(t, e.qp.ToError() != nil, "RESET does not go to ERR")
}

// Posts and polls do not allocate.
func TestAllocations(t *testing.T) {
	ctx := openDevice(t)
	ch := closing[*CompChannel](t)(ctx.CreateCompChannel())
	cq := closing[*CQ](t)(ctx.CreateCQ(64, ch, 0))
	a, b := newPair(t, ctx, func(i *QPInit) { i.SendCQ = cq })
	sends := []SendWR{{Opcode: OpSend, NumSGE: 1},
		{Opcode: OpRDMAWrite, NumSGE: 1, Flags: SendSignaled, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}
	recvs := []RecvWR{{NumSGE: 1}}
	ss, rs := []SGE{a.sge(0, 8)}, []SGE{b.sge(0, 8)}
	wc := make([]WC, 16)
	deadline := soon()
	allocs := testing.AllocsPerRun(50, func() {
		if err := cq.Arm(false); err != nil {
			t.Error(err)
		}
		b.qp.PostRecv(recvs, rs)
		a.qp.PostSend(sends, ss)
		if n, err := ch.Wait(deadline); n != 1 || err != nil {
			t.Error(n, err)
		}
		if n, _ := cq.Poll(wc); n != 1 || wc[0].Status != WCSuccess {
			t.Error(n, wc[0])
		}
		b.rcq.Poll(wc)
	})
	assert.Equal(t, allocs, 0.0)
}
