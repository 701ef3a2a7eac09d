package rdmanet

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestOwnPlaces: each control message in flight and each receive has a part of the memory of its
// own, outside of the first send ring. A request uses the part of the request 31 before it, which
// has completed.
func TestOwnPlaces(t *testing.T) {
	taken := make([]bool, ownSize)
	take := func(what string, number, place, size int) {
		t.Helper()
		assert.Assert(t, place >= 0 && place+size <= ownSize, "%s %d is at %d of %d", what, number, place, ownSize)
		for i := range size {
			assert.Assert(t, !taken[place+i], "%s %d: byte %d is another's", what, number, place+i)
			taken[place+i] = true
		}
	}
	take("data", 0, 0, firstSend)
	for i := range requests {
		take("message", i, sendPlace(uint64(i)), controlSize)
		assert.Equal(t, sendPlace(uint64(i+requests)), sendPlace(uint64(i)))
		assert.Equal(t, sendPlace(1<<40*requests+uint64(i)), sendPlace(uint64(i)))
	}
	for i := range defaultSlots {
		take("receive", i, recvPlace(i), controlSize)
	}
	assert.Assert(t, wordSize <= controlSize)
	assert.Assert(t, ownSize <= 4096, "one page, not %d bytes", ownSize)
}
