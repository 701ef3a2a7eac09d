package soft

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

func ids(wcs []fabric.WC) (got []uint64) {
	for _, wc := range wcs {
		got = append(got, wc.ID)
	}
	return got
}

// Completions are returned in the order of posting, unsignaled successes are not returned, and the
// remaining requests are flushed in order.
func TestLedger(t *testing.T) {
	l := newLedger(6)
	for id := uint64(1); id <= 6; id++ {
		l.add(id, 7, id != 2)
	}
	assert.Equal(t, l.room(), 0)
	l.settle(&fabric.WC{ID: 3})
	assert.Equal(t, len(l.take(nil, false)), 0, "1 is not done")
	l.settle(&fabric.WC{ID: 1})
	l.settle(&fabric.WC{ID: 2})
	assert.DeepEqual(t, ids(l.take(nil, false)), []uint64{1, 3})
	assert.Equal(t, l.room(), 3)
	l.settle(&fabric.WC{ID: 5, Status: fabric.StatusGeneral})
	rest := l.take(nil, true)
	assert.DeepEqual(t, ids(rest), []uint64{4, 5, 6})
	for i, s := range []fabric.Status{fabric.StatusFlush, fabric.StatusGeneral, fabric.StatusFlush} {
		assert.Equal(t, rest[i].Status, s)
	}
	assert.Equal(t, rest[2].QPNum, uint32(7))
	assert.Equal(t, len(l.take(nil, true)), 0)
}

// The ring of a ledger wraps, and ids are used again.
func TestLedgerTurns(t *testing.T) {
	l := newLedger(3)
	for i := range uint64(100) {
		l.add(i%2, 1, true)
		l.add(i%2, 1, true)
		l.settle(&fabric.WC{ID: i % 2})
		l.settle(&fabric.WC{ID: i % 2})
		assert.Equal(t, len(l.take(nil, false)), 2)
		assert.Equal(t, l.room(), 3)
	}
}

// A request that the device refuses, also repeatedly, is not in the ledger: its slot stays free,
// and it makes no completion.
func TestLedgerRefused(t *testing.T) {
	tl := newTally(nil)
	a := &account{num: 5, scq: tl, rcq: tl, send: newLedger(4), recv: newLedger(4)}
	var closed *cverbs.QP // refuses everything
	for range 3 {
		n, err := a.postRecv(closed, []fabric.RecvWR{{ID: 1}, {ID: 2}}, nil)
		assert.Equal(t, n, 0)
		assert.ErrorIs(t, err, fabric.ErrClosed)
		n, err = a.postSend(closed, []fabric.SendWR{{ID: 3}, {ID: 4}, {ID: 5}}, nil)
		assert.Equal(t, n, 0)
		assert.ErrorIs(t, err, fabric.ErrClosed)
		assert.Equal(t, a.recv.room(), 4)
		assert.Equal(t, a.send.room(), 4)
	}
	a.failed = true // now nothing goes to the device: the ledger flushes it
	for _, post := range []func() (int, error){
		func() (int, error) { return a.postRecv(closed, make([]fabric.RecvWR, 6), nil) },
		func() (int, error) { return a.postSend(closed, make([]fabric.SendWR, 6), nil) },
	} {
		n, err := post()
		assert.Equal(t, n, 4)
		assert.ErrorIs(t, err, fabric.ErrQueueFull)
		n, err = post()
		assert.Equal(t, n, 0)
		assert.ErrorIs(t, err, fabric.ErrQueueFull)
	}
	tl.flush(a)
	assert.Equal(t, len(tl.out), 8)
	assert.Equal(t, a.send.room()+a.recv.room(), 8)
}

// The success of a receive is reported, and a closed account accepts no more requests.
func TestLedgerReceives(t *testing.T) {
	tl := newTally(nil)
	a := &account{num: 5, scq: tl, rcq: tl, send: newLedger(4), recv: newLedger(4), failed: true}
	tl.add(a)
	n, err := a.postRecv(nil, []fabric.RecvWR{{ID: 1}, {ID: 2}}, nil)
	assert.NilError(t, err)
	assert.Equal(t, n, 2)
	for id := range uint64(2) {
		tl.settle(&fabric.WC{ID: id + 1, QPNum: 5, Opcode: fabric.OpWCRecv, ByteLen: 7})
	}
	assert.DeepEqual(t, ids(tl.out), []uint64{1, 2})
	assert.Equal(t, tl.out[1].ByteLen, uint32(7))
	a.close()
	n, err = a.postRecv(nil, []fabric.RecvWR{{ID: 3}}, nil)
	assert.Equal(t, n, 0)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	n, err = a.postSend(nil, []fabric.SendWR{{ID: 3}}, nil)
	assert.Equal(t, n, 0)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	assert.Equal(t, a.send.room()+a.recv.room(), 8)
}

// Completions by the ledger wake a waiter once for each arming, and not without arming.
func TestTallyKick(t *testing.T) {
	tl := newTally(nil)
	tl.kick()
	assert.Assert(t, !tl.fired.Load())
	for range 2 {
		tl.armed.Store(true)
		tl.kick()
		assert.Assert(t, tl.fired.Swap(false) && !tl.armed.Load())
		tl.kick()
		assert.Assert(t, !tl.fired.Load())
	}
}

