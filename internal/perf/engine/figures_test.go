package engine

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// timed is a link, in a bubble of testing/synctest, whose operations take known times: one after
// the other, each for the time that service returns for its number, and then for delay. So every
// figure of a case can be worked out by hand. If answers is true, the peer answers each operation.
type timed struct {
	link
	service func(n int) time.Duration
	delay   time.Duration
	answers bool

	n     int
	idle  time.Time // when the path has carried all that was posted
	queue []carried
	parks int // waits that ended without a completion
}

type carried struct {
	at time.Time
	done
}

func (p *timed) request(qp int, _ uint64, n int, _ bool) error {
	for range n {
		if now := time.Now(); p.idle.Before(now) {
			p.idle = now
		}
		p.idle = p.idle.Add(p.service(p.n))
		p.n++
		p.queue = append(p.queue, carried{p.idle.Add(p.delay), done{qp: int32(qp), n: 1}})
		if p.answers {
			p.queue = append(p.queue, carried{p.idle.Add(p.delay), done{qp: int32(qp), recv: true, n: 8}})
		}
	}
	return nil
}

func (p *timed) receive(int, uint64, int) error { return nil }

func (p *timed) unsignalled(int) uint32 { return 0 }

func (p *timed) path() *result.Path { return nil }

func (p *timed) poll(out []done, _ int) (n int, err error) {
	for n < len(out) && len(p.queue) > 0 && !p.queue[0].at.After(time.Now()) {
		out[n], p.queue = p.queue[0].done, p.queue[1:]
		n++
	}
	return n, nil
}

func (p *timed) wait(out []done, timeout time.Duration) (int, error) {
	if len(p.queue) > 0 {
		timeout = min(timeout, time.Until(p.queue[0].at))
	}
	time.Sleep(timeout)
	n, err := p.poll(out, 1)
	if n == 0 {
		if p.parks++; p.parks > 1000 {
			err = errors.New("the loop spins")
		}
	}
	return n, err
}

// arrive lets n messages arrive, one in each of the times.
func (p *timed) arrive(n int, each time.Duration) {
	for i := range n {
		p.queue = append(p.queue, carried{time.Now().Add(time.Duration(i+1) * each), done{recv: true, n: 8}})
	}
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

const ms = time.Millisecond

// byHand runs a case on a path in virtual time.
func byHand(t *testing.T, p link, initiates bool, shape func(*result.Case)) (*result.End, []result.Interval, *worker) {
	t.Helper()
	c := result.Default()
	c.Size, c.Poll, c.Interval = 8, result.Event, result.Seconds(time.Hour)
	shape(&c)
	c.Complete()
	assert.NilError(t, c.Validate())
	lay, err := layoutOf(&c)
	assert.NilError(t, err)
	var intervals []result.Interval
	w := newWorker(&c, lay, p, newShared(), initiates, fabricMem,
		func(iv result.Interval) { intervals = append(intervals, iv) },
		func([]uint64) {})
	if !initiates || c.Direction == result.Both {
		w.sh.setExpect([]uint64{uint64(c.Iters + c.Warmup)})
	}
	end, err := w.run()
	assert.NilError(t, err)
	return end, intervals, w
}

// figures returns the figures of a distribution in milliseconds.
func figures(d *result.Distribution) []float64 {
	return []float64{float64(d.Count), d.Min / 1e6, d.Mean / 1e6, d.At(50) / 1e6, d.At(99) / 1e6, d.Max / 1e6}
}

// near compares figures within the 0.1 % of a histogram's cells.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-3, 0)); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", what, diff)
	}
}

