package udat

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestSpinners: half of the processors spin at once, at least one, and a refused call takes no
// place.
func TestSpinners(t *testing.T) {
	for processors, most := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 4, 9: 4} {
		for range 2 { // the first turn has left nothing behind
			var spin []*spinning
			for range 10 {
				if s := new(spinning); s.begin(processors) {
					assert.Assert(t, s.done && s.useless)
					spin = append(spin, s)
				}
			}
			assert.Equal(t, len(spin), most, "%d processors", processors)
			for _, s := range spin {
				s.end()
			}
		}
	}
}

// TestSpinScore: a useful spin counts twice as much as one that was not, within limits.
func TestSpinScore(t *testing.T) {
	useful, limit := spinning{limit: time.Minute, began: time.Now()}, spinScore(spinTrust)
	useless, late := useful, useful
	useless.useless = true
	late.began = late.began.Add(-2 * late.limit)
	for _, c := range []struct {
		before spinScore
		s      spinning
		came   bool
		after  spinScore
	}{
		{0, useful, true, 2}, {limit - 1, useful, true, limit}, {limit, useful, true, limit}, {0, spinning{}, true, 0},
		{0, useful, false, -1}, {0, useless, true, -1}, {0, late, true, -1}, {-limit, useful, false, -limit},
	} {
		c.before.learn(&c.s, c.came)
		assert.Equal(t, c.before, c.after, "%+v %v", c.s, c.came)
	}
	spun := spinning{limit: time.Minute, done: true}
	assert.Assert(t, useful.due(0) && !spun.due(0) && !new(spinning).due(0))
}
