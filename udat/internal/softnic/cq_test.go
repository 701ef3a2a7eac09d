package softnic

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/blocker"
	"github.com/godat/godat/udat/internal/fabric"
)

// TestRing: the ring of a completion queue is only as long as necessary. Completions keep their
// order while the ring grows, even if it has wrapped. After a burst the ring shrinks, and the depth
// of the queue stays the same.
func TestRing(t *testing.T) {
	const depth = 5000
	c := &CQ{ring: make([]fabric.WC, leastRing), depth: depth, bell: make(chan struct{}, 1)}
	in, out := uint64(0), uint64(0)
	push := func(n int) {
		for range n {
			c.push(&fabric.WC{ID: in}, false)
			in++
		}
	}
	wcs := make([]fabric.WC, depth)
	poll := func(n int) {
		got, err := c.Poll(wcs[:n], 1)
		assert.NilError(t, err)
		assert.Equal(t, got, n)
		for _, wc := range wcs[:n] {
			assert.Equal(t, wc.ID, out)
			out++
		}
	}
	empty := func(times int) {
		for range times * EmptyPolls {
			n, err := c.Poll(wcs, 1)
			assert.NilError(t, err)
			assert.Equal(t, n, 0)
		}
		assert.Equal(t, c.empty, 0)
	}
	push(leastRing)
	poll(10)
	push(15) // gone round, and longer
	assert.Equal(t, len(c.ring), 2*leastRing)
	poll(21)
	assert.Equal(t, c.head, 0) // an empty ring starts at entry 0 again, so that few entries are used and stay in the cache
	empty(2)
	assert.Equal(t, len(c.ring), 2*leastRing) // too short to shrink
	push(depth)
	assert.Equal(t, len(c.ring), depth)
	poll(depth)
	empty(2)
	assert.Equal(t, len(c.ring), keptRing)
	push(depth)
	for range 3 * EmptyPolls { // a poll with an empty wcs does not count as an empty poll
		n, err := c.Poll(nil, 1)
		assert.NilError(t, err)
		assert.Equal(t, n, 0)
	}
	assert.Equal(t, len(c.ring), depth)
	poll(depth)
	empty(1) // that was a burst just now
	assert.Equal(t, len(c.ring), depth)
	push(keptRing)
	poll(keptRing)
	empty(1)
	assert.Equal(t, len(c.ring), 2*keptRing)
	empty(2) // a ring of twice the length needed stays
	assert.Equal(t, len(c.ring), 2*keptRing)
	push(depth)
	poll(depth)
	empty(1)
	push(1000)
	poll(1000)
	empty(1) // five times as long as was needed: twice as long is left
	assert.Equal(t, len(c.ring), 2000)
	assert.Equal(t, c.Depth(), depth)
	assert.Assert(t, !c.overrun)
}

// TestFullPollsDoNotYield: a poll that finds a completion does not yield, and does not count as
// empty.
func TestFullPollsDoNotYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := &CQ{ring: make([]fabric.WC, leastRing), depth: leastRing, bell: make(chan struct{}, 1)}
	turns, ended := 0, make(chan struct{})
	var stop atomic.Bool
	go func() {
		defer close(ended)
		for ; !stop.Load(); turns++ {
			runtime.Gosched()
		}
	}()
	const polls = 100 * EmptyPolls
	var wcs [1]fabric.WC
	for range polls {
		c.push(&fabric.WC{}, false)
		n, err := c.Poll(wcs[:], 1)
		assert.NilError(t, err)
		assert.Equal(t, n, 1)
		assert.Equal(t, c.empty, 0)
	}
	stop.Store(true)
	<-ended
	// The scheduler's own interruptions give some turns.
	assert.Assert(t, turns < polls/4, "%d turns of another goroutine in %d polls", turns, polls)
}

// idler is an Idler that makes a completion in Idle if it has one.
type idler struct {
	c            *CQ
	has          bool
	idle, asleep int
	armed        armed // when the queue was last armed
	kicks        int
	limits       []time.Duration // of each Block
	block        func() bool
}

func (i *idler) Idle() bool {
	i.idle++
	had := i.has
	if i.has = false; had {
		i.c.push(&fabric.WC{ID: 7}, false)
	}
	return had
}

func (i *idler) Armed() { i.armed = i.c.arm }

func (i *idler) Sleep() { i.asleep++ }

func (i *idler) Kick() { i.kicks++ }

