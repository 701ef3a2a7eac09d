package engine

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Queue pairs, depths, batches, directions and shared receive queues can be combined, also with
// small and odd numbers. Each case moves as much data as it reports.
func TestStreams(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		depths := []int{1, 2, 16}
		if testing.Short() {
			depths = []int{1, 16}
		}
		for _, qps := range []int{1, 3} {
			for _, depth := range depths {
				for _, direction := range result.Directions {
					for _, srq := range []bool{false, true} {
						c := base
						c.Test, c.Mode, c.Poll = result.Send, result.Bandwidth, result.Event
						c.Iters, c.Warmup, c.Size, c.QPs, c.Depth, c.Batch = 103, 5, 40, qps, depth, max(1, depth/2)
						c.RxDepth = 2 * depth // so few that a lost one is missed
						c.Direction, c.SRQ, c.Verify = direction, srq, true
						t.Run(fmt.Sprintf("qps=%d/depth=%d/%s/srq=%v", qps, depth, direction, srq), func(t *testing.T) {
							doc, err := measure(t, device, c)
							assert.NilError(t, err)
							flows := doc.Runs[0].Flows()
							assert.Equal(t, len(flows), map[string]int{result.Out: 1, result.In: 1, result.Both: 2}[direction])
							for _, f := range flows {
								assert.Equal(t, f.Stream.Ops, int64(103))
								assert.Equal(t, f.Target.Verified, int64(108)) // warm-up included
							}
						})
					}
				}
			}
		}
	})
}

// With --buffers, the messages of each queue pair use that number of buffers, and no more memory is
// registered.
func TestBuffers(t *testing.T) {
	c := result.Default()
	c.Mode, c.Size, c.Depth, c.RxDepth, c.QPs = result.Bandwidth, 100, 16, 64, 3
	c.Complete()
	all, err := layoutOf(&c)
	assert.NilError(t, err)
	assert.DeepEqual(t, []uint64{all.tx.slots, all.rx.slots}, []uint64{16, 64})
	for _, buffers := range []int{1, 3, 16, 40} {
		c.Buffers = buffers
		few, err := layoutOf(&c)
		assert.NilError(t, err)
		assert.DeepEqual(t, []uint64{few.tx.slots, few.rx.slots}, []uint64{uint64(min(16, buffers)), uint64(buffers)})
		assert.Equal(t, all.total-few.total, 3*128*(16+64-min(16, buffers)-buffers))
		for qp := range 3 {
			assert.Equal(t, few.rx.at(qp, uint64(buffers)), few.rx.at(qp, 0))
			assert.Assert(t, few.rx.at(qp, uint64(buffers)-1)+c.Size <= few.word.base)
		}
	}
	onEach(t, func(t *testing.T, device string, base result.Case) {
		for _, mode := range result.Modes {
			for _, test := range []string{result.Send, result.Write, result.WriteImm, result.Read} {
				c := base
				c.Test, c.Mode, c.Iters, c.Size, c.Buffers = test, mode, 200, 64, 1
				doc, err := measure(t, device, c)
				assert.NilError(t, err)
				assert.Equal(t, doc.Runs[0].Total().Ops, int64(200))
			}
		}
	})
}

// A run with a duration ends in time. The target knows the number of operations. Intervals are
// reported, and their sum is right.
func TestDuration(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		for _, mode := range result.Modes {
			for i, test := range []string{result.Send, result.Write, result.Read, result.FetchAdd} {
				c := base
				c.Test, c.Mode, c.Size, c.Iters = test, mode, 64, 0
				c.Duration, c.Interval = result.Seconds(200*time.Millisecond), result.Seconds(20*time.Millisecond)
				c.Verify = i%2 == 0                       // with it every request is signalled
				if i%2 == 1 && mode == result.Bandwidth { // what is unsignalled at the end must complete all the same
					c.QPs, c.Depth, c.Signal = 5, 50, 7
				}
				doc, err := measure(t, device, c)
				assert.NilError(t, err, "%s %s", test, mode)
				end := doc.Runs[0].Client
				s := end.Initiated
				assert.Assert(t, time.Duration(s.Elapsed) >= 200*time.Millisecond, "%v", time.Duration(s.Elapsed))
				assert.Assert(t, s.Ops > 0)
				var ops int64
				for _, iv := range end.Intervals {
					ops += iv.Ops
				}
				assert.Equal(t, ops, s.Ops)
				last := end.Intervals[len(end.Intervals)-1]
				assert.Assert(t, last.Stop <= s.Elapsed)
			}
		}
	})
}

