package udat

import (
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// testSource is a source of requests on e whose endpoint is not connected.
func testSource(e *EVD) *source {
	ep := &EP{}
	ep.requests.ep = ep
	s := newSource(e, 4, 0, false)
	s.setOwner(ep, &ep.requests)
	e.sources.add(s)
	return s
}

// TestForgottenCompletions: completions of work that a reset has forgotten make no event, even if
// the sequence numbers wrap.
func TestForgottenCompletions(t *testing.T) {
	for _, start := range []uint32{5, 0, 1<<32 - 2} {
		e := &EVD{qlen: 8, ring: newEventRing(8)}
		s := testSource(e)
		q := &s.inflight
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
		e.completeAll(wcs[:2], to)
		assert.Equal(t, e.taken+e.ring.n, 0)
		e.completeAll(wcs[2:], to)
		assert.Equal(t, e.taken, 3)
		assert.Equal(t, q.count(), 0)
		for i, ev := range to[:3] {
			assert.Equal(t, ev.Cookie, Cookie(i+2))
		}
	}
}

// TestFull: a queue is full when the work in flight and the current batch reach the limit, whatever
// the sequence numbers are, and whether or not the poster has read the latest head.
func TestFull(t *testing.T) {
	const limit = 5
	for _, start := range []uint32{0, 7, 1<<31 - 2, 1 << 31, 1<<32 - 3} {
		for posted := range uint32(limit + 1) {
			for completed := range posted + 1 {
				for seen := range completed + 1 {
					for more := range limit + 1 {
						q := newInflight(limit, spareEntries, 0, new(ranked[rankEVD]))
						q.tail, q.completed, q.freed = start+posted, start+completed, start+seen
						want := int(posted-completed)+more >= limit
						assert.Equal(t, q.full(more), want, "from %d: %d posted, %d completed, %d seen, %d more", start, posted,
							completed, seen, more)
					}
				}
			}
		}
	}
}

// TestDone: work is done when the head has advanced past it, whatever the sequence numbers are.
func TestDone(t *testing.T) {
	for _, start := range []uint32{0, 7, 1<<31 - 2, 1 << 31, 1<<32 - 3} {
		for completed := range uint32(6) {
			for seq := range uint32(6) {
				q := newInflight(5, spareEntries, 0, new(ranked[rankEVD]))
				q.completed = start + completed
				assert.Equal(t, q.done(start+seq), completed >= seq, "from %d: %d completed, before %d", start, completed, seq)
			}
		}
	}
}

// TestClearForgetsBinds: the outcome of binds that are in flight when the queue is cleared is
// unknown; that of other binds is known.
func TestClearForgetsBinds(t *testing.T) {
	s := testSource(&EVD{})
	q := &s.inflight
	var regions [3]LMR
	ia := &IA{}
	r := &RMR{obj: object{ia: ia}}
	for i := range regions {
		serial := uint64(i) + 1
		r.pending = append(r.pending, binding{serial: serial, region: &regions[i]})
		r.setContext(serial, 100+uint32(i))
		*q.entry(uint32(2 * i)) = inflightEntry{op: DTOBind, rmr: r, length: serial}
	}
	q.tail, q.completed = 5, 1 // the first bind has completed, two writes and two binds have not
	forgetBinds(q, s.forget())
	assert.Equal(t, len(r.pending), 1)
	assert.Equal(t, r.pending[0].serial, uint64(1))
	assert.Equal(t, len(r.stale), 2)
	assert.Assert(t, r.stale[0] == &regions[1] && r.stale[1] == &regions[2])
	assert.Equal(t, q.count(), 0)
	// The window is found only by the context of a bind that is in flight or in force.
	r.setContext(2, 200) // of a post that returns late
	assert.Equal(t, len(ia.windows.byContext), 1)
	assert.Assert(t, ia.windows.byContext[100] == r)
}

// TestFailureWithoutConnection: work may fail after its endpoint has lost its connection: then
// there is no connection to break.
func TestFailureWithoutConnection(t *testing.T) {
	e := &EVD{qlen: 8, ring: newEventRing(8)}
	s := testSource(e)
	q := &s.inflight
	for i, st := range []fabric.Status{fabric.StatusRemoteAccess, fabric.StatusFlush} {
		q.tail++
		e.complete(s, &fabric.WC{ID: q.id | uint64(i), Status: st}, nil)
		assert.Equal(t, e.ring.n, i+1)
		assert.Equal(t, len(e.after), 0)
	}
}

// TestSizes: an event fits in two cache lines, and the fields of an inflight that a post reads are
// in one.
func TestSizes(t *testing.T) {
	assert.Equal(t, unsafe.Sizeof(Event{}), uintptr(128))
	assert.Equal(t, unsafe.Offsetof(Event{}.RMR), uintptr(64))
	assert.Assert(t, unsafe.Offsetof(inflight{}.stride) < 64)
	assert.Assert(t, unsafe.Offsetof(inflight{}.completed) >= 64)
}
