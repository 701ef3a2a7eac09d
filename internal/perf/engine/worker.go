package engine

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// pollBatch is the number of completions of one poll.
const pollBatch = 64

// parkTime is how long a parked end waits before it checks whether the case has been stopped.
const parkTime = 50 * time.Millisecond

// unknown is the number of expected messages before the peer has announced it.
const unknown = math.MaxInt64

// shared is the state that the goroutine of the control connection passes to the loop.
type shared struct {
	expect  atomic.Int64  // operations that the peer initiates in all
	counts  []uint64      // and on each queue pair; to be read once told is closed
	told    chan struct{} // closed once expect is known
	said    atomic.Bool   // this end has announced its number of operations
	finish  atomic.Bool   // end the run now, keep results so far
	foreign bool          // the peer is a program of perftest: expect is known from the start
	once    sync.Once
	stopped atomic.Pointer[error]
	stop    chan struct{}
}

func newShared() *shared {
	s := &shared{told: make(chan struct{}), stop: make(chan struct{})}
	s.expect.Store(unknown)
	return s
}

func (s *shared) setExpect(counts []uint64) {
	s.once.Do(func() {
		s.counts = counts
		n := uint64(0)
		for _, c := range counts {
			n += c
		}
		s.expect.Store(int64(n))
		close(s.told)
	})
}

func (s *shared) isTold() bool {
	select {
	case <-s.told:
		return true
	default:
		return false
	}
}

// abort ends the loop with an error; the first one counts.
func (s *shared) abort(err error) {
	if s.stopped.CompareAndSwap(nil, &err) {
		close(s.stop)
	}
}

func (s *shared) err() error {
	if p := s.stopped.Load(); p != nil {
		return *p
	}
	return nil
}

// worker runs a case at one end: one goroutine drives all queue pairs.
type worker struct {
	c       *result.Case
	lay     layout
	l       link
	sh      *shared
	initOps bool           // this end initiates
	sent    func([]uint64) // announces the number of operations of each queue pair
	rec     *recorder
	pace    pace
	base    time.Time
	spin    spin

	done     []done
	initSeq  []uint64 // next request of each queue pair
	pending  []int    // requests in flight of each queue pair
	rxSeq    []uint64 // next message of each queue pair
	received int64    // messages in all
	rxFirst  int64    // time of the first one counted
	rxLast   int64
	repost   []int // receives to post again, by queue pair
	rxSlot   []uint64
	verified int64

	steps   []result.Step // of a transaction
	stepSeq [2][]uint64   // sends and writes of each queue pair
	expects int           // bytes of the next message

	inbox  []done // arrived, unprocessed messages; latency only
	idle   idleState
	awaits bool // an answer of the peer's, besides completions
}

type idleState struct {
	empty int   // consecutive empty polls
	since int64 // when the first of them was
}

func newWorker(c *result.Case, lay layout, l link, sh *shared, initiates bool, fabric string,
	tell func(result.Interval), sent func([]uint64)) *worker {
	w := &worker{
		c: c, lay: lay, l: l, sh: sh, initOps: initiates, sent: sent, rec: newRecorder(c, tell), pace: newPace(c),
		base: time.Now(), spin: newSpin(c, fabric), done: make([]done, pollBatch), initSeq: make([]uint64, c.QPs),
		pending: make([]int, c.QPs), rxSeq: make([]uint64, c.QPs), repost: make([]int, c.QPs), rxSlot: make([]uint64, c.QPs),
	}
	w.expects = lay.size
	if c.Test == result.Transaction {
		w.steps, _ = c.Transaction()
		w.stepSeq = [2][]uint64{make([]uint64, c.QPs), make([]uint64, c.QPs)}
	}
	return w
}

// now returns nanoseconds since the case began, from the monotonic clock.
func (w *worker) now() int64 { return int64(time.Since(w.base)) }

// run runs this end's part and returns what it measured.
func (w *worker) run() (end *result.End, err error) {
	end = &result.End{}
	stop := measureCost()
	switch {
	case w.c.Mode == result.Latency && w.initOps:
		err = w.ping()
	case w.c.PingPong():
		err = w.pong()
	case w.c.Test == result.Transaction:
		err = w.follow()
	case w.c.Mode == result.Latency || !w.initOps && !w.c.TwoSided():
		err = w.watch()
	default:
		err = w.stream()
	}
	if err == nil && w.c.Verify {
		err = w.verifyTargets()
	}
	if err != nil {
		return nil, err
	}
	if w.initOps {
		end.Initiated = w.rec.stream()
	}
	ops, bytes := w.rec.ops, w.rec.ops*w.rec.size
	if w.c.Mode == result.Bandwidth && w.c.TwoSided() && w.received > w.c.Warmup {
		n := w.received - w.c.Warmup
		// The time from the first to the last arrival covers one message less.
		end.Received = &result.Stream{Ops: n - 1, Bytes: (n - 1) * int64(w.c.Size),
			Elapsed: result.Seconds(w.rxLast - w.rxFirst)}
		end.Received.Fill()
		ops, bytes = ops+n, bytes+n*int64(w.c.Size)
	}
	if !w.initOps && end.Received == nil { // the passive end's cost is for all operations
		ops = max(w.sh.expect.Load()-w.c.Warmup, 0)
		bytes = ops * int64(w.c.Size)
	}
	end.Verified = w.verified
	end.Cost = stop(ops, bytes)
	end.Notes, end.Path = w.l.notes(), w.l.path()
	if sent := w.expected(); w.c.Lossy() && w.c.Mode == result.Bandwidth && w.c.TwoSided() && sent > 0 {
		end.Lost = sent - w.received
		arrived := 0.0
		if end.Received != nil {
			arrived = end.Received.GbitS
		}
		end.Notes = append(end.Notes, fmt.Sprintf("%s: %d of %d messages were lost (%.3g%%), %.3f Gb/s arrived",
			w.c.Transport, end.Lost, sent, float64(end.Lost)/float64(sent)*100, arrived))
	}
	return end, nil
}

