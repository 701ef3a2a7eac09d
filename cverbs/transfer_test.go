package cverbs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"
)

// Sends of several sizes arrive intact, with and without immediate data, gathered and scattered
// over segments.
func TestSend(t *testing.T) {
	a, b := newPair(t, openDevice(t))
	for _, n := range []int{0, 1, 63, 1024, 1025, 40000} {
		copy(b.buf, make([]byte, len(b.buf)))
		fill(a.buf[:n], byte(n))
		b.recv(7, b.sge(0, 10), b.sge(100, 50000))
		segments := []SGE{a.sge(0, n/3), a.sge(n/3, n-n/3)}
		if isIWARP(t, a.ctx) && n < 3 {
			segments = nil // siw's post never returns from segments of length 0
			n = 0
		}
		a.send(SendWR{ID: 9, Opcode: OpSend}, segments...)
		assert.Equal(t, a.sent().ID, uint64(9))
		wc := b.received()
		assert.Equal(t, wc.ID, uint64(7))
		assert.Equal(t, wc.Opcode, WCRecv)
		assert.Equal(t, wc.ByteLen, uint32(n))
		assert.Equal(t, wc.QPNum, b.qp.Num())
		got := append(append([]byte{}, b.buf[:min(n, 10)]...), b.buf[100:100+max(n-10, 0)]...)
		assert.Assert(t, bytes.Equal(got, a.buf[:n]), "%d bytes", n)
	}
	if isIWARP(t, a.ctx) {
		return // no immediate data
	}
	b.recv(1, b.sge(0, 8))
	a.send(SendWR{Opcode: OpSendWithImm, Imm: 0x01020304}, a.sge(0, 8))
	a.sent()
	wc := b.received()
	assert.Equal(t, wc.Imm, uint32(0x01020304)) // host order on both sides
	assert.Equal(t, wc.Flags&WCWithImm, WCWithImm)
}

// TestWriteImm: an RDMA write with immediate data completes a receive, which reports the value in
// host order.
func TestWriteImm(t *testing.T) {
	a, b := newPair(t, openRoCE(t))
	fill(a.buf[:3000], 3)
	b.recv(5)
	a.send(SendWR{Opcode: OpRDMAWriteWithImm, Imm: 77, RemoteAddr: b.mr.Addr() + 16, RKey: b.mr.RKey()}, a.sge(0, 3000))
	assert.Equal(t, a.sent().Opcode, WCRDMAWrite)
	wc := b.received()
	assert.Equal(t, wc.Opcode, WCRecvRDMAWithImm)
	assert.Equal(t, wc.Imm, uint32(77))
	assert.Equal(t, wc.ByteLen, uint32(3000))
	assert.Assert(t, bytes.Equal(b.buf[16:3016], a.buf[:3000]))
}

func TestWriteAndRead(t *testing.T) {
	a, b := newPair(t, openDevice(t))
	fence := SendFence
	if isIWARP(t, a.ctx) {
		fence = 0 // siw refuses fenced reads, and executes reads in order anyway
	}
	for _, n := range []int{0, 1, 1024, 50000} {
		fill(a.buf[:n], byte(n+1))
		a.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}, a.sge(0, n))
		a.sent()
		assert.Assert(t, bytes.Equal(b.buf[:n], a.buf[:n]))
		fill(b.buf[:n], byte(n+2))
		a.send(SendWR{Opcode: OpRDMARead, Flags: fence, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}, a.sge(0, n))
		assert.Equal(t, a.sent().Opcode, WCRDMARead)
		assert.Assert(t, bytes.Equal(a.buf[:n], b.buf[:n]))
	}
}

func TestAtomics(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	a, b := newPair(t, ctx)
	le := binary.NativeEndian
	le.PutUint64(b.buf, 5)
	wr := SendWR{Opcode: OpAtomicFetchAndAdd, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), CompareAdd: 10}
	a.send(wr, a.sge(8, 8))
	assert.Equal(t, a.sent().Opcode, WCFetchAdd)
	assert.Equal(t, le.Uint64(a.buf[8:]), uint64(5))
	assert.Equal(t, le.Uint64(b.buf), uint64(15))
	for _, c := range []struct{ compare, after uint64 }{{14, 15}, {15, 99}} {
		wr.Opcode, wr.CompareAdd, wr.Swap = OpAtomicCmpAndSwp, c.compare, 99
		a.send(wr, a.sge(8, 8))
		assert.Equal(t, a.sent().Opcode, WCCompSwap)
		assert.Equal(t, le.Uint64(a.buf[8:]), uint64(15))
		assert.Equal(t, le.Uint64(b.buf), c.after)
	}
}

