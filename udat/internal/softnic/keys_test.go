package softnic

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// TestGate: who finds the gate shut leaves no trace, so that the wait for those inside ends.
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

// TestKeysReserved: a reserved key is not given out again, when all have had their turn.
func TestKeysReserved(t *testing.T) {
	var k keyTable
	k.init(false)
	first := k.reserve()
	k.next = firstKey
	assert.Assert(t, k.reserve() != first)
}

// TestTurnAway: messages that come when the dispatcher has stopped are answered, in order. Events
// of this device are not told any more.
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
