package engine

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/godat/godat/internal/perf/result"
)

// ping measures latency. It runs one operation at a time, on the queue pairs in turn.
func (w *worker) ping() error {
	defer w.spin.begin(w.c)()
	w.awaits = true
	total := int64(unknown)
	if w.c.Iters > 0 {
		total = w.c.Iters + w.c.Warmup
	}
	stopAt := int64(unknown)
	w.pace.start(w.now())
	n := int64(0)
	for ; n < total; n++ {
		qp := int(n % int64(w.c.QPs))
		if n == w.c.Warmup {
			w.cost.start()
			now := w.now()
			w.rec.begin(now)
			if w.c.Duration > 0 {
				stopAt = now + int64(w.c.Duration)
			}
			w.pace.start(now)
		}
		due, err := w.await()
		if err != nil {
			return err
		}
		from := w.now()
		if due == 0 {
			due = from
		}
		if err := w.pingOnce(qp); err != nil {
			return err
		}
		now := w.now()
		w.spin.breathe(now)
		if n >= w.c.Warmup {
			w.rec.sample(due, from, now)
			w.rec.tick(now)
		}
		if err := w.afterPing(qp); err != nil {
			return err
		}
		if now >= stopAt || n >= w.c.Warmup && w.sh.finish.Load() {
			break
		}
	}
	w.rec.stop = w.now()
	w.rec.end()
	w.sent(w.initSeq)
	return nil
}

// await returns the time at which the next operation is due. In an open loop it waits until then.
// In a closed loop it returns 0 at once.
func (w *worker) await() (due int64, err error) {
	if !w.pace.open() {
		return 0, nil
	}
	due = w.pace.due()
	w.pace.advance()
	for {
		left := time.Duration(due - w.now())
		switch {
		case left <= 0:
			return due, nil
		case left > 2*time.Millisecond: // timers are inexact: poll the clock for the last millisecond
			time.Sleep(min(left-time.Millisecond, parkTime))
			if err := w.sh.err(); err != nil {
				return 0, err
			}
		default:
			runtime.Gosched()
		}
	}
}

// pingOnce runs one operation. It returns at the moment at which the operation's latency ends. In a
// ping-pong the latency ends when the peer's answer arrives. Otherwise it ends when the operation
// completes.
func (w *worker) pingOnce(qp int) error {
	if !w.c.PingPong() {
		if err := w.post(qp, 1, true); err != nil {
			return err
		}
		return w.drain(qp)
	}
	if w.c.Test == result.Write {
		if err := w.postMarked(qp, false); err != nil {
			return err
		}
		return w.awaitMark(qp)
	}
	if err := w.post(qp, 1, false); err != nil {
		return err
	}
	return w.awaitMessage()
}

// afterPing does the work that the latency must not include: it polls the completions of earlier
// requests, posts receives and verifies.
func (w *worker) afterPing(qp int) error {
	if w.c.PingPong() {
		if w.c.Test == result.Write && w.pending[qp] >= w.c.Signal {
			return w.poll()
		}
		return w.takeMessages()
	}
	if w.c.Verify {
		return w.verifyResults(qp, w.initSeq[qp]-1, 1)
	}
	return nil
}

// pong answers every message with a message of the same kind.
func (w *worker) pong() error {
	defer w.spin.begin(w.c)()
	for n := int64(0); n < w.sh.expect.Load(); n++ {
		w.spin.breathe(w.now())
		if n == w.c.Warmup {
			w.cost.restart()
		}
		qp := int(n % int64(w.c.QPs))
		if w.c.Test == result.Write {
			if err := w.awaitMark(qp); err != nil {
				return w.endOfPong(n, err)
			}
			if err := w.postMarked(qp, false); err != nil {
				return err
			}
			if w.pending[qp] >= w.c.Signal {
				if err := w.poll(); err != nil {
					return err
				}
			}
			continue
		}
		if err := w.awaitMessage(); err != nil {
			return w.endOfPong(n, err)
		}
		if err := w.post(int(w.inbox[0].qp), 1, false); err != nil {
			return err
		}
		if err := w.takeMessages(); err != nil {
			return err
		}
	}
	return nil
}

