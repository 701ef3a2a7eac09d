package engine

import (
	"math/rand/v2"

	"github.com/godat/godat/internal/perf/result"
)

// pace is the schedule of an open loop. It determines when each operation is due, whether or not
// earlier operations have completed.
type pace struct {
	gap float64 // mean nanoseconds between operations; 0: closed loop
	rng *rand.Rand
	at  float64
}

// newPace returns the schedule of a case. All repeats of the case have the same schedule.
func newPace(c *result.Case) pace {
	p := pace{}
	if c.Rate > 0 {
		p.gap = 1e9 / c.Rate
	}
	if c.Arrival == result.Poisson {
		p.rng = rand.New(rand.NewPCG(1, uint64(c.Size)))
	}
	return p
}

func (p *pace) open() bool { return p.gap > 0 }

func (p *pace) start(now int64) { p.at = float64(now) }

// The method due returns the time at which the next operation is due, in nanoseconds since the case
// began.
func (p *pace) due() int64 { return int64(p.at) }

// advance moves the schedule to the next operation.
func (p *pace) advance() {
	if p.rng != nil {
		p.at += p.gap * p.rng.ExpFloat64()
	} else {
		p.at += p.gap
	}
}
