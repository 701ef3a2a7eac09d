package udat

import (
	"math/rand/v2"
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
	spinTrust   = 8                    // consecutive useless spins before a dispatcher stops
	spinAnew    = 32                   // then 1 wait in 32 still spins, so that two parked peers can recover
)

var (
	processors = min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	spinners   atomic.Int32
)

// spinning is the spinning of one blocked call.
type spinning struct {
	limit   time.Duration // 0: none
	began   time.Time
	done    bool // the call has spun
	useless bool // the event did not come while it spun
}

// begin reports whether the call may spin now: at most half of the processors spin. end must
// follow.
func (s *spinning) begin(processors int) bool {
	s.done = true
	if n := spinners.Add(1); n > 1 && int(n) > processors/2 {
		spinners.Add(-1)
		return false
	}
	s.useless = true
	return true
}

func (s *spinning) end() { spinners.Add(-1) }

// spinScore is how well spinning pays on a dispatcher: from -spinTrust, not at all, to spinTrust.
type spinScore int

// due reports whether the call spins now: once, before it parks.
func (s *spinning) due(score spinScore) bool {
	return s.limit > 0 && !s.done && (score > -spinTrust || rand.Uint32N(spinAnew) == 0)
}

// learn updates the score after a call that has blocked; came means that it ends with its event.
func (score *spinScore) learn(s *spinning, came bool) {
	switch {
	case s.limit == 0:
	case came && !s.useless && time.Since(s.began) <= s.limit:
		*score = min(*score+2, spinTrust)
	default:
		*score = max(*score-1, -spinTrust)
	}
}