// endOfPong returns nil if err only means that no more messages will come. Otherwise it returns
// err.
func (w *worker) endOfPong(n int64, err error) error {
	if err == errNoMore && n >= w.sh.expect.Load() {
		return nil
	}
	return err
}

func (w *worker) awaitMessage() error {
	for len(w.inbox) == 0 {
		n, err := w.reap()
		if err != nil {
			return err
		}
		if n == 0 && w.nothingMore() {
			return errNoMore
		}
	}
	return nil
}

// nothingMore reports whether the peer has announced its number of messages, and all of these
// messages have arrived.
func (w *worker) nothingMore() bool {
	return !w.initOps && w.received >= w.sh.expect.Load()
}

func (w *worker) takeMessages() error {
	for i := range w.inbox {
		if err := w.gotMessage(&w.inbox[i]); err != nil {
			return err
		}
	}
	w.inbox = w.inbox[:0]
	return nil
}

// postMarked posts a write whose last byte is a mark. By this byte the peer detects that the write
// has arrived. If flush is true, the write is signalled.
func (w *worker) postMarked(qp int, flush bool) error {
	seq := w.initSeq[qp]
	if w.c.Verify {
		w.prepare(qp, seq, 1)
	}
	last := w.lay.tx.at(qp, seq) + w.lay.size - 1
	w.l.bytes()[last] = markOf(seq)
	if err := w.l.request(qp, seq, 1, flush); err != nil {
		return w.failed(err)
	}
	w.initSeq[qp]++
	w.pending[qp]++
	return nil
}

// lastMarked posts one more write with a mark, and waits until this write has completed.
func (w *worker) lastMarked() error {
	if err := w.postMarked(0, true); err != nil {
		return err
	}
	return w.drain(0)
}

// markOf returns the mark of message seq, which is the last byte of that message. It differs from
// the mark of message seq-1. The first mark is not 0, because the memory contains 0 before the
// first message.
func markOf(seq uint64) byte { return byte(seq + 1) }

// markSpins is the number of memory polls between two polls of the link.
const markSpins = 1024

// awaitMark polls the last byte of the peer's next write until that write has arrived.
func (w *worker) awaitMark(qp int) error {
	seq := w.rxSeq[qp]
	at := w.lay.rx.at(qp, 0)
	last := at + w.lay.size - 1
	mem := w.l.bytes()
	// The access is aligned, because the memory begins on a page. It is in bounds, because the
	// memory is longer than the slots.
	word := (*uint32)(unsafe.Pointer(&mem[last&^3]))
	mark := markOf(seq)
	for spins := 1; ; spins++ {
		v := atomic.LoadUint32(word)
		if (*[4]byte)(unsafe.Pointer(&v))[last&3] == mark {
			break
		}
		if spins%16 != 0 {
			continue
		}
		if spins == 16 {
			w.idle.since = w.now()
		}
		w.relax(spins / 16)
		if spins%markSpins == 0 {
			if err := w.poll(); err != nil { // only a poll detects a broken connection
				return err
			}
			if err := w.look(); err != nil {
				return err
			}
			if w.nothingMore() {
				return errNoMore
			}
		}
	}
	w.rxSeq[qp]++
	w.received++
	if err := w.sh.err(); err != nil {
		return err
	}
	if w.c.Verify {
		if err := w.checkMarked(mem[at:at+w.lay.size], qp, seq); err != nil {
			return err
		}
		w.verified++
	}
	return nil
}

func (w *worker) checkMarked(b []byte, qp int, seq uint64) error {
	// The last byte of b is the mark. It is not part of the payload.
	return check(b[:len(b)-1], qp, seq)
}
