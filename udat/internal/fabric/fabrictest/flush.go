package fabrictest

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// In the error state all work is flushed in order, including work that is posted in that state.
func testFlush(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	if n.iwarp() {
		t.Skip("iWARP ends the connection at a send without a receive, and flushes nothing that is posted then")
	}
	a, _ := n.pair(settings{})
	for i := range 4 {
		a.recv(uint64(i), 0, 8)
		a.send(fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled}, 0, 8) // waits for a receive
	}
	assert.NilError(t, a.qp.SetError())
	assert.NilError(t, a.qp.SetError())
	for i := 4; i < 8; i++ {
		a.recv(uint64(i), 0, 8)
		a.send(fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend}, 0, 8) // not signalled: its error is reported all the same
	}
	flushed(t, a.rcq, 8)
	flushed(t, a.scq, 8)
}

// Batches that are posted after the error are flushed, even after the queue has wrapped around many
// times.
func testFlushBatches(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	for _, size := range []int{2, 3, 4} {
		a, _ := n.pair(settings{depth: 7})
		assert.NilError(t, a.qp.SetError())
		for range 16 {
			wrs := make([]fabric.SendWR, size)
			for i := range wrs {
				wrs[i] = fabric.SendWR{ID: uint64(i), Opcode: fabric.OpSend, Flags: fabric.Signaled}
			}
			k, err := a.qp.PostSend(wrs, nil)
			assert.NilError(t, err)
			assert.Equal(t, k, size)
			flushed(t, a.scq, size)
		}
	}
}

// A queue pair that was never connected flushes too.
func testFlushUnconnected(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	e := n.newEnd(settings{})
	e.recv(0, 0, 8)
	awaitNone(t, e.rcq)
	assert.NilError(t, e.qp.SetError())
	if n.iwarp() {
		flushed(t, e.rcq, 1)
		t.Skip("soft-iWARP does not flush what is posted in error")
	}
	e.recv(1, 0, 8)
	e.send(fabric.SendWR{ID: 0, Opcode: fabric.OpSend}, 0, 8)
	flushed(t, e.rcq, 2)
	flushed(t, e.scq, 1)
}

// A call of flushed waits until requests 0 to n-1 have completed as flushed, in order.
func flushed(t *testing.T, cq fabric.CQ, n int) {
	t.Helper()
	for i, wc := range complete(t, cq, n) {
		assert.Equal(t, wc.ID, uint64(i))
		assert.Equal(t, wc.Status, fabric.StatusFlush)
	}
}
