package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

const (
	// yieldEvery is the number of empty polls after which a busy loop yields where there are processors enough. Seldom: that wakes
	// another thread of the runtime, which takes a processor from the device's driver.
	yieldEvery = 1 << 14
	// yieldCrowded is the same where there are not: what the loop waits for needs the processor that it spins on.
	yieldCrowded = 16
	// patienceCrowded is how long a loop spins there before it begins to nap between polls. What answers so late is held up by the
	// spinning itself, as in a virtual machine whose processors are emulated.
	patienceCrowded = time.Millisecond
	napCrowded      = 50 * time.Microsecond
)

// spinners counts the loops of this process that poll without parking.
var spinners atomic.Int32

// spin says how a busy loop treats its processor.
type spin struct {
	cpus  int32
	yield int // empty polls between yielding
}

func newSpin(fabric string) spin {
	s := spin{cpus: int32(min(runtime.NumCPU(), runtime.GOMAXPROCS(0))), yield: yieldEvery}
	if fabric == fabricMem {
		s.yield = 1 // what moves the data is a goroutine too
	}
	return s
}

// parks tells the cases that do not spin here: they wait for events, or udat spins itself before it parks.
func parks(c *result.Case) bool {
	return c.Poll == result.Event || c.Poll == result.Adaptive && c.Layer == result.UDAT
}

// begin enters a loop that spins, in a case that polls at all; the function it gives leaves it.
func (s *spin) begin(c *result.Case) (end func()) {
	if parks(c) {
		return func() {}
	}
	spinners.Add(1)
	return func() { spinners.Add(-1) }
}

// relax is called after every empty poll.
func (w *worker) relax(empty int) {
	s := &w.spin
	if spinners.Load() < s.cpus {
		if empty%s.yield == 0 {
			runtime.Gosched()
		}
		return
	}
	if empty%min(s.yield, yieldCrowded) == 0 {
		runtime.Gosched()
	}
	if empty%64 == 0 && w.now()-w.idle.since > int64(patienceCrowded) {
		time.Sleep(napCrowded)
	}
}
