package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

const (
	// yieldEvery is how long a busy loop runs before it yields. The Go runtime preempts a goroutine
	// after 10 ms. If the goroutine is in C at that time, as in a post on a software device, another
	// thread takes over its P, and the runtime's monitor then polls every 20 us. On two processors
	// this costs a software device up to a third of its bandwidth.
	yieldEvery = 8 * time.Millisecond
	// yieldCrowded is the number of empty polls before a loop yields on a crowded host. A host is
	// crowded if it has so few processors that the peer may need the one on which the loop spins.
	yieldCrowded = 16
	// patienceCrowded is how long a loop spins on a crowded host before it sleeps for napCrowded
	// between polls. The spinning itself may delay the answer.
	patienceCrowded = time.Millisecond
	napCrowded      = 50 * time.Microsecond
	// burst is the number of polls in one call into C. The call itself takes as long as several polls.
	burst = 32
)

// spinners counts the loops of this process that poll without parking.
var spinners atomic.Int32

// spin decides when a busy loop yields.
type spin struct {
	own     int32 // number of processors that this process may use
	all     int32 // number of processors of the machine
	each    bool  // yield after every empty poll, because a goroutine moves the data
	bursts  bool  // poll in bursts, because no operation becomes due meanwhile
	yielded int64 // when it yielded last, in the time of worker.now
}

func newSpin(c *result.Case, fabric string) spin {
	each := fabric == fabricMem
	own := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return spin{own: int32(own), all: int32(max(own, machineCPUs())), each: each, bursts: !each && !parks(c) &&
		c.Rate == 0}
}

// crowded reports whether the loops of this process leave no processor to their peers. That is so
// if there are more loops than processors for this process, or at least as many loops as processors
// in the machine. A process with as many processors as loops is not crowded if the machine has
// more: the peers can run on those.
func (s *spin) crowded() bool {
	n := spinners.Load()
	return n > s.own || n >= s.all
}

// polls returns the number of polls in the next call into C.
func (s *spin) polls() int {
	if s.bursts && !s.crowded() {
		return burst
	}
	return 1
}

// parks reports whether the engine itself does not spin in a case, because it waits for events or
// because udat spins before it parks.
func parks(c *result.Case) bool {
	return c.Poll == result.Event || c.Poll == result.Adaptive && c.Layer == result.UDAT
}

// begin counts the caller as a spinning loop, if the case makes it spin, until the caller calls
// end.
func (s *spin) begin(c *result.Case) (end func()) {
	if parks(c) {
		return func() {}
	}
	spinners.Add(1)
	return func() { spinners.Add(-1) }
}

// breathe yields when yieldEvery has passed. A spinning loop calls it in every iteration, and at
// every 64th empty poll.
func (s *spin) breathe(now int64) {
	if now-s.yielded > int64(yieldEvery) {
		s.yielded = now
		runtime.Gosched()
	}
}
