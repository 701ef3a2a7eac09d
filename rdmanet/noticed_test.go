package rdmanet

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestNoticed: a peer may say that it has taken notices that have been sent, each once.
func TestNoticed(t *testing.T) {
	c := new(Conn)
	c.out.notices = 40
	for _, n := range []uint64{0, 32, 32, 40} {
		assert.NilError(t, c.noticed(n), "%d", n)
		assert.Equal(t, c.out.noticed, n)
	}
	c.out.notices, c.out.noticed = 40, 32
	for _, n := range []uint64{31, 41, 64, 72, 73, 1 << 63, 1<<64 - 1} {
		assert.ErrorContains(t, c.noticed(n), "notices are taken", "%d", n)
		assert.Equal(t, c.out.noticed, uint64(32))
	}
}
