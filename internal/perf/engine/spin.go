package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

const (
	// yieldEvery is how long a busy loop runs before it yields. Go preempts a goroutine after 10
	// ms. If that goroutine is in C then, as in a post on a software device, another thread takes
	// its processor and the runtime's monitor polls every 20 us from then on, which costs a
	// software device up to a third of its bandwidth on two processors.
	yieldEvery = 8 * time.Millisecond
	// yieldCrowded is the number of empty polls before a loop yields on a crowded host: one with so
	// few processors that the peer needs the one that the loop spins on.
	yieldCrowded = 16
	// patienceCrowded is how long a loop spins on a crowded host before it sleeps for napCrowded
	// between polls: the spinning itself may delay the answer.
	patienceCrowded = time.Millisecond
	napCrowded      = 50 * time.Microsecond
	// burst is the number of polls in one crossing into C; a crossing costs as much as several
	// polls.
	burst = 32
)

// spinners counts the loops of this process that poll without parking.
var spinners atomic.Int32

// spin decides when a busy loop yields.
type spin struct {
	own     int32 // processors that this process may use,
	all     int32 // and those of the machine
	each    bool  // yield after every empty poll, because a goroutine moves the data
	bursts  bool  // nothing falls due meanwhile
	yielded int64 // when it yielded last, as worker.now
}

func newSpin(c *result.Case, fabric string) spin {
	each := fabric == fabricMem
	own := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return spin{own: int32(own), all: int32(max(own, machineCPUs())), each: each, bursts: !each && !parks(c) &&
		c.Rate == 0}
}

// crowded reports whether there are fewer processors than the loops of this process and one more,
// for their peers. A process bound to as many processors as it has loops leaves the peers to the
// machine's other processors.
func (s *spin) crowded() bool {
	n := spinners.Load()
	return n > s.own || n >= s.all
}

// polls is the number of polls of the next crossing into C.
func (s *spin) polls() int {
	if s.bursts && !s.crowded() {
		return burst
	}
	return 1
}

// parks reports whether the engine does not spin in a case: it waits for events, or udat spins
// before it parks.
func parks(c *result.Case) bool {
	return c.Poll == result.Event || c.Poll == result.Adaptive && c.Layer == result.UDAT
}

// begin enters a spinning loop, if the case polls; end leaves it.
func (s *spin) begin(c *result.Case) (end func()) {
	if parks(c) {
		return func() {}
	}
	spinners.Add(1)
	return func() { spinners.Add(-1) }
}

// breathe yields when yieldEvery has passed. A spinning loop calls it in every round, and now and
// then during empty polls.
func (s *spin) breathe(now int64) {
	if now-s.yielded > int64(yieldEvery) {
		s.yielded = now
		runtime.Gosched()
	}
}
