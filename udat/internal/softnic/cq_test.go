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
	empty := func() {
		for range 2 * EmptyPolls {
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
	empty()
	assert.Equal(t, len(c.ring), 2*leastRing) // too short to shrink
	push(depth)
	assert.Equal(t, len(c.ring), depth)
	poll(depth)
	empty()
	assert.Equal(t, len(c.ring), keptRing)
	push(depth)
	poll(depth)
	assert.Equal(t, c.Depth(), depth)
	assert.Assert(t, !c.overrun)
}
