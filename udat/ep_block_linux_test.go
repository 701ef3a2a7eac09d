package udat_test

import (
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestPostsDoNotSleep: a post never puts its thread to sleep to wait for the peer, for the device
// or for a time. The kernel counts each sleep, however short. No clock is read, and the loss of the
// processor on a loaded machine does not count. Half of the posts of each kind may sleep, because
// the device's own threads may hold a lock.
func TestPostsDoNotSleep(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 64
		runtime.LockOSThread() // so that a goroutine that sleeps puts its thread to sleep too
		defer runtime.UnlockOSThread()
		a, posts := heldUp(t, dev, limit)
		defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection stops the thread
		type kind struct {
			name string
			full bool
		}
		tried, slept := map[kind]int{}, map[kind]int{}
		for range limit {
			for name, post := range posts {
				before := sleeps(t)
				err := post()
				n := sleeps(t) - before
				k := kind{name, errorsIs(err, udat.ErrInsufficientResources)}
				if !k.full {
					assert.NilError(t, err, name)
				}
				tried[k]++
				if n > 0 {
					slept[k]++
				}
			}
		}
		for k, n := range tried {
			few := n < 8 // on soft-iWARP the peer's device makes room, so the queue may rarely be full
			assert.Check(t, few || slept[k] <= n/2, "%v: %d of %d posts have slept", k, slept[k], n)
		}
		t.Logf("%v slept, of %v", slept, tried)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		rule.Proves(t, "GEN-09", "POST-06", "EP-RECV-13", "EP-READ-08")
	})
}

// sleeps returns how often this thread has gone to sleep.
func sleeps(t *testing.T) int64 {
	var u syscall.Rusage
	assert.NilError(t, syscall.Getrusage(syscall.RUSAGE_THREAD, &u))
	return int64(u.Nvcsw)
}