// A request whose segments do not exist is refused, and the batch ends before it.
func TestLedgerBadSegments(t *testing.T) {
	tl := newTally(nil)
	a := &account{num: 5, scq: tl, rcq: tl, send: newLedger(4), recv: newLedger(4), failed: true}
	sges := []fabric.SGE{{Length: 8}, {Length: 8}}
	n, err := a.postSend(nil, []fabric.SendWR{{NumSGE: 2}, {FirstSGE: 1, NumSGE: 1}, {FirstSGE: 1, NumSGE: 2}}, sges)
	assert.Equal(t, n, 2)
	assert.ErrorContains(t, err, "request 2: segments 1 to 3 are not among the 2 given")
	n, err = a.postRecv(nil, []fabric.RecvWR{{NumSGE: 2}, {FirstSGE: 1<<32 - 1, NumSGE: 1}}, sges)
	assert.Equal(t, n, 1)
	assert.ErrorContains(t, err, "request 1: segments 4294967295 to 4294967296")
	assert.Equal(t, a.send.room()*10+a.recv.room(), 23)
}

// The counters of a ledger pass 2^32.
func TestLedgerCounts(t *testing.T) {
	l := newLedger(3)
	l.head, l.tail = 1<<32-5, 1<<32-5
	for i := range uint64(10) {
		l.add(2*i, 1, true)
		l.add(2*i+1, 1, true)
		l.settle(&fabric.WC{ID: 2*i + 1})
		assert.Equal(t, len(l.take(nil, false)), 0)
		assert.Equal(t, l.room(), 1)
		l.settle(&fabric.WC{ID: 2 * i})
		assert.DeepEqual(t, ids(l.take(nil, false)), []uint64{2 * i, 2*i + 1})
	}
}

// Closing a destroyed queue pair's account does not affect a newer queue pair of the same number.
func TestTallyNumberUsedAgain(t *testing.T) {
	tl := newTally(nil)
	before := &account{num: 5, scq: tl, rcq: tl, send: newLedger(4)}
	after := &account{num: 5, scq: tl, rcq: tl, send: newLedger(1)}
	tl.add(before)
	tl.add(after)
	before.close()
	after.send.add(9, 5, true)
	tl.settle(&fabric.WC{ID: 9, QPNum: 5})
	assert.DeepEqual(t, ids(tl.out), []uint64{9})
	assert.Equal(t, after.send.room(), 1)
	after.close()
	assert.Equal(t, len(tl.accounts), 0)
}

// Requests that soft-iWARP cannot execute are changed to a form that it can execute.
func TestRunnable(t *testing.T) {
	sges := []fabric.SGE{{Length: 0, LKey: 1}, {Length: 8, LKey: 2}, {Length: 0, LKey: 3}}
	var a account
	w := a.runnable(fabric.SendWR{Opcode: fabric.OpSend, NumSGE: 3}, sges)
	assert.DeepEqual(t, a.sges[w.FirstSGE:][:w.NumSGE], sges[1:2])
	assert.Assert(t, w.Flags&fabric.Signaled != 0)
	w = a.runnable(fabric.SendWR{Opcode: fabric.OpSend, Flags: fabric.Inline, FirstSGE: 2, NumSGE: 1}, sges)
	assert.Assert(t, w.NumSGE == 0 && w.Flags&fabric.Inline == 0)
	w = a.runnable(fabric.SendWR{Opcode: fabric.OpRead, Flags: fabric.Fence}, nil)
	assert.Assert(t, w.NumSGE == 1 && w.Flags&fabric.Fence == 0)
	assert.DeepEqual(t, a.sges[w.FirstSGE:][:1], []fabric.SGE{{}})

	recvs, out := withSegments(nil, nil, []fabric.RecvWR{{ID: 1}, {ID: 2, NumSGE: 3}, {ID: 3, FirstSGE: 2, NumSGE: 1}},
		sges)
	assert.DeepEqual(t, recvs,
		[]fabric.RecvWR{{ID: 1, NumSGE: 1}, {ID: 2, FirstSGE: 1, NumSGE: 1}, {ID: 3, FirstSGE: 2, NumSGE: 1}})
	assert.DeepEqual(t, out, []fabric.SGE{{}, sges[1], {}})
}

// A destroyed queue pair leaves nothing in its queues, even if the device has flushed it before:
// its ledgers are not polled any more.
func TestTallyForgets(t *testing.T) {
	send, recv := newTally(nil), newTally(nil)
	for num := range uint32(3) {
		a := &account{num: num, scq: send, rcq: recv, send: newLedger(4), recv: newLedger(4)}
		send.add(a)
		recv.add(a)
		assert.NilError(t, a.fail(func() error { return nil }))
		assert.Equal(t, len(send.over)+len(recv.over), 2)
		a.close()
		assert.Equal(t, len(send.over)+len(recv.over)+len(send.accounts)+len(recv.accounts), 0)
	}
}
