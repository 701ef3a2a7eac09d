package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

const (
	// yieldEvery is how long a busy loop runs before it yields. The Go runtime preempts a goroutine
	// after 10 ms. If that goroutine is then in C, for example because a software device executes
	// the post, another thread takes over its P, and the runtime's monitor polls every 20 us from
	// then on. On two processors this costs a software device up to a third of its bandwidth.
	yieldEvery = 8 * time.Millisecond
	// yieldCrowded is the number of empty polls after which a loop on a crowded host yields. The
	// method crowded says what a crowded host is. On such a host the peer may need the processor on
	// which the loop spins.
	yieldCrowded = 16
	// patienceCrowded is how long a loop on a crowded host spins before it begins to sleep for
	// napCrowded between polls. Spinning longer may delay the answer that the loop waits for.
	patienceCrowded = time.Millisecond
	napCrowded      = 50 * time.Microsecond
	// adaptiveSpin is how long an adaptive loop polls before it parks.
	adaptiveSpin = 50 * time.Microsecond
	// burst is the number of polls in one call into C. The call into C costs as much as several
	// polls.
	burst = 32
)

// spinners counts the loops of this process that poll without parking.
var spinners atomic.Int32

// spin decides when a busy loop yields.
type spin struct {
	own     int32 // number of processors that this process may use
	all     int32 // number of processors of the machine
	each    bool  // yield after every empty poll, because a goroutine moves the data
	bursts  bool  // poll in bursts, because no operation becomes due during a burst
	yielded int64 // time of the last yield, as worker.now returns it
}

func newSpin(c *result.Case, fabric string) spin {
	each := fabric == fabricMem
	own := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return spin{own: int32(own), all: int32(max(own, machineCPUs())), each: each, bursts: !each && !parks(c) &&
		c.Rate == 0}
}

// crowded reports whether the spinning loops of this process leave no processor for their peers.
// This is the case if the loops occupy all processors of the machine. If this process may use only
// some of the processors, the peers can run on the others. Then the loops are crowded if there are
// more of them than processors that this process may use.
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

// parks reports whether the engine's loops park in a case instead of spinning. They park if the
// case waits for events, or if udat itself spins before it parks.
func parks(c *result.Case) bool {
	return c.Poll == result.Event || c.Poll == result.Adaptive && c.Layer == result.UDAT
}

// begin adds the calling loop to the spinners, if the case makes it spin. The returned function
// removes the loop from the spinners.
func (s *spin) begin(c *result.Case) (end func()) {
	if parks(c) {
		return func() {}
	}
	spinners.Add(1)
	return func() { spinners.Add(-1) }
}

// breathe yields if yieldEvery has passed since the last yield. A spinning loop calls breathe in
// every iteration. While the loop waits for a completion, it calls breathe only at every 64th empty
// poll.
func (s *spin) breathe(now int64) {
	if now-s.yielded > int64(yieldEvery) {
		s.yielded = now
		runtime.Gosched()
	}
}
