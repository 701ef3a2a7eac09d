package rdmanet

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// TestSilence: each Close that has waited in vain halves the time that the next may wait, down to
// about a millisecond. A Close that begins silenceTime after the last of them has the whole time.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s silence
		for range 2 {
			assert.Equal(t, s.most(), closeMost)
			for n := range 20 {
				s.inVain()
				time.Sleep(silenceTime) // not over yet: the time begins again with each
				assert.Equal(t, s.most(), closeMost>>min(n+1, 9))
			}
			time.Sleep(time.Nanosecond)
		}
		assert.Equal(t, s.most(), closeMost)
	})
}