// A closed loop: 2 operations of warm-up take 100 ms each, then 4 take 2, 4, 6 and 8 ms. A
// ping-pong halves each, in the intervals too; an RDMA read does not.
func TestLatencyByHand(t *testing.T) {
	for _, c := range []struct {
		test string
		div  float64
	}{{result.Send, 2}, {result.Read, 1}} {
		synctest.Test(t, func(t *testing.T) {
			p := &timed{answers: c.test == result.Send, service: func(n int) time.Duration {
				if n < 2 {
					return 100 * ms
				}
				return time.Duration(n-1) * 2 * ms
			}}
			end, intervals, _ := byHand(t, p, true, func(k *result.Case) {
				k.Test, k.Iters, k.Warmup, k.QPs = c.test, 4, 2, 3
				k.Interval = result.Seconds(10 * ms)
			})
			s := end.Initiated
			near(t, "latency", figures(s.Latency), []float64{4, 2 / c.div, 5 / c.div, 4 / c.div, 8 / c.div, 8 / c.div})
			assert.Equal(t, s.RoundTrip != nil, c.test == result.Send)
			near(t, "stream", []float64{float64(s.Ops), float64(s.Bytes), time.Duration(s.Elapsed).Seconds(), s.OpsS, s.GbitS,
				s.MiBS},
				[]float64{4, 32, 0.020, 200, 200 * 8 * 8 / 1e9, 1600. / (1 << 20)})
			near(t, "cost", []float64{time.Duration(end.Cost.Wall).Seconds()}, []float64{0.020}) // without the warm-up
			// 2+4+6 = 12 ms is the first moment after 10 ms; the second interval begins anew.
			assert.Equal(t, len(intervals), 2)
			near(t, "first", interval(&intervals[0]), []float64{0, 12, 3, 24, 16e-6, 4 / c.div, 6 / c.div, 6 / c.div})
			near(t, "second", interval(&intervals[1]), []float64{12, 20, 1, 8, 8e-6, 8 / c.div, 8 / c.div, 8 / c.div})
		})
	}
}

func interval(iv *result.Interval) []float64 {
	return []float64{float64(iv.Start) / 1e6, float64(iv.Stop) / 1e6, float64(iv.Ops), float64(iv.Bytes), iv.GbitS,
		iv.P50 / 1e6,
		iv.P99 / 1e6, iv.Max / 1e6}
}

// An open loop of 100 operations per second on a path that carries one in 30 ms: operation n, from
// 0, falls due at 10n ms and is posted at 30n ms, so it waits 20n ms. Only the round trip is
// halved. The run says that the rate was not reached.
func TestOpenPingPongByHand(t *testing.T) {
	for _, c := range []struct {
		test string
		took float64
	}{{result.Send, 15}, {result.Read, 30}} {
		synctest.Test(t, func(t *testing.T) {
			p := &timed{answers: c.test == result.Send, service: always(30 * ms)}
			end, _, w := byHand(t, p, true, func(k *result.Case) { k.Test, k.Iters, k.Warmup, k.Rate = c.test, 5, 3, 100 })
			s := end.Initiated
			near(t, "latency", figures(s.Latency), []float64{5, c.took, c.took, c.took, c.took, c.took})
			near(t, "corrected", figures(s.Corrected), []float64{5, c.took, c.took + 40, c.took + 40, c.took + 80, c.took + 80})
			near(t, "rate", []float64{s.OpsS}, []float64{1000. / 30})
			assert.Equal(t, len(end.Notes), 1)
			assert.Assert(t, cmp.Equal(w.rec.waited, int64(80*ms)))
			assert.Assert(t, p.parks == 0, "%d wake-ups without a completion: the loop spins", p.parks)
		})
	}
}

// The same for bandwidth, with a depth of 2 on each of 2 queue pairs: 4 operations are posted when
// they fall due, the others when one completes. The loop sleeps while the queue is full.
func TestOpenStreamByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &timed{service: always(30 * ms)}
		end, _, w := byHand(t, p, true, func(k *result.Case) {
			k.Test, k.Mode, k.Iters, k.Warmup, k.Rate, k.Depth, k.QPs = result.Write, result.Bandwidth, 8, 0, 100, 2, 2
		})
		s := end.Initiated
		// Operation n completes at 30(n+1) ms. Operations 0 to 3 are posted at 10n ms. Operation n
		// of the others is posted when operation n-4 completes, at 30(n-3) ms: 30, 60, 90, 120 become
		// at least the 40, 50, 60 and 70 ms of the schedule.
		posted := []float64{0, 10, 20, 30, 40, 60, 90, 120}
		var took, late []float64
		for n, at := range posted {
			took, late = append(took, float64(30*(n+1))-at), append(late, float64(30*(n+1)-10*n))
		}
		near(t, "latency", []float64{s.Latency.Mean / 1e6, s.Latency.Max / 1e6}, []float64{mean(took), 120})
		near(t, "corrected", []float64{s.Corrected.Mean / 1e6, s.Corrected.Max / 1e6}, []float64{mean(late), late[7]})
		assert.Equal(t, len(end.Notes), 1, "%v", end.Notes)
		// Between completions the loop wakes for what falls due, and never without a reason.
		assert.Assert(t, p.parks <= len(posted)+int(240*ms/parkTime), "%d wake-ups without a completion", p.parks)
		assert.Equal(t, w.rec.waited, int64(50*ms))
	})
}