// Inline data is copied during the post: the memory need not be registered and may be reused at
// once.
func TestInline(t *testing.T) {
	a, b := newPair(t, openDevice(t))
	small := fill(make([]byte, 64), 1)
	pinned := closing[*MR](t)(a.pd.RegMR(small, 0)) // only to fix the address
	b.recv(1, b.sge(0, 64))
	a.send(SendWR{Opcode: OpSend, Flags: SendInline}, SGE{Addr: pinned.Addr(), Length: 64, LKey: 0xdead})
	want := bytes.Clone(small)
	fill(small, 2)
	a.sent()
	b.received()
	assert.Assert(t, bytes.Equal(b.buf[:64], want))

	_, err := a.qp.PostSend([]SendWR{{Opcode: OpSend, Flags: SendInline, NumSGE: 1}}, []SGE{a.sge(0, 1<<15)})
	assert.ErrorContains(t, err, "inline data is limited")
}

// A batch is posted in order by one call, even if it is longer than one chain of the shim.
func TestBatch(t *testing.T) {
	ctx := openDevice(t)
	a, b := newPair(t, ctx, func(i *QPInit) { i.Cap.MaxSendWR, i.Cap.MaxRecvWR = 300, 300 })
	const n = 290
	recvs, sends := make([]RecvWR, n), make([]SendWR, n)
	rs, ss := make([]SGE, n), make([]SGE, n)
	for i := range n {
		recvs[i] = RecvWR{ID: uint64(i), FirstSGE: uint32(i), NumSGE: 1}
		rs[i] = b.sge(i*16, 16)
		sends[i] = SendWR{ID: uint64(i), Opcode: OpSend, Flags: SendSignaled, FirstSGE: uint32(n - 1 - i), NumSGE: 1}
		ss[i] = a.sge(i*16, 16)
		copy(a.buf[i*16:], fmt.Sprintf("message %7d", i))
	}
	k, err := b.qp.PostRecv(recvs, rs)
	assert.NilError(t, err)
	assert.Equal(t, k, n)
	k, err = a.qp.PostSend(sends, ss)
	assert.NilError(t, err)
	assert.Equal(t, k, n)
	for i, wc := range poll(t, a.scq, n) {
		assert.Equal(t, wc.ID, uint64(i))
	}
	for i, wc := range poll(t, b.rcq, n) {
		assert.Equal(t, wc.Status, WCSuccess)
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, string(b.buf[i*16:i*16+15]), fmt.Sprintf("message %7d", n-1-i))
	}
}

// Unreliable connections carry sends and writes.
func TestUC(t *testing.T) {
	ctx := openRoCE(t)
	notOnLoop(t, ctx)
	a, b := newPair(t, ctx, func(i *QPInit) { i.Type = QPTypeUC })
	assert.Equal(t, a.qp.Type(), QPTypeUC)
	fill(a.buf[:100], 1)
	b.recv(1, b.sge(0, 100))
	a.send(SendWR{Opcode: OpSend}, a.sge(0, 100))
	a.sent()
	b.received()
	assert.Assert(t, bytes.Equal(b.buf[:100], a.buf[:100]))
}

