package verbsfabric

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

func ids(wcs []fabric.WC) (got []uint64) {
	for _, wc := range wcs {
		got = append(got, wc.ID)
	}
	return got
}

// Completions come out in the order of posting, suppressed successes not at all, and what is left
// is flushed in order.
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

// The ring of a ledger turns, with ids that come again.
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

// A queue pair that has been destroyed leaves alone the one that has got its number meanwhile.
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

// What soft-iWARP cannot run is put into a form that it can.
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
