package memfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestClosedPairRests: when both queue pairs of a connection are closed, no link of them is queued
// for an engine.
func TestClosedPairRests(t *testing.T) {
	f := New()
	a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
	join(t, a, b)
	assert.NilError(t, a.qp.Close())
	assert.NilError(t, b.qp.Close())
	devices := []*Device{a.dev, b.dev}
	parked := func() bool {
		for _, d := range devices {
			d.ready.mu.Lock()
			rests := d.ready.parked && len(d.ready.links) == 0
			d.ready.mu.Unlock()
			if !rests {
				return false
			}
		}
		return true
	}
	for until := time.Now().Add(time.Minute); !parked(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until), "an engine does not rest")
	}
	for range 20 { // and stays so
		assert.Assert(t, parked())
		time.Sleep(time.Millisecond)
	}
}
