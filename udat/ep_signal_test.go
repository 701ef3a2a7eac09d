package udat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestSuppressedHalf: suppressed operations never find the queue full if MaxRequestDTOs is twice
// the number in flight, as doc.go promises.
func TestSuppressedHalf(t *testing.T) {
	for _, limit := range []int{2, 3, 4, 7, 8, 16, 64} {
		synctest.Test(t, func(t *testing.T) {
			a, b := pair(t, "mem0", setup{attr: &udat.EPAttr{MaxRequestDTOs: limit}})
			const wire = 400 * time.Millisecond
			a.faults().Delay(wire)
			every := wire/time.Duration(limit/2) + time.Millisecond // fewer than limit/2 are in flight when the next is posted
			for i := range 5 * limit {
				err := a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), udat.CompletionSuppress)
				assert.NilError(t, err, "post %d of a queue of %d", i, limit)
				time.Sleep(every)
			}
			a.faults().Delay(0)
		})
	}
}