// With SigAll unsignalled requests complete too.
func TestSigAll(t *testing.T) {
	a, b := newPair(t, openDevice(t), func(i *QPInit) { i.SigAll = true })
	_, err := a.qp.PostSend([]SendWR{{ID: 3, Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}, nil)
	assert.NilError(t, err)
	assert.Equal(t, a.sent().ID, uint64(3))
}

// The completion of a failed request has the status, the id and the queue pair, and 0 in the fields
// that are undefined then. Later requests are flushed.
func TestErrorCompletion(t *testing.T) {
	a, b := newPair(t, openDevice(t))
	a.recv(30, a.sge(0, 8))
	a.send(SendWR{ID: 1, Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() ^ 0xffff00}, a.sge(0, 8))
	wc := poll(t, a.scq, 1)[0]
	assert.Equal(t, wc.ID, uint64(1))
	assert.Equal(t, wc.QPNum, a.qp.Num())
	if isIWARP(t, a.ctx) { // a write is done when TCP has it: the peer's refusal ends the connection
		assert.Equal(t, wc.Status, WCSuccess)
		wc = poll(t, a.rcq, 1)[0]
		assert.Equal(t, wc.Status, WCWRFlushErr)
		assert.Equal(t, wc.ID, uint64(30))
		assert.Equal(t, wc.ByteLen|wc.Imm|wc.SrcQP|uint32(wc.Flags), uint32(0))
		return
	}
	assert.Equal(t, wc.Status, WCRemAccessErr)
	assert.Equal(t, wc.ByteLen|wc.Imm|wc.SrcQP|uint32(wc.Flags), uint32(0))
	assert.Equal(t, poll(t, a.rcq, 1)[0].Status, WCWRFlushErr)
	state, err := a.qp.State()
	assert.NilError(t, err)
	assert.Equal(t, state, QPStateErr)
	a.send(SendWR{ID: 2, Opcode: OpSend}) // in ERR posts are accepted and flushed
	assert.Equal(t, poll(t, a.scq, 1)[0].Status, WCWRFlushErr)
}

// TestPeerGone: a request fails after its retries if the peer's queue pair no longer exists, or is
// in ERR, even if it waited for a receive for ever before; and no later request succeeds.
func TestPeerGone(t *testing.T) {
	ctx := openRoCE(t)
	cases := map[string]struct {
		leave   func(*QP) error
		unready bool // the requests are posted first
	}{
		"gone": {(*QP).Close, false}, "gone while unready": {(*QP).Close, true},
		"in error": {(*QP).ToError, false}, "in error while unready": {(*QP).ToError, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(t, ctx), newEnd(t, ctx)
			b.connect(a)
			path := a.path(b.qp.Num())
			path.Timeout, path.RetryCnt = 10, 2 // soft-RoCE retries for ever if RetryCnt is 7
			assert.NilError(t, a.qp.ToRTR(path))
			assert.NilError(t, a.qp.ToRTS(path))
			if !c.unready {
				assert.NilError(t, c.leave(b.qp))
			}
			a.send(SendWR{ID: 1, Opcode: OpSend}, a.sge(0, 1))
			a.send(SendWR{ID: 2, Opcode: OpSend}, a.sge(0, 1))
			if c.unready {
				assert.NilError(t, c.leave(b.qp))
			}
			var status []WCStatus
			for _, wc := range poll(t, a.scq, 2) {
				status = append(status, wc.Status)
			}
			assert.DeepEqual(t, status, []WCStatus{WCRetryExcErr, WCWRFlushErr})
		})
	}
}

// Two processes that exchange the numbers of their queue pairs and their GIDs, as BestGID chooses
// them, reach each other. The test runs again in the second process.
func TestTwoProcesses(t *testing.T) {
	const again = "GODAT_SECOND_PROCESS"
	e := newEnd(t, openRoCE(t))
	mine, _, err := e.ctx.BestGID(1)
	assert.NilError(t, err)
	meet := func(w io.Writer, r io.Reader) {
		t.Helper()
		var num uint32
		var gid string
		_, err := fmt.Fprintf(w, "%d %x\n", e.qp.Num(), mine.GID[:])
		assert.NilError(t, err)
		_, err = fmt.Fscan(r, &num, &gid)
		assert.NilError(t, err)
		path := e.path(num)
		_, err = hex.Decode(path.AH.DGID[:], []byte(gid))
		assert.NilError(t, err)
		e.recv(1, e.sge(0, 8))
		assert.NilError(t, e.qp.ToRTR(path))
		assert.NilError(t, e.qp.ToRTS(path))
	}
	if os.Getenv(again) != "" {
		meet(os.Stdout, os.Stdin)
		e.received()
		e.send(SendWR{Opcode: OpSend}, e.sge(0, 8))
		e.sent()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTwoProcesses$")
	cmd.Env = append(os.Environ(), again+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	meet(in, out)
	copy(e.buf[8:], "question")
	e.send(SendWR{Opcode: OpSend}, e.sge(8, 8))
	e.sent()
	e.received()
	assert.Equal(t, string(e.buf[:8]), "question")
	assert.NilError(t, cmd.Wait())
}