// watch is the part of the target of one-sided operations: it waits for the end.
func (w *worker) watch() error {
	select {
	case <-w.sh.told:
		return w.sh.err()
	case <-w.sh.stop:
		return w.sh.err()
	}
}

// waitMore is called after an empty poll. It spins, yields or parks as the case says, and fills
// w.done like poll. It returns an error if the case was stopped or hangs.
func (w *worker) waitMore() (int, error) {
	i := &w.idle
	if i.empty == 0 {
		i.since = w.now()
	}
	i.empty++
	switch {
	case parks(w.c):
		return w.park()
	case w.c.Poll == result.Adaptive && i.empty%8 == 0 && w.now()-i.since > int64(w.c.Spin):
		return w.park()
	}
	w.relax(i.empty)
	if i.empty%1024 == 0 {
		return 0, w.look()
	}
	return 0, nil
}

func (w *worker) park() (int, error) {
	timeout := parkTime
	if w.pace.open() && w.initOps {
		timeout = max(0, min(timeout, time.Duration(w.pace.due()-w.now())))
	}
	n, err := w.l.wait(w.done, timeout)
	if err != nil {
		return 0, w.failed(err)
	}
	if n == 0 {
		return 0, w.look()
	}
	return n, nil
}

// look returns an error if the case was stopped or hangs.
func (w *worker) look() error {
	if err := w.sh.err(); err != nil {
		return err
	}
	// Without requests in flight an end waits as long as its peer pauses, except for messages that
	// the peer has announced.
	if out := w.outstanding(); out > 0 || w.awaits || w.sh.isTold() {
		if idle := time.Duration(w.now() - w.idle.since); idle > time.Duration(w.c.Stall) {
			return fmt.Errorf("no completion for %v, %d requests in flight (--stall)", idle.Round(time.Millisecond), out)
		}
	}
	return nil
}

func (w *worker) outstanding() (n int) {
	for _, p := range w.pending {
		n += p
	}
	return n
}

// busy records that something completed.
func (w *worker) busy() {
	if w.idle.empty > 0 {
		w.idle = idleState{}
	}
}

// take returns completions; if there are none it waits once, as the case says.
func (w *worker) take() ([]done, error) {
	n, err := w.l.poll(w.done, w.spin.polls())
	if err != nil {
		return nil, w.failed(err)
	}
	if n == 0 {
		if n, err = w.waitMore(); n == 0 || err != nil {
			return nil, err
		}
	}
	w.busy()
	return w.done[:n], w.sh.err() // also stops a loop that never waits long
}

// failed returns the peer's error if there is one, because err is then its consequence.
func (w *worker) failed(err error) error {
	for range 20 {
		if told := w.sh.err(); told != nil {
			return told
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// requestsDone counts completed requests.
func (w *worker) requestsDone(d *done) { w.pending[d.qp] -= int(d.n) }

// post posts n requests with their payloads.
func (w *worker) post(qp, n int, flush bool) error {
	seq := w.initSeq[qp]
	if w.c.Verify {
		w.prepare(qp, seq, n)
	}
	if err := w.l.request(qp, seq, n, flush); err != nil {
		return w.failed(err)
	}
	w.initSeq[qp] += uint64(n)
	w.pending[qp] += n
	return nil
}

// gotMessage verifies a received message and reposts its receive.
func (w *worker) gotMessage(d *done) error {
	qp := int(d.qp)
	seq := w.rxSeq[qp]
	w.rxSeq[qp]++
	w.received++
	if int(d.n) != w.expects {
		return fmt.Errorf("a message of %d bytes arrived, %d were sent", d.n, w.expects)
	}
	if w.c.Test != result.Send && w.c.Test != result.Transaction && d.imm != uint32(seq) {
		return fmt.Errorf("message %d of queue pair %d came with immediate data %d", seq, qp, d.imm)
	}
	// Later writes of a stream may have overwritten the data by now; verifyTargets checks the last
	// ones.
	if w.c.Verify && (w.c.Test != result.WriteImm || w.c.Mode == result.Latency) {
		at := w.lay.rx.at(qp, uint64(d.slot))
		switch {
		case w.c.Test == result.WriteImm:
			at = w.lay.rx.at(qp, seq)
		case w.c.SRQ: // the shared queue has the slots of the first queue pair
			at = w.lay.rx.at(0, uint64(d.slot))
		}
		if err := check(w.l.bytes()[at:at+w.expects], qp, seq); err != nil {
			return err
		}
		w.verified++
	}
	if w.c.SRQ {
		return w.l.receive(0, uint64(d.slot), 1)
	}
	w.repost[qp]++
	if w.repost[qp] >= w.repostAt() {
		return w.postReceives(qp)
	}
	return nil
}

// repostAt is the number of used receives that are reposted at once.
func (w *worker) repostAt() int {
	if w.c.Mode == result.Latency {
		return 1
	}
	return max(1, min(32, w.c.RxDepth/8))
}

func (w *worker) postReceives(qp int) error {
	n := w.repost[qp]
	w.repost[qp] = 0
	// Receives complete in posting order, so the slot to repost is that of the oldest used one.
	slot := w.rxSlot[qp]
	w.rxSlot[qp] += uint64(n)
	if err := w.l.receive(qp, slot+uint64(w.c.RxDepth), n); err != nil {
		return w.failed(err)
	}
	return nil
}
