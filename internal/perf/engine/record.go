package engine

import (
	"math"

	"github.com/godat/godat/internal/perf/result"
)

// recorder collects the measurements of an initiator and reports each interval.
type recorder struct {
	latency   *samples
	corrected *samples // latency and the time that the operation waited to be posted; open loop only
	part      *samples // latency in the current interval; nil if latency is not measured
	pingPong  bool
	every     int64
	next      int64 // end of the current interval
	from      int64
	start     int64
	due       int64 // when the last operation was due
	waited    int64 // how long the last operation waited until it was posted
	stop      int64 // when the last operation completed
	ops, told int64
	size      int64
	tell      func(result.Interval)
}

func newRecorder(c *result.Case, tell func(result.Interval)) *recorder {
	r := &recorder{pingPong: c.PingPong(), every: int64(c.Interval), next: math.MaxInt64, size: int64(c.Size), tell: tell}
	if c.Mode == result.Latency || c.Rate > 0 {
		r.latency, r.part = newSamples(), newSamples()
	}
	if c.Rate > 0 {
		r.corrected = newSamples()
	}
	return r
}

// begin starts the measurement, after the warm-up.
func (r *recorder) begin(now int64) {
	r.start, r.from, r.next = now, now, now+r.every
}

// sample counts one operation, which was due, posted and complete at these times. A ping-pong
// halves its round trip, but not the time that an operation waited from due until posted.
func (r *recorder) sample(due, posted, complete int64) {
	r.ops++
	r.latency.add(complete - posted)
	r.part.add(complete - posted)
	r.due, r.waited = due, max(posted-due, 0)
	if r.corrected != nil {
		r.corrected.add(int64(math.Ceil(float64(complete-posted)/r.div())) + r.waited)
	}
}

// tick reports the current interval if it has lasted long enough.
func (r *recorder) tick(now int64) {
	if now >= r.next {
		r.report(now)
	}
}

// end reports the operations since the last report, if there were any. The interval in this report
// ends with the run.
func (r *recorder) end() {
	if r.ops > r.told {
		r.report(r.stop)
	}
}

// report reports the interval that ends now, and begins the next one.
func (r *recorder) report(now int64) {
	ops := r.ops - r.told
	iv := result.Interval{
		Start: result.Seconds(r.from - r.start), Stop: result.Seconds(now - r.start), Ops: ops, Bytes: ops * r.size,
		GbitS: float64(ops*r.size) * 8 / float64(now-r.from),
	}
	if r.part != nil && r.part.hist.TotalCount() > 0 {
		div := r.div()
		iv.P50, iv.P99 = r.part.percentile(50)/div, r.part.percentile(99)/div
		iv.Max = float64(r.part.max) / div
		r.part.reset()
	}
	r.told, r.from, r.next = r.ops, now, now+r.every
	r.tell(iv)
}

func (r *recorder) div() float64 {
	if r.pingPong {
		return 2
	}
	return 1
}

// stream returns the summary of the measurement.
func (r *recorder) stream() *result.Stream {
	s := &result.Stream{Ops: r.ops, Bytes: r.ops * r.size, Elapsed: result.Seconds(r.stop - r.start)}
	if r.latency != nil {
		s.Latency = r.latency.distribution(r.div())
	}
	if r.pingPong && r.latency != nil {
		s.RoundTrip = r.latency.distribution(1)
		s.RoundTrip.Histogram = nil
	}
	if r.corrected != nil {
		s.Corrected = r.corrected.distribution(1)
	}
	s.Fill()
	return s
}
