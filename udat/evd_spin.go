package udat

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Spinning: a blocked call polls for a while before it parks, because arming, parking and waking
// take longer than most completions. Each dispatcher learns whether that pays.

const (
	spinDefault = 50 * time.Microsecond // about the cost of parking and being woken: spinning at most doubles a wait
	spinMost    = time.Second
	spinPoll    = 50 * time.Nanosecond // the least that a poll takes
	spinPolls   = 16                   // polls in one crossing into C; cverbs.CQ.PollSpin yields now and then
	spinRound   = 16                   // calls in a round, see spinChoice
	spinLeast   = 4                    // rounds between trials after a trial that succeeded
	spinApart   = 32                   // rounds between trials at most, after many that failed
	spinLong    = 4                    // a longer wait counts as this many limits
)

var (
	processors = min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	spinners   atomic.Int32
)

// spinning is the spinning of one blocked call.
type spinning struct {
	limit time.Duration // 0: none
	began time.Time
	done  bool // the call has spun
}

// begin reports whether the call may spin now: at most half of the processors spin. end must
// follow.
func (s *spinning) begin(processors int) bool {
	s.done = true
	if n := spinners.Add(1); n > 1 && int(n) > processors/2 {
		spinners.Add(-1)
		s.limit = 0 // it has not spun: there is nothing to learn
		return false
	}
	return true
}

func (s *spinning) end() { spinners.Add(-1) }

// spinChoice learns on a dispatcher whether its calls wait less if they spin. It compares the
// average wait of rounds of calls, from block to event. So every cause of a long wait counts: a
// peer that parks as well, processors that wake slowly, or processors with other work that run a
// parked thread sooner than one that spins.
type spinChoice struct {
	parks    bool          // what calls do outside a trial
	trying   bool          // this round is a trial: calls do the opposite
	calls    int           // of this round so far
	sum      time.Duration // of their waits
	usual    time.Duration // average wait of the last round outside a trial
	rounds   int           // since the last trial
	interval int           // rounds between trials
}

// due reports whether the call spins now: once, before it parks.
func (s *spinning) due(c *spinChoice) bool {
	return s.limit > 0 && !s.done && c.parks == c.trying
}

// learn counts a call that has been blocked for the time wait; came means that it ends with its
// event.
func (c *spinChoice) learn(s *spinning, wait time.Duration, came bool) {
	if s.limit == 0 {
		return
	}
	most := spinLong * s.limit
	if !came || wait > most {
		wait = most
	}
	c.sum += wait
	if c.calls++; c.calls == spinRound {
		c.endRound(c.sum/spinRound, s.limit)
		c.calls, c.sum = 0, 0
	}
}

// endRound decides whether the calls of the next round spin or park. Spinning costs a processor. So
// it must make waits a quarter shorter, or, if the events come in the first quarter of a spin, at
// most an eighth longer. While waits are short there is no trial.
func (c *spinChoice) endRound(average, limit time.Duration) {
	early := limit / 4
	if !c.trying {
		c.usual = average
		c.rounds++
		enough := early
		if c.parks {
			enough = spinDefault / 8
		}
		c.trying = average > enough && c.rounds >= c.interval
		return
	}
	c.trying, c.rounds = false, 0
	spins, parks := average, c.usual
	if !c.parks {
		spins, parks = parks, spins
	}
	better := 4*spins < 3*parks || spins <= early && 8*spins <= 9*parks
	if better == c.parks {
		c.parks, c.usual, c.interval = !c.parks, average, spinLeast
	} else {
		c.interval = min(max(2*c.interval, spinLeast), spinApart)
	}
}
