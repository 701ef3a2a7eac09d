package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// verifyResults checks the results of completed reads and atomics.
func (w *worker) verifyResults(qp int, first uint64, n int) error {
	if w.c.Test != result.Read && !w.c.Atomic() {
		return nil
	}
	mem := w.l.bytes()
	for s := first; s < first+uint64(n); s++ {
		at := w.lay.rx.at(qp, s)
		got := mem[at : at+w.lay.size]
		if w.c.Test == result.Read {
			if err := check(got, qp, w.lay.tx.slot(s)); err != nil {
				return err
			}
		} else if before := binary.NativeEndian.Uint64(got); before != s {
			return fmt.Errorf("%s %d of queue pair %d: the value before it was %d", w.c.Test, s, qp, before)
		}
		w.verified++
	}
	return nil
}

// verifyTargets checks the peer's writes and atomics in this end's memory after the run.
func (w *worker) verifyTargets() error {
	if w.initOps && w.c.Direction != result.Both || w.c.Mode == result.Latency && w.c.PingPong() {
		return nil
	}
	if err := w.watch(); err != nil { // until the peer has announced how many operations it ran
		return err
	}
	mem := w.l.bytes()
	switch {
	case w.c.Atomic():
		sum := uint64(0)
		for qp := range w.c.QPs {
			sum += binary.NativeEndian.Uint64(mem[w.lay.word.at(qp, 0):])
		}
		if want := w.sh.expect.Load(); int64(sum) != want {
			return fmt.Errorf("%d atomic operations have left the value %d", want, sum)
		}
	case w.c.Test == result.Write || w.c.Test == result.WriteImm:
		return w.verifyWritten(mem)
	}
	return nil
}

// verifyWritten compares every slot with the last message that the peer wrote to it.
func (w *worker) verifyWritten(mem []byte) error {
	for qp, n := range w.sh.counts {
		for s := n - min(n, w.lay.rx.slots); s < n; s++ {
			at := w.lay.rx.at(qp, s)
			if err := check(mem[at:at+w.lay.size], qp, s); err != nil {
				return err
			}
			w.verified++
		}
	}
	return nil
}
