package udat

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestRingTrim: trim keeps all events in order, and room for as many as can come. A pushed event is
// empty.
func TestRingTrim(t *testing.T) {
	r := newEventRing(8)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			r.push().Cookie = Cookie(i)
		}
	}
	take := func(from, to int) {
		for i := from; i < to; i++ {
			var ev Event
			r.pop(&ev)
			assert.Equal(t, ev.Cookie, Cookie(i))
		}
	}
	put(0, 1000)
	take(0, 990)
	put(1000, 1040) // gone round
	assert.Equal(t, len(r.buf), 1024)
	r.trim(256) // a quarter of it
	assert.Equal(t, len(r.buf), 1024)
	r.trim(255)
	assert.Equal(t, len(r.buf), 256)
	r.trim(20) // 50 are there
	assert.Equal(t, len(r.buf), 64)
	take(990, 1040)
	assert.Equal(t, r.n, 0)
	r.trim(8)
	assert.Equal(t, len(r.buf), 8)
	for range 9 { // also in places that were used before
		ev := r.push()
		assert.Equal(t, *ev, Event{})
		ev.Cookie = 1
		r.pop(new(Event))
	}
}
