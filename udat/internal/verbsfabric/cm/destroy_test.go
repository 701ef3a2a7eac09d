package cm

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
)

// unasked is a device whose NoRoute must not be called.
type unasked struct {
	Device
	t *testing.T
}

func (u unasked) NoRoute(local netip.Addr, remote netip.AddrPort) bool {
	u.t.Errorf("NoRoute(%v, %v)", local, remote)
	return false
}

// TestDestroyTime: while the kernel does not finish to destroy ids, the first calls of destroy
// wait. Once more than half of DestroyAtOnce ids are being destroyed, calls return at once. For an
// id without addresses NoRoute is not called.
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

// TestAnswered: the id of a closed connection is destroyed once, when the peer has answered or the
// device is removed, and does not linger longer.
func TestAnswered(t *testing.T) {
	for _, event := range []cverbs.CMEventType{cverbs.CMEventDisconnected, cverbs.CMEventDeviceRemoval} {
		m := &Manager{destroyer: newDestroyer(unasked{t: t}), retired: map[dropper]time.Time{}}
		ended := 0
		m.end = func(*cverbs.CMID) error { ended++; return nil }
		c := &Conn{m: m, state: stLeaving, closed: true}
		m.retired[c] = time.Now().Add(LingerTime)
		for range 2 {
			c.Handle(cverbs.CMEvent{Type: event})
		}
		m.calls.Wait()
		assert.Equal(t, ended, 1)
		assert.Equal(t, len(m.retired), 0)
	}
}
