package engine

import (
	"fmt"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// pace is the schedule of an open loop. It determines when each operation is due, whether or not
// earlier operations have completed.
type pace struct {
	gap float64 // nanoseconds between operations; 0: closed loop
	at  float64
}

// newPace returns the schedule of a case. All repeats of the case have the same schedule.
func newPace(c *result.Case) pace {
	if c.Rate == 0 {
		return pace{}
	}
	return pace{gap: 1e9 / c.Rate}
}

func (p *pace) open() bool { return p.gap > 0 }

func (p *pace) start(now int64) { p.at = float64(now) }

// The method due returns the time at which the next operation is due, in nanoseconds since the case
// began.
func (p *pace) due() int64 { return int64(p.at) }

// advance moves the schedule to the next operation.
func (p *pace) advance() { p.at += p.gap }

// missedRate returns a note if an open loop posted its operations more than 5 % later than their
// schedule demands.
func (w *worker) missedRate() result.Notes {
	scheduled := float64(w.rec.due - w.rec.start)
	if !w.pace.open() || w.rec.waited <= 0 || scheduled > 0.95*(scheduled+float64(w.rec.waited)) {
		return nil
	}
	return result.Notes{fmt.Sprintf("--rate %g was not reached: %.4g operations per second were posted, the last one %v "+
		"late; the queue was full (--depth), or the peer answered too late", w.c.Rate,
		w.c.Rate*scheduled/(scheduled+float64(w.rec.waited)), time.Duration(w.rec.waited).Round(time.Microsecond))}
}
