package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

const (
	// yieldEvery is how long a busy loop runs at most before it yields. Go's runtime takes the processor of its scheduler from a goroutine
	// that has run for 10 ms; if that is in C just then, as in a post that a software device carries out at once, another thread gets it,
	// and the runtime's watcher looks every 20 us from then on. Its wake-ups cost a third of the bandwidth of soft-RoCE on two processors.
	yieldEvery = 8 * time.Millisecond
	// yieldCrowded is the number of empty polls after which a loop yields where there are not processors enough: what it waits for needs
	// the one that it spins on.
	yieldCrowded = 16
	// patienceCrowded is how long a loop spins there before it begins to nap between polls. What answers so late is held up by the
	// spinning itself, as in a virtual machine whose processors are emulated.
	patienceCrowded = time.Millisecond
	napCrowded      = 50 * time.Microsecond
	// burst is how often a loop looks in one crossing into C: the crossing costs as much as some of the looks.
	burst = 32
)

// spinners counts the loops of this process that poll without parking.
var spinners atomic.Int32

// spin is how a busy loop treats its processor.
type spin struct {
	own     int32 // processors that this process may use,
	all     int32 // and those of the machine
	each    bool  // yields after every empty poll: what moves the data is a goroutine too
	bursts  bool  // nothing falls due meanwhile
	yielded int64 // when it yielded last, as worker.now
}

func newSpin(c *result.Case, fabric string) spin {
	each := fabric == fabricMem
	own := min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	return spin{own: int32(own), all: int32(max(own, machineCPUs())), each: each, bursts: !each && !parks(c) && c.Rate == 0}
}

// crowded says that there are not processors enough for all loops and one more: what they wait for needs one too. A process that is bound to as
// many as it has loops leaves that to the others of the machine.
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

// breathe is called in every round of a loop that spins, and now and then while it finds nothing.
func (s *spin) breathe(now int64) {
	if now-s.yielded > int64(yieldEvery) {
		s.yielded = now
		runtime.Gosched()
	}
}

// relax is called after every empty poll.
func (w *worker) relax(empty int) {
	s := &w.spin
	crowded := s.crowded()
	if s.each || crowded && empty%yieldCrowded == 0 {
		runtime.Gosched()
	}
	if empty%64 == 0 {
		now := w.now()
		s.breathe(now)
		if crowded && now-w.idle.since > int64(patienceCrowded) {
			time.Sleep(napCrowded)
		}
	}
}