// A rate that the path carries has no note, and no latency beyond that of the path.
func TestReachedRateByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &timed{service: always(ms), delay: 20 * ms}
		end, _, _ := byHand(t, p, true, func(k *result.Case) {
			k.Test, k.Mode, k.Iters, k.Rate = result.Send, result.Bandwidth, 50, 100
		})
		near(t, "corrected", figures(end.Initiated.Corrected), []float64{50, 21, 21, 21, 21, 21})
		assert.Equal(t, len(end.Notes), 0, "%v", end.Notes)
	})
}

func mean(v []float64) (m float64) {
	for _, x := range v {
		m += x / float64(len(v))
	}
	return m
}

// Bandwidth in both directions, of 8 bytes: this end sends 20 operations after 4 of warm-up, each
// takes 1 ms. Meanwhile as many messages arrive, one in 3 ms; the time of the received stream is
// from the first to the last after the warm-up.
func TestBothDirectionsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &timed{service: always(ms)}
		q := &both{timed: p, in: &timed{}}
		q.in.arrive(24, 3*ms)
		end, intervals, _ := byHand(t, q, true, func(k *result.Case) {
			k.Mode, k.Direction, k.Iters, k.Warmup = result.Bandwidth, result.Both, 20, 4
		})
		s, r := end.Initiated, end.Received
		near(t, "sent", []float64{float64(s.Ops), float64(s.Bytes), float64(s.Elapsed) / 1e6, s.OpsS}, []float64{20, 160,
			20, 1000})
		near(t, "received", []float64{float64(r.Ops), float64(r.Bytes), float64(r.Elapsed) / 1e6, r.OpsS},
			[]float64{19, 152, 57, 1000. / 3})
		assert.Equal(t, len(intervals), 1)
		near(t, "cost", []float64{float64(end.Cost.Wall) / 1e6}, []float64{68}) // from 4 ms to 72 ms
		near(t, "per operation", []float64{end.Cost.PerMillion * 40 / 1e6}, []float64{time.Duration(end.Cost.CPU).Seconds()})
	})
}

// both is a timed link with messages that arrive beside it.
type both struct {
	*timed
	in *timed
}

func (b *both) poll(out []done, _ int) (int, error) {
	n, _ := b.timed.poll(out, 1)
	m, err := b.in.poll(out[n:], 1)
	return n + m, err
}

func (b *both) wait(out []done, timeout time.Duration) (int, error) {
	for _, p := range []*timed{b.timed, b.in} {
		if len(p.queue) > 0 {
			timeout = min(timeout, time.Until(p.queue[0].at))
		}
	}
	time.Sleep(timeout)
	return b.poll(out, 1)
}

// The end that only receives measures from the first message after the warm-up to the last: 10
// messages of which 4 are warm-up are 5 intervals of 7 ms. So does its cost.
func TestReceiverByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &timed{}
		p.arrive(10, 7*ms)
		end, _, _ := byHand(t, p, false, func(k *result.Case) { k.Mode, k.Iters, k.Warmup = result.Bandwidth, 6, 4 })
		near(t, "received", []float64{float64(end.Received.Ops), float64(end.Received.Elapsed) / 1e6}, []float64{5, 35})
		near(t, "cost", []float64{float64(end.Cost.Wall) / 1e6}, []float64{35})
	})
}

// The percentiles of an interval are between the interval's extremes, like those of the whole run,
// although a cell of the histogram ends above the times that it counts.
func TestIntervalPercentiles(t *testing.T) {
	c := result.Default()
	c.Mode, c.Rate = result.Bandwidth, 1 // the latency of the whole operation
	c.Complete()
	var told []result.Interval
	r := newRecorder(&c, func(iv result.Interval) { told = append(told, iv) })
	r.begin(0)
	for range 2 {
		r.sample(0, 0, 1_000_001)
	}
	r.tick(int64(c.Interval))
	assert.Equal(t, len(told), 1)
	assert.DeepEqual(t, []float64{told[0].P50, told[0].P99, told[0].Max}, []float64{1_000_001, 1_000_001, 1_000_001})
	assert.Assert(t, !math.IsInf(told[0].GbitS, 0))

	// An operation that waited until it was posted: its interval has the latency from then on, and
	// the next interval begins anew.
	told = nil
	from := int64(c.Interval)
	r.sample(from, from+500, from+700)
	r.tick(2 * from)
	r.sample(2*from, 2*from, 2*from+300)
	r.tick(3 * from)
	r.end()
	assert.Equal(t, len(told), 2, "an interval without operations")
	assert.DeepEqual(t, []float64{told[0].Max, told[1].Max}, []float64{200, 300})
	assert.DeepEqual(t, []int64{told[0].Ops, told[1].Ops}, []int64{1, 1})
}
