package cm

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
)

// unasked is a device that nobody asks for routes.
type unasked struct {
	Device
	t *testing.T
}

func (u unasked) NoRoute(local netip.Addr, remote netip.AddrPort) bool {
	u.t.Errorf("NoRoute(%v, %v)", local, remote)
	return false
}

// TestDestroyTime: while the kernel destroys no id, the first calls wait for it. Once more than
// half of DestroyAtOnce ids are being destroyed, calls return at once. An id without addresses has
// no route that could be missing.
func TestDestroyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDestroyer(unasked{t: t})
		release := make(chan struct{})
		d.end = func(*cverbs.CMID) error { <-release; return nil }
		for n := range 2 * DestroyAtOnce {
			start, want := time.Now(), destroyTime
			if n > DestroyAtOnce/2 {
				want = 0
			}
			d.destroy(nil)
			assert.Equal(t, time.Since(start), want, "id %d", n)
			synctest.Wait()
		}
		close(release)
		d.calls.Wait()
	})
}
