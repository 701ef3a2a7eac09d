package udat

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

// Spinning: a call that blocks looks for completions itself for a moment before it parks, since to arm, to park and to be
// woken costs more than most completions take. Each dispatcher learns whether that pays.

const (
	spinDefault = 50 * time.Microsecond // about what parking costs with what wakes it: spinning at most doubles a wait
	spinMost    = time.Second
	spinLook    = 50 * time.Nanosecond  // what a look costs at least
	spinLooks   = 16                    // looks in one crossing into C, where there are processors enough to hold one
	spinGiveWay = 10 * time.Microsecond // to yield rouses another thread of the runtime, but asks its poller too
	spinTrust   = 8                     // waits in a row that may disappoint before a dispatcher stops
	spinAnew    = 32                    // and one in so many spins all the same: two ends that park wait long because of that alone
)

// WithSpin sets how long a call that blocks in EVD.Wait looks for completions itself before it parks its goroutine: d at
// the most, from 0, which switches it off, to a second; the default is 50 microseconds. It is adaptive: a dispatcher whose
// events take longer stops spinning but for now and then, and begins again when they come sooner. No more than half of the processors
// spin at once. Looks come in bursts of 16, each burst within one crossing into C; where there is only one processor each look is alone, and
// gives way to whoever else wants to run. Dispatchers of
// SOLICITED_WAIT streams do not spin: only the device knows which completion was solicited.
//
// Extension.
func WithSpin(d time.Duration) Option {
	return func(o *openOptions) error {
		if d < 0 || d > spinMost {
			return fail("ia_open", InvalidParameter, SubArg2, "spin time is %v, must be from 0 to %v", d, spinMost)
		}
		o.spin = d
		return nil
	}
}

var (
	processors = min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	spinners   atomic.Int32
)

// spinOf is the part that spinning has in one blocked call.
type spinOf struct {
	limit   time.Duration // 0: none
	began   time.Time
	done    bool // it has spun,
	useless bool // for nothing
}

// newSpin prepares spinning for a call that is about to block; e.mu is held.
func (e *EVD) newSpin() spinOf {
	s := spinOf{limit: e.obj.ia.spin}
	if e.cq == nil || e.streams.n == 0 || e.streams.solicitedOnly() {
		s.limit = 0
	}
	if s.limit > 0 {
		s.began = time.Now()
	}
	return s
}

// due says whether the call shall spin now: once, and before it parks.
func (e *EVD) due(s *spinOf) bool {
	return s.limit > 0 && !s.done && (e.spinScore > -spinTrust || rand.Uint32N(spinAnew) == 0)
}

// spin looks for completions until there is something for the blocked call or the time is up; e.mu is free between looks.
func (e *EVD) spin(ctx context.Context, s *spinOf, deadline time.Time) {
	s.done = true
	if n := spinners.Add(1); n > 1 && int(n) > e.obj.ia.processors/2 {
		spinners.Add(-1)
		return
	}
	defer spinners.Add(-1)
	s.useless = true
	until := s.began.Add(s.limit)
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	looks, gaveWay, alone := spinLooks, s.began, e.obj.ia.processors == 1
	if alone {
		looks = 1
	}
	for i := 1; i <= int(s.limit/spinLook) && len(e.after) == 0; i++ { // counted too: clocks may stand still (testing/synctest)
		e.mu.Unlock()
		if alone {
			yieldProcessor() // what it waits for needs the processor
		}
		e.mu.Lock()
		e.drainInto(nil, looks)
		if over, _ := e.over(ctx, false, false); over {
			s.useless = false
			return
		}
		if i%8 != 0 {
			continue
		}
		now := time.Now()
		if !now.Before(until) {
			return
		}
		if now.Sub(gaveWay) >= spinGiveWay {
			e.mu.Unlock()
			runtime.Gosched()
			e.mu.Lock()
			gaveWay = now
		}
	}
}

// learn draws the lesson of a call that has blocked; came says that it ends with its event.
func (e *EVD) learn(s *spinOf, came bool) {
	switch {
	case s.limit == 0:
	case came && !s.useless && time.Since(s.began) <= s.limit:
		e.spinScore = min(e.spinScore+2, spinTrust)
	default:
		e.spinScore = max(e.spinScore-1, -spinTrust)
	}
}
