package engine

import (
	"math/rand/v2"

	"github.com/godat/godat/internal/perf/result"
)

// pace is the schedule of an open loop: when each operation falls due, whatever became of those before it.
type pace struct {
	gap float64 // mean nanoseconds between operations; 0: closed loop
	rng *rand.Rand
	at  float64
}

// newPace makes a schedule that is the same for the same case: the arrivals of a repeat are those of the first run.
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

// due is when the next operation falls due.
func (p *pace) due() int64 { return int64(p.at) }

// advance moves on to the one after it.
func (p *pace) advance() {
	if p.rng != nil {
		p.at += p.gap * p.rng.ExpFloat64()
	} else {
		p.at += p.gap
	}
}
