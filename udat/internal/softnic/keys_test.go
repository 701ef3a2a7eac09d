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

// TestKeys: keys are random: each half of their bits takes many values, and none is used twice.
func TestKeys(t *testing.T) {
	var k keyTable
	k.init()
	high, low := map[uint16]bool{}, map[uint16]bool{}
	const n = 2000
	for range n {
		key := k.reserve()
		high[uint16(key>>16)], low[uint16(key)] = true, true
	}
	assert.Equal(t, len(k.byKey), n)
	assert.Assert(t, len(high) > n*9/10 && len(low) > n*9/10, "%d and %d values", len(high), len(low))
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
