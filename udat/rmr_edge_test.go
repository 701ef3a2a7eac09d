package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestRMROneByte binds windows of one byte: a peer can access the byte, and the region is in use,
// as with every length except 0.
func TestRMROneByte(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		r := b.window(t)
		l := b.lmr(16, udat.PrivAll)
		tr := b.bind(t, r, l, 5, 1, bothRights)
		refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		tr.SegmentLength = 1
		data := a.put(0, 1, 7)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 1), 1, tr, 0))
		completion(t, a.request, 1)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(8, 1), 2, tr, 0))
		completion(t, a.request, 2)
		assert.DeepEqual(t, a.get(8, 1), data)
		assert.Equal(t, l.Bytes()[5], data[0])
		assert.NilError(t, r.Free())
		assert.NilError(t, l.Free())
		rule.Proves(t, "RMR-BIND-12")
	})
}

// TestRMRFreedBeforeFlush frees windows whose binds have been flushed, before the completions are
// drained: the reference to the region is dropped once, and a window that was bound before still
// keeps the region in use.
func TestRMRFreedBeforeFlush(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		l, other := b.lmr(16, udat.PrivAll), b.window(t)
		b.bind(t, other, l, 0, 8, bothRights)
		part(t, a, b, udat.CloseAbrupt)
		for range 3 {
			r := b.window(t)
			_, err := r.Bind(l.Triplet(0, 8), bothRights, b.ep, 1, 0)
			assert.NilError(t, err)
			assert.NilError(t, r.Free())
			ev := expect(t, b.request, udat.EventRMRBindCompletion)
			assert.Equal(t, ev.Status, udat.DTOErrFlushed)
			refused(t, l.Free(), udat.InvalidState, udat.SubStateLMRInUse)
		}
		assert.NilError(t, other.Free())
		assert.NilError(t, l.Free())
		rule.Proves(t, "RMR-BIND-12")
	})
}
