package udat

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestSpinners: at most half of the processors spin at once, but at least one. A refused call does
// not count.
func TestSpinners(t *testing.T) {
	for processors, most := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 4, 9: 4} {
		for range 2 { // the first turn has no effect on the second
			var spin []*spinning
			for range 10 {
				if s := new(spinning); s.begin(processors) {
					assert.Assert(t, s.done)
					spin = append(spin, s)
				}
			}
			assert.Equal(t, len(spin), most, "%d processors", processors)
			for _, s := range spin {
				s.end()
			}
		}
	}
}

// TestSpinChoice simulates the waits of a dispatcher whose wait times depend on whether calls spin.
// After a while it counts the calls that spin.
func TestSpinChoice(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		what        string
		limit       time.Duration
		spin, park  time.Duration // the time of a wait
		least, most int           // number of spinning calls among 10,000
	}{
		{"a quick peer", 50 * us, 5 * us, 60 * us, 10000, 10000},
		{"as quick parked, too", 50 * us, 5 * us, 6 * us, 10000, 10000},
		{"waits of the length of a wake-up", 50 * us, 40 * us, 90 * us, 8000, 10000},
		{"long waits", 50 * us, 1000 * us, 1010 * us, 1, 500},
		{"waits that spinning shortens a little", 50 * us, 40 * us, 50 * us, 1, 500},
		{"a parked call is woken sooner", 50 * us, 30 * us, 10 * us, 1, 500},
		{"much sooner", 50 * us, 30 * us, 5 * us, 0, 0},
		{"long waits, long spins", time.Second, 5000 * us, 5050 * us, 10000, 10000},
		{"waits that end without an event", 50 * us, 0, 0, 1, 500},
		{"spinning makes waits four times as long: its trials end early", 50 * us, 100 * us, 25 * us, 1, 100},
		{"so does parking", 50 * us, 40 * us, 160 * us, 9850, 10000},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, parks := range []bool{false, true} { // whatever it has learned before
				choice, spun := spinChoice{parks: parks}, 0
				for call := range 20000 {
					s := spinning{limit: c.limit}
					wait := c.park
					if s.due(&choice) {
						wait = c.spin
						if call >= 10000 {
							spun++
						}
					}
					choice.learn(&s, wait, wait > 0)
				}
				least, most := c.least, c.most
				if parks && c.park > 0 && 8*c.park <= spinDefault { // short enough as it is
					least, most = 0, 0
				}
				assert.Assert(t, spun >= least && spun <= most, "%d calls spin", spun)
			}
		})
	}
}

// TestSpinChoiceOfRefused: the wait of a call that was not allowed to spin is not measured, and no
// call spins twice.
func TestSpinChoiceOfRefused(t *testing.T) {
	var choice spinChoice
	spun := spinning{limit: time.Minute, done: true}
	assert.Assert(t, !spun.due(&choice) && !new(spinning).due(&choice))
	busy, refused := new(spinning), spinning{limit: time.Minute}
	assert.Assert(t, busy.begin(1))
	defer busy.end()
	assert.Assert(t, !refused.begin(1))
	choice.learn(&refused, time.Hour, true)
	assert.Equal(t, choice, spinChoice{})
}

// TestSpinChoiceOfPeers: two peers that wait for each other both learn to spin, although a peer
// that spins alone saves only one of the two wake-ups of a round trip.
func TestSpinChoiceOfPeers(t *testing.T) {
	const work, wake = 3 * time.Microsecond, 40 * time.Microsecond
	peers := [2]spinChoice{{parks: true}, {parks: true}}
	both := 0
	for call := range 20000 {
		var s [2]spinning
		var delay [2]time.Duration
		for i := range peers {
			s[i].limit = spinDefault
			delay[i] = work
			if !s[i].due(&peers[i]) {
				delay[i] += wake
			}
		}
		for i := range peers {
			peers[i].learn(&s[i], delay[1-i]+delay[i]-work, true)
		}
		if call >= 10000 && delay[0]+delay[1] == 2*work {
			both++
		}
	}
	assert.Assert(t, both > 9000, "both spin in %d of 10,000 round trips", both)
}
