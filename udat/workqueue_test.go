package udat

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestForgottenCompletions: completions of work that a reset has forgotten make no event, also where the numbers wrap.
func TestForgottenCompletions(t *testing.T) {
	for _, start := range []uint32{5, 0, 1<<32 - 2} {
		e := &EVD{qlen: 8, ring: newEventRing(8)}
		q := newWorkQueue(&EP{}, e, 4, false)
		e.sources.add(q)
		q.tail, q.freed, q.completed = start, start-2, start-2
		q.clear()
		q.tail += 3
		wcs := make([]fabric.WC, 5)
		for i := range wcs { // of two that are forgotten, and three
			seq := start - 2 + uint32(i)
			wcs[i].ID = q.id | uint64(seq)
			q.entry(seq).cookie = Cookie(i)
		}
		to := make([]Event, len(wcs))
		assert.Equal(t, e.completeSimple(q, wcs, to), 0)
		for i := range wcs[:2] {
			e.complete(q, &wcs[i], to)
		}
		assert.Equal(t, e.taken+e.ring.n, 0)
		assert.Equal(t, e.completeSimple(q, wcs[2:], to), 3)
		assert.Equal(t, e.taken, 3)
		assert.Equal(t, q.outstanding(), 0)
		for i, ev := range to[:3] {
			assert.Equal(t, ev.Cookie, Cookie(i+2))
		}
	}
}
