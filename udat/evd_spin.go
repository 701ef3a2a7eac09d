package udat

import (
	"runtime"
	"sync/atomic"
	"time"
)

// This file is about spinning. A blocked call spins, which means that it polls for a while before
// it parks, because arming, parking and waking up take longer than most completions. Each
// dispatcher measures whether spinning makes its waits shorter.

const (
	spinDefault = 50 * time.Microsecond // about the cost of parking and waking up, so that spinning at most doubles a wait
	spinMost    = time.Second
	spinPoll    = 50 * time.Nanosecond // the least duration of a poll
	spinPolls   = 16                   // polls in one call into C; cverbs.CQ.PollSpin yields now and then
	spinRound   = 16                   // calls in a round; see spinChoice
	spinLeast   = 4                    // rounds between two trials, after a trial that succeeded
	spinApart   = 32                   // greatest number of rounds between two trials, after many that failed
	spinLong    = 4                    // a wait counts as at most this many times the spin limit
)

var (
	processors = min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	spinners   atomic.Int32
)

// spinning is the spin state of one blocked call.
type spinning struct {
	limit time.Duration // how long the call may spin; 0: not at all
	began time.Time
	done  bool // the call has spun
}

// begin reports whether the call may spin now. At most half of the processors spin at once, but one
// call always may. If begin returns true the caller must call end.
func (s *spinning) begin(processors int) bool {
	s.done = true
	if n := spinners.Add(1); n > 1 && int(n) > processors/2 {
		spinners.Add(-1)
		s.limit = 0 // the call has not spun, so its wait must not be measured
		return false
	}
	return true
}

func (s *spinning) end() { spinners.Add(-1) }

// spinChoice measures whether the calls on a dispatcher wait less if they spin. It compares the
// average wait of one round of calls with that of another round. A wait is measured from the moment
// when the call blocks until its event comes, so that every cause of a long wait counts: a peer
// that parks too, processors that wake slowly, and processors with other work, which run a parked
// thread sooner than a spinning one.
type spinChoice struct {
	parks    bool          // calls park at once, except in a trial
	trying   bool          // this round is a trial, in which calls do the opposite
	calls    int           // number of calls in this round so far
	sum      time.Duration // sum of their waits
	usual    time.Duration // average wait of the last round that was no trial
	rounds   int           // number of rounds since the last trial
	interval int           // least number of rounds between trials
}

// due reports whether the call must spin now. A call spins once, before it parks.
func (s *spinning) due(c *spinChoice) bool {
	return s.limit > 0 && !s.done && c.parks == c.trying
}

// learn counts the wait of a call. The parameter came is true if the call ended with an event.
func (c *spinChoice) learn(s *spinning, wait time.Duration, came bool) {
	if s.limit == 0 {
		return
	}
	most := spinLong * s.limit
	if !came || wait > most {
		wait = most
	}
	c.sum += wait
	if c.calls++; c.calls == spinRound || c.trying && !c.succeeds(c.sum/spinRound, s.limit) {
		c.endRound(c.sum/spinRound, s.limit)
		c.calls, c.sum = 0, 0
	}
}

// succeeds reports whether a trial succeeds. The parameter average is the mean wait of the trial's
// calls. Spinning uses a processor, so it is chosen only if it makes waits more than a quarter
// shorter. If waits with spinning last at most a quarter of the spin limit, spinning is chosen even
// if it makes them longer, by an eighth at most. A longer wait never turns a failure into a
// success, so a trial ends as soon as the waits so far make it fail. A trial that makes waits four
// times as long ends after 4 calls instead of 16.
func (c *spinChoice) succeeds(average, limit time.Duration) bool {
	spins, parks := average, c.usual
	if !c.parks {
		spins, parks = parks, spins
	}
	better := 4*spins < 3*parks || spins <= limit/4 && 8*spins <= 9*parks
	return better == c.parks
}

// endRound decides whether the calls of the next round spin or park. While waits are short there
// are no trials.
func (c *spinChoice) endRound(average, limit time.Duration) {
	if !c.trying {
		c.usual = average
		c.rounds++
		enough := limit / 4
		if c.parks {
			enough = spinDefault / 8
		}
		c.trying = average > enough && c.rounds >= c.interval
		return
	}
	c.trying, c.rounds = false, 0
	if c.succeeds(average, limit) {
		c.parks, c.usual, c.interval = !c.parks, average, spinLeast
	} else {
		c.interval = min(max(2*c.interval, spinLeast), spinApart)
	}
}
