package softnic

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestRing: the ring of a completion queue is as long as it has to be. Completions keep their order
// while it grows, also where it has gone round. A burst that is over gives its memory back, and the
// depth stays what it is.
func TestRing(t *testing.T) {
	const depth = 5000
	c := &CQ{ring: make([]fabric.WC, leastRing), depth: depth, bell: make(chan struct{}, 1)}
	in, out := uint64(0), uint64(0)
	push := func(n int) {
		for range n {
			c.push(&fabric.WC{ID: in}, false)
			in++
		}
	}
	wcs := make([]fabric.WC, depth)
	poll := func(n int) {
		got, err := c.Poll(wcs[:n], 1)
		assert.NilError(t, err)
		assert.Equal(t, got, n)
		for _, wc := range wcs[:n] {
			assert.Equal(t, wc.ID, out)
			out++
		}
	}
	empty := func(times int) {
		for range times * EmptyPolls {
			n, err := c.Poll(wcs, 1)
			assert.NilError(t, err)
			assert.Equal(t, n, 0)
		}
	}
	push(leastRing)
	poll(10)
	push(15) // gone round, and longer
	assert.Equal(t, len(c.ring), 2*leastRing)
	poll(21)
	empty(2)
	assert.Equal(t, len(c.ring), 2*leastRing) // too short to shrink
	push(depth)
	assert.Equal(t, len(c.ring), depth)
	poll(depth)
	empty(2)
	assert.Equal(t, len(c.ring), keptRing)
	push(depth)
	for range 3 * EmptyPolls { // a poll for none has not found the queue empty
		n, err := c.Poll(nil, 1)
		assert.NilError(t, err)
		assert.Equal(t, n, 0)
	}
	assert.Equal(t, len(c.ring), depth)
	poll(depth)
	empty(1) // that was a burst just now
	assert.Equal(t, len(c.ring), depth)
	push(keptRing)
	poll(keptRing)
	empty(1)
	assert.Equal(t, len(c.ring), 2*keptRing)
	empty(2) // a ring of twice the length needed stays
	assert.Equal(t, len(c.ring), 2*keptRing)
	assert.Equal(t, c.Depth(), depth)
	assert.Assert(t, !c.overrun)
}
