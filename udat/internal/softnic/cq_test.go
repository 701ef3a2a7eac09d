package softnic

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

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
	c       *CQ
	has     bool
	idle    int
	asleep  atomic.Int32
	armed   armed // when the queue was last armed
	kicks   int
	again   chan struct{}
	led     atomic.Bool // by another
	served  []time.Time // the deadline of each Serve
	serving bool
	serve   func(over func() bool)
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

func (i *idler) Sleep() <-chan struct{} {
	i.asleep.Add(1)
	return i.again
}

func (i *idler) Woke() { i.asleep.Add(-1) }

func (i *idler) Kick() bool {
	i.kicks++
	return i.serving
}

func (i *idler) Serve(deadline time.Time, over func() bool) bool {
	if i.led.Load() {
		return false
	}
	i.served = append(i.served, deadline)
	i.serving = true
	i.serve(over)
	i.serving = false
	return true
}

// TestIdler: a poll that finds nothing calls Idle once, and returns the completions that Idle
// makes. A poll that finds something, a poll with an empty wcs, a poll before a Wait and a poll of
// a closed queue do not call Idle. Arm calls Armed.
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
	n, err := c.Poll(make([]fabric.WC, 1), 0)
	assert.NilError(t, err)
	assert.Equal(t, n, 0)
	assert.Equal(t, i.idle, 2)
	assert.Equal(t, i.armed, notArmed)
	assert.NilError(t, c.Arm(true))
	assert.Equal(t, i.armed, armedSolicited)
	assert.Equal(t, i.asleep.Load(), int32(0))
	c.dead = true
	_, err = c.Poll(make([]fabric.WC, 1), 1)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	assert.Equal(t, i.idle, 2)
}

// TestWaitServes: a Wait calls Sleep, and then Serve with its deadline, until it can return, and
// Woke in the end. If another serves, it waits for the bell, or to try again. Everything that ends
// a Wait calls Kick, and rings if no Serve is under way.
func TestWaitServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCQ(nil, leastRing)
		i := &idler{c: c, again: make(chan struct{}, 1)}
		i.led.Store(true)
		c.SetIdler(i)
		completes := func() { c.push(&fabric.WC{}, false) }
		wait := func(deadline time.Duration) (bool, error) {
			i.served = nil
			assert.NilError(t, c.Arm(false))
			until := time.Time{}
			if deadline != 0 {
				until = time.Now().Add(deadline)
			}
			return c.Wait(until)
		}
		fires := func() {
			t.Helper()
			fired, err := wait(0)
			assert.NilError(t, err)
			assert.Assert(t, fired)
			assert.Equal(t, i.asleep.Load(), int32(0))
		}
		for n := range 2 { // another serves
			time.AfterFunc(time.Minute, completes)
			fires()
			assert.Equal(t, len(i.served), 0)
			assert.Equal(t, i.kicks, n+1)
		}
		for range 2 { // this one serves, after the other
			i.led.Store(true)
			rounds := 0
			i.serve = func(over func() bool) {
				for ; !over(); rounds++ {
					time.Sleep(time.Minute)
					if rounds == 2 {
						completes()
					}
				}
			}
			time.AfterFunc(time.Minute, func() {
				assert.Equal(t, i.asleep.Load(), int32(1))
				i.led.Store(false)
				Ring(i.again)
			})
			fires()
			assert.Equal(t, rounds, 3)
			assert.DeepEqual(t, i.served, []time.Time{{}})
			assert.Equal(t, len(c.bell), 0)
		}

		i.serve = func(func() bool) { <-time.After(time.Hour) }
		until := time.Now().Add(time.Hour)
		_, err := wait(time.Hour)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.DeepEqual(t, i.served, []time.Time{until})

		before := i.kicks
		c.arm = notArmed
		completes()
		assert.Equal(t, i.kicks, before)
		c.Wake()
		assert.Equal(t, i.kicks, before+1)
		fired, err := c.Wait(time.Time{})
		assert.NilError(t, err)
		assert.Assert(t, !fired)
	})
}

// TestBlockedWaitAllocatesNothing: a Wait with a deadline that has to wait allocates nothing, from
// the second on.
func TestBlockedWaitAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCQ(nil, leastRing)
		const n = 100
		go func() {
			for range n + 1 { // AllocsPerRun makes one call more
				time.Sleep(time.Minute)
				c.push(&fabric.WC{}, false)
			}
		}()
		wcs, far, fired := make([]fabric.WC, 1), time.Now().Add(24*time.Hour), 0
		got := testing.AllocsPerRun(n, func() {
			c.Arm(false)
			if ok, _ := c.Wait(far); ok {
				fired++
			}
			c.Poll(wcs, 1)
		})
		assert.Equal(t, got, 0.0)
		assert.Equal(t, fired, n+1)
	})
}
