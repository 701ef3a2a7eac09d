package engine

import (
	"fmt"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// worker runs a case at one end. One goroutine drives all queue pairs.
type worker struct {
	c       *result.Case
	lay     layout
	l       link
	sh      *shared
	initOps bool           // this end initiates operations
	sent    func([]uint64) // announces the number of operations on each queue pair
	rec     *recorder
	pace    pace
	base    time.Time
	spin    spin

	done     []done
	initSeq  []uint64 // sequence number of the next request of each queue pair
	pending  []int    // requests in flight of each queue pair
	rxSeq    []uint64 // sequence number of the next message of each queue pair
	received int64    // number of messages received on all queue pairs
	rxFirst  int64    // time of the first message after the warm-up
	rxLast   int64
	repost   []int // receives to post again, per queue pair
	rxSlot   []uint64
	verified int64
	cost     costMeter

	inbox  []done // messages that have arrived but have not been processed; latency only
	idle   idleState
	wakeAt int64 // open loop: when the loop posts the next operation; 0 if it waits for completions only
	awaits bool  // this end waits for more than completions: for the peer's answer, or to post an operation that is due
}

type idleState struct {
	empty int   // consecutive empty polls
	since int64 // time of the first of these polls
}

func newWorker(c *result.Case, lay layout, l link, sh *shared, initiates bool, fabric string,
	tell func(result.Interval), sent func([]uint64)) *worker {
	w := &worker{
		c: c, lay: lay, l: l, sh: sh, initOps: initiates, sent: sent, rec: newRecorder(c, tell), pace: newPace(c),
		base: time.Now(), spin: newSpin(c, fabric), done: make([]done, pollBatch), initSeq: make([]uint64, c.QPs),
		pending: make([]int, c.QPs), rxSeq: make([]uint64, c.QPs), repost: make([]int, c.QPs), rxSlot: make([]uint64, c.QPs),
	}
	return w
}

// now returns nanoseconds since the case began, from the monotonic clock.
func (w *worker) now() int64 { return int64(time.Since(w.base)) }

// failed returns the error to report instead of err. It waits up to 100 ms for the case to be
// aborted. If the case is aborted, err is a consequence, and the method returns the error with
// which the case was aborted. Otherwise it returns err.
func (w *worker) failed(err error) error {
	for range 20 {
		if told := w.sh.err(); told != nil {
			return told
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// requestsDone subtracts the completed requests from those in flight.
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

// gotMessage verifies a received message and posts its receive again.
func (w *worker) gotMessage(d *done) error {
	qp := int(d.qp)
	seq := w.rxSeq[qp]
	w.rxSeq[qp]++
	w.received++
	if int(d.n) != w.lay.size {
		return fmt.Errorf("a message of %d bytes arrived, %d were sent", d.n, w.lay.size)
	}
	if w.c.Test != result.Send && d.imm != uint32(seq) {
		return fmt.Errorf("message %d of queue pair %d came with immediate data %d", seq, qp, d.imm)
	}
	// In a stream of writes, later writes may already have overwritten the data. For such a stream,
	// verifyTargets checks the last write to each slot after the run.
	if w.c.Verify && (w.c.Test != result.WriteImm || w.c.Mode == result.Latency) {
		at := w.lay.rx.at(qp, uint64(d.slot))
		switch {
		case w.c.Test == result.WriteImm:
			at = w.lay.rx.at(qp, seq)
		case w.c.SRQ: // the receives of the shared queue use the slots of the first queue pair
			at = w.lay.rx.at(0, uint64(d.slot))
		}
		if err := check(w.l.bytes()[at:at+w.lay.size], qp, seq); err != nil {
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

// repostAt returns the number of used receives that the worker collects before it posts them again.
func (w *worker) repostAt() int {
	if w.c.Mode == result.Latency {
		return 1
	}
	return max(1, min(32, w.c.RxDepth/8))
}

func (w *worker) postReceives(qp int) error {
	n := w.repost[qp]
	w.repost[qp] = 0
	// Receives complete in posting order, so the slots to post again begin with the slot that was used
	// longest ago.
	slot := w.rxSlot[qp]
	w.rxSlot[qp] += uint64(n)
	if err := w.l.receive(qp, slot+uint64(w.c.RxDepth), n); err != nil {
		return w.failed(err)
	}
	return nil
}

// prepare writes the payloads of n requests from sequence number seq on. For reads and atomics it
// clears the buffers of their results.
func (w *worker) prepare(qp int, seq uint64, n int) {
	mem, local := w.l.bytes(), w.lay.local(w.c.Test)
	for s := seq; s < seq+uint64(n); s++ {
		at := local.at(qp, s)
		if w.c.Test == result.Read || w.c.Atomic() {
			clear(mem[at : at+w.lay.size])
		} else {
			fill(mem[at:at+w.lay.size], qp, s)
		}
	}
}
