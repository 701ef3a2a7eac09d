package engine

import (
	"math"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// streamer is the worker of a bandwidth measurement, with the state that only such a measurement
// needs.
type streamer struct {
	*worker
	quota     []uint64 // total number of requests to post on each queue pair
	ready     []int    // queue pairs that may have room for a batch
	queued    []bool   // whether a queue pair is in ready
	measuring bool
	finishing bool  // only the requests that the field quota still allows are posted
	stopAt    int64 // when posting ends, if the case has a duration
	over      bool  // all initiated operations have completed
	lastDone  int64
	posted    [][]int64 // open loop: when each request in flight was posted, by queue pair and sequence number
	due       [][]int64 // open loop: when each request in flight was due; indexed as posted
	turn      int       // open loop: the next queue pair to post on
	unlooked  int       // bytes posted since the clock was last read
}

// bytesUnlooked is the number of bytes that a loop posts before it reads the clock. A software
// device executes a request within the post, so posting a hundred requests can take longer than
// yieldEvery.
const bytesUnlooked = 64 << 10

// stream measures bandwidth. If this end initiates, it keeps up to depth requests in flight on
// every queue pair. If the peer initiates, it receives the peer's messages. It returns when it has
// finished sending and receiving.
func (w *worker) stream() error {
	defer w.spin.begin(w.c)()
	s := &streamer{worker: w, stopAt: math.MaxInt64, over: !w.initOps}
	if w.initOps {
		s.begin()
	}
	for {
		if !s.over {
			if err := s.postReady(); err != nil {
				return err
			}
		}
		got, err := w.take()
		if err != nil {
			return err
		}
		if len(got) == 0 && w.idle.empty%16 != 0 && !w.pace.open() && !parks(w.c) {
			continue // no completion: do not read the clock
		}
		now := w.now()
		w.spin.breathe(now)
		for i := range got {
			if err := s.completion(&got[i], now); err != nil {
				return err
			}
		}
		if !s.over {
			s.advance(now)
		}
		if s.over && (!w.c.TwoSided() || w.received >= w.expected() || w.restIsLost(now)) {
			return nil
		}
	}
}

// expected returns the number of messages that this end receives. It is 0 if the peer does not
// initiate.
func (w *worker) expected() int64 {
	if w.initOps && w.c.Direction != result.Both {
		return 0
	}
	return w.sh.expect.Load()
}

// lossWait is how long a receiver waits for a new message after its peer has sent all its messages.
// Then it counts the missing messages as lost.
const lossWait = 500 * time.Millisecond

// restIsLost reports whether the messages that have not arrived count as lost. If the peer is one
// of perftest's programs, restIsLost allows it more time, because such a program does not report
// when it has sent all its messages.
func (w *worker) restIsLost(now int64) bool {
	wait := min(lossWait, time.Duration(w.c.Stall)/2)
	if w.sh.foreign {
		wait = time.Duration(w.c.Stall) / 2
	}
	return w.c.Lossy() && w.sh.isTold() && (w.received > 0 || !w.sh.foreign) && w.idle.empty > 0 &&
		time.Duration(now-w.idle.since) > wait
}

func (s *streamer) begin() {
	c := s.c
	s.quota = make([]uint64, c.QPs)
	s.queued = make([]bool, c.QPs)
	s.ready = make([]int, 0, c.QPs)
	if s.pace.open() {
		s.posted, s.due = make([][]int64, c.QPs), make([][]int64, c.QPs)
		for qp := range s.due {
			s.posted[qp], s.due[qp] = make([]int64, c.Depth), make([]int64, c.Depth)
		}
	}
	s.pace.start(s.now())
	s.allot(c.Warmup)
	if c.Warmup == 0 {
		s.measure()
	}
}

// allot adds n requests to the quotas of the queue pairs, evenly.
func (s *streamer) allot(n int64) {
	qps := uint64(s.c.QPs)
	for qp := range s.quota {
		s.quota[qp] += uint64(n) / qps
		if uint64(qp) < uint64(n)%qps {
			s.quota[qp]++
		}
		s.wake(qp)
	}
}

// measure starts the measurement. No request may be in flight.
func (s *streamer) measure() {
	s.cost.start()
	now := s.now()
	s.measuring = true
	s.rec.begin(now)
	s.pace.start(now)
	if s.c.Duration > 0 {
		s.stopAt = now + int64(s.c.Duration)
		for qp := range s.quota {
			s.quota[qp] = math.MaxUint64
			s.wake(qp)
		}
		return
	}
	s.allot(s.c.Iters)
}

func (s *streamer) wake(qp int) {
	if !s.queued[qp] {
		s.queued[qp] = true
		s.ready = append(s.ready, qp)
	}
}

// postReady posts requests on all queue pairs that have room.
func (s *streamer) postReady() error {
	if s.pace.open() {
		return s.postDue()
	}
	for len(s.ready) > 0 {
		qp := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		s.queued[qp] = false
		for {
			left := s.quota[qp] - s.initSeq[qp]
			n := int(min(left, uint64(s.c.Batch)))
			if n == 0 || s.c.Depth-s.pending[qp] < n {
				break
			}
			if err := s.post(qp, n, uint64(n) == left); err != nil {
				return err
			}
			if s.unlooked += n * s.c.Size; s.unlooked >= bytesUnlooked {
				s.unlooked = 0
				s.spin.breathe(s.now())
			}
		}
	}
	return nil
}

// postDue posts the operations that are due, in turn on the queue pairs that have quota left. If
// the next queue pair is full, the operation waits, and its corrected latency includes this wait.
func (s *streamer) postDue() error {
	for {
		now, qp := s.now(), s.next()
		s.spin.breathe(now)
		s.awaits = s.pace.due() <= now
		full := s.quota[qp] == s.initSeq[qp] || s.pending[qp] == s.c.Depth
		if s.wakeAt = s.pace.due(); full { // only a completion makes room
			s.wakeAt = 0
		}
		if !s.awaits || full {
			return nil
		}
		at := s.initSeq[qp] % uint64(s.c.Depth)
		s.posted[qp][at], s.due[qp][at] = now, s.pace.due()
		if err := s.post(qp, 1, true); err != nil {
			return err
		}
		s.pace.advance()
		s.turn = (qp + 1) % s.c.QPs
	}
}

// next returns the first queue pair that has quota left, counting from s.turn. It returns s.turn if
// no queue pair has quota left.
func (s *streamer) next() int {
	for i := range s.c.QPs {
		if qp := (s.turn + i) % s.c.QPs; s.quota[qp] > s.initSeq[qp] {
			return qp
		}
	}
	return s.turn
}

func (s *streamer) completion(d *done, now int64) error {
	if d.recv {
		if s.received == s.c.Warmup {
			s.rxFirst = now
			if !s.initOps {
				s.cost.restart()
			}
		}
		s.rxLast = now
		return s.gotMessage(d)
	}
	qp := int(d.qp)
	first := s.initSeq[qp] - uint64(s.pending[qp]) // sequence number of the oldest request of this completion
	s.requestsDone(d)
	if s.c.Verify {
		if err := s.verifyResults(qp, first, int(d.n)); err != nil {
			return err
		}
	}
	s.lastDone = now
	switch {
	case !s.measuring:
	case s.pace.open():
		at := first % uint64(s.c.Depth)
		s.rec.sample(s.due[qp][at], s.posted[qp][at], now)
	default:
		s.rec.ops += int64(d.n)
	}
	s.wake(qp)
	return nil
}

// advance starts the measurement when the warm-up is done, stops posting when the time is over, and
// ends the measurement when all requests have completed.
func (s *streamer) advance(now int64) {
	if now >= s.stopAt || s.measuring && !s.finishing && s.sh.finish.Load() {
		s.finishing = true
		s.stopAt = math.MaxInt64
		for qp := range s.quota {
			s.quota[qp] = s.initSeq[qp]
			if s.l.unsignalled(qp) > 0 { // post one more, signalled, whose completion covers the unsignalled ones
				s.quota[qp]++
			}
			s.wake(qp)
		}
		s.rec.next = now + s.rec.every // the current interval includes what is still in flight
	}
	s.rec.tick(now)
	for qp := range s.quota {
		if s.pending[qp] > 0 || s.initSeq[qp] < s.quota[qp] {
			return
		}
	}
	if !s.measuring {
		s.measure()
		return
	}
	s.over, s.awaits, s.wakeAt = true, false, 0
	s.rec.stop = s.lastDone
	s.rec.end()
	s.sent(s.initSeq)
}