// An open loop ends even if the numbers of operations of warm-up and run are not multiples of the
// number of queue pairs.
func TestOpenLoopRemainders(t *testing.T) {
	for _, qps := range []int{2, 3} {
		for warmup := range int64(3) {
			for iters := int64(100); iters < 103; iters++ {
				c := result.Default()
				c.Mode, c.Size, c.Rate, c.QPs, c.Warmup, c.Iters = result.Bandwidth, 64, 50000, qps, warmup, iters
				c.Stall = result.Seconds(time.Second)
				doc, err := measure(t, "mem0", c)
				assert.NilError(t, err, "%d queue pairs, %d and %d operations", qps, warmup, iters)
				assert.Equal(t, doc.Runs[0].Total().Ops, iters)
			}
		}
	}
}

// An open loop keeps its rate, and its corrected latency is never below the raw one.
func TestOpenLoop(t *testing.T) {
	for _, mode := range result.Modes {
		c := result.Default()
		c.Mode, c.Rate, c.Iters, c.Poll = mode, 2000, 200, result.Event
		doc, err := measure(t, "mem0", c)
		assert.NilError(t, err)
		s := doc.Runs[0].Client.Initiated
		assert.Equal(t, s.Latency.Count, int64(200))
		assert.Equal(t, s.Corrected.Count, int64(200))
		assert.Assert(t, s.Corrected.Mean >= s.Latency.Mean)
		assert.Assert(t, s.OpsS < 4000, "%g operations per second", s.OpsS) // it does not run ahead of its schedule
	}
}

// The interval between operations is the inverse of the rate; the first is due at once.
func TestPace(t *testing.T) {
	p := newPace(&result.Case{Rate: 1e6})
	p.start(1000)
	assert.Equal(t, p.due(), int64(1000))
	for range 100000 {
		p.advance()
	}
	assert.Equal(t, p.due(), int64(1000+100000*1000))
}

// Minimum, maximum, mean and deviation are exact; percentiles lie between.
func TestSamples(t *testing.T) {
	s := newSamples()
	for _, v := range []int64{1_000_003, 7, 1_000_001, 999_999_999} {
		s.add(v)
	}
	d := s.distribution(1)
	assert.Equal(t, d.Min, 7.0)
	assert.Equal(t, d.Max, 999_999_999.0)
	assert.Equal(t, d.Count, int64(4))
	assert.Assert(t, math.Abs(d.Mean-250_500_002.5) < 1)
	assert.Assert(t, math.Abs(d.At(50)-1_000_001) < 1000)
	assert.Equal(t, d.At(99.999), 999_999_999.0)
	half := s.distribution(2)
	assert.Equal(t, half.Min, 3.5)
	s.reset()
	assert.Assert(t, s.distribution(1) == nil)
}

// No loop allocates per operation, neither in the engine nor in the layer below.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ops := int64(20000)
	if testing.Short() {
		ops = 3000
	}
	onEach(t, func(t *testing.T, device string, base result.Case) {
		for _, mode := range result.Modes {
			for _, test := range []string{result.Send, result.Write, result.Read} {
				c := base
				c.Test, c.Mode, c.Iters, c.Size = test, mode, ops, 64
				doc, err := measure(t, device, c)
				assert.NilError(t, err)
				// Starting and ending a case allocates a few hundred times.
				if n := doc.Runs[0].Client.Cost.Allocations; n > ops/3 {
					t.Errorf("%s %s: %d allocations for %d operations", test, mode, n, ops)
				}
			}
		}
	})
}

// A loop whose polls always find something must yield too. Otherwise the runtime takes away its P
// in the middle of a call into C.
func TestBusyLoopYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := newSpin(&result.Case{Poll: result.Busy}, fabricVerbs)
	var ran atomic.Bool
	go ran.Store(true)
	now := int64(yieldEvery)
	for i := 0; i < 8 && !ran.Load(); i++ { // now and then the scheduler takes the goroutine that has yielded first
		now += int64(yieldEvery) + 1
		s.breathe(now)
		assert.Equal(t, s.yielded, now)
	}
	assert.Assert(t, ran.Load(), "it has not yielded")
	s.breathe(now + int64(yieldEvery))
	assert.Equal(t, s.yielded, now, "it yielded just before")
}

// The host is crowded if the loops leave no processor to their peers. It is not crowded just
// because the process has as many loops as processors that it may use.
func TestCrowded(t *testing.T) {
	assert.Equal(t, spinners.Load(), int32(0))
	defer spinners.Store(0)
	for _, c := range []struct {
		loops, own, all int32
		want            bool
	}{{1, 1, 1, true}, {1, 1, 2, false}, {2, 1, 2, true}, {1, 2, 2, false}, {2, 2, 2, true}, {2, 2, 3, false}, {3, 2, 8,
		true}, {4, 8, 8, false}} {
		spinners.Store(c.loops)
		s := spin{own: c.own, all: c.all, bursts: true}
		assert.Equal(t, s.crowded(), c.want, "%+v", c)
		assert.Equal(t, s.polls() == 1, c.want, "%+v", c) // no bursts then
	}
	spinners.Store(0)
	assert.Equal(t, (&spin{own: 4, all: 4}).polls(), 1) // nor where something else falls due
}
