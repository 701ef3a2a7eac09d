package softnic

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// TestGate: a failed enter of a shut gate does not change the count, so that the wait for the users
// ends.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		assert.Assert(t, g.enter())
		done := make(chan struct{})
		go func() { g.shutAndWait(); close(done) }()
		synctest.Wait()
		for range 3 {
			assert.Assert(t, !g.enter())
		}
		g.leave()
		<-done
	})
}

func TestResourcesHaveNames(t *testing.T) {
	for r, name := range resourceNames {
		assert.Assert(t, name != "", "resource %d", r)
	}
}

// TestKeysReserved: when the cycle of keys starts again, a reserved key is skipped.
func TestKeysReserved(t *testing.T) {
	var k keyTable
	k.init(false)
	first := k.reserve()
	k.next = firstKey
	assert.Assert(t, k.reserve() != first)
}

// TestTurnAway: messages that come after the dispatcher has stopped are answered, in order. Events
// of this device are dropped.
func TestTurnAway(t *testing.T) {
	var q Dispatcher
	q.start()
	var ran []int
	q.Add(time.Hour, func() { ran = append(ran, 0) })
	for n := range 3 {
		q.Add(0, func() { ran = append(ran, -n) })
		q.AddMessage(0, func() { ran = append(ran, n) })
	}
	q.stop()
	q.turnAway()
	assert.DeepEqual(t, ran, []int{0, 1, 2})
}