func (i *idler) Block(limit time.Duration, over func() bool) bool {
	i.limits = append(i.limits, limit)
	return !over() && i.block()
}

// TestIdler: a poll that finds nothing calls Idle once, and returns the completions that Idle
// makes. A poll that finds something, a poll with an empty wcs and a poll of a closed queue do not
// call Idle. Arm calls Armed.
func TestIdler(t *testing.T) {
	c := &CQ{ring: make([]fabric.WC, leastRing), depth: leastRing, bell: make(chan struct{}, 1)}
	assert.Assert(t, c.Idler() == nil)
	i := &idler{c: c}
	c.SetIdler(i)
	assert.Equal(t, c.Idler(), Idler(i))
	poll := func(room, want int) {
		t.Helper()
		n, err := c.Poll(make([]fabric.WC, room), 1)
		assert.NilError(t, err)
		assert.Equal(t, n, want)
	}
	poll(1, 0)
	assert.Equal(t, i.idle, 1)
	assert.Equal(t, c.empty, 1) // found nothing once, although it asked
	i.has = true
	poll(1, 1)
	assert.Equal(t, i.idle, 2)
	c.push(&fabric.WC{}, false)
	i.has = true
	poll(2, 1)
	poll(0, 0)
	assert.Equal(t, i.idle, 2)
	assert.Equal(t, i.armed, notArmed)
	assert.NilError(t, c.Arm(true))
	assert.Equal(t, i.armed, armedSolicited)
	assert.Equal(t, i.asleep, 0)
	c.dead = true
	_, err := c.Poll(make([]fabric.WC, 1), 1)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	assert.Equal(t, i.idle, 2)
}

// TestWaitBlocks: a Wait after a brief one calls Block, for at most blocker.For in total and not
// beyond its deadline, until Wait can return or Block returns false. Then, or if the previous Wait
// was long, it calls Sleep. Everything that ends a Wait calls Kick.
func TestWaitBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCQ(nil, leastRing)
		i := &idler{c: c}
		c.SetIdler(i)
		completes := func() bool {
			c.push(&fabric.WC{}, false)
			return true
		}
		wait := func(deadline time.Duration) (bool, error) {
			i.limits, i.asleep = nil, 0
			assert.NilError(t, c.Arm(false))
			until := time.Time{}
			if deadline != 0 {
				until = time.Now().Add(deadline)
			}
			return c.Wait(until)
		}
		fires := func(after time.Duration, brief bool) {
			t.Helper()
			time.AfterFunc(after, func() { completes() })
			fired, err := wait(0)
			assert.NilError(t, err)
			assert.Assert(t, fired)
			assert.Equal(t, i.asleep, 1)
			assert.Equal(t, c.brief.Load(), brief)
		}
		fires(blocker.For, false)
		assert.Equal(t, len(i.limits), 0)
		fires(blocker.For-1, true)
		assert.Equal(t, len(i.limits), 0)
		assert.Equal(t, i.kicks, 2)

		i.block = func() bool { return false } // in vain
		fires(blocker.For-1, true)
		assert.DeepEqual(t, i.limits, []time.Duration{blocker.For})

		for range 2 {
			rounds := 0
			i.block = func() bool {
				time.Sleep(time.Millisecond)
				if rounds++; rounds == 3 {
					return completes()
				}
				return true // read something that completes nothing
			}
			fired, err := wait(0)
			assert.NilError(t, err)
			assert.Assert(t, fired)
			assert.DeepEqual(t, i.limits, []time.Duration{blocker.For, blocker.For - time.Millisecond,
				blocker.For - 2*time.Millisecond})
			assert.Equal(t, i.asleep, 0)
		}

		_, err := wait(2 * time.Millisecond)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.DeepEqual(t, i.limits, []time.Duration{2 * time.Millisecond, time.Millisecond})

		i.block = func() bool { // for longer than blocker.For
			time.Sleep(blocker.For)
			return true
		}
		fires(2*blocker.For, false)
		assert.DeepEqual(t, i.limits, []time.Duration{blocker.For})

		before := i.kicks
		c.push(&fabric.WC{}, false) // not armed
		assert.Equal(t, i.kicks, before)
		c.Wake()
		assert.Equal(t, i.kicks, before+1)
		fired, err := c.Wait(time.Time{})
		assert.NilError(t, err)
		assert.Assert(t, !fired)
	})
}
