package udat

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestRingTrim: trim keeps all events in their order, and room for as many as there may be.
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
	put(1000, 1060) // gone round
	assert.Equal(t, len(r.buf), 1024)
	r.trim(256) // a quarter of it
	assert.Equal(t, len(r.buf), 1024)
	r.trim(20) // 70 are there
	assert.Equal(t, len(r.buf), 128)
	take(990, 1060)
	assert.Equal(t, r.n, 0)
	r.trim(8)
	assert.Equal(t, len(r.buf), 8)
}
