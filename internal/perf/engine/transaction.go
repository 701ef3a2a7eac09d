package engine

import (
	"errors"

	"github.com/godat/godat/internal/perf/result"
)

// Indices of worker.stepSeq.
const (
	stepSends = iota
	stepWrites
)

// transact runs this end's part of one transaction on a queue pair.
func (w *worker) transact(qp int) error {
	for i := range w.steps {
		s := &w.steps[i]
		var err error
		switch {
		case s.Server != w.initOps:
			err = w.doStep(qp, s)
		case s.Op == result.Send:
			err = w.awaitStep(qp, s)
		}
		if err != nil {
			return err
		}
	}
	w.initSeq[qp]++
	return nil
}

// doStep posts one of this end's steps and waits for its completion.
func (w *worker) doStep(qp int, s *result.Step) error {
	count := &w.stepSeq[stepSends][qp]
	if s.Op == result.Write {
		count = &w.stepSeq[stepWrites][qp]
	}
	seq := *count
	at := w.lay.local(s.Op).at(qp, seq)
	local := w.l.bytes()[at : at+s.Size]
	if s.Op != result.Read {
		*count++
	}
	switch {
	case !w.c.Verify:
	case s.Op == result.Read:
		clear(local)
	default:
		fill(local, qp, seq)
	}
	w.l.setOp(s.Op, s.Size)
	if err := w.l.request(qp, seq, 1, true); err != nil {
		return w.failed(err)
	}
	w.pending[qp]++
	if err := w.drain(qp); err != nil {
		return err
	}
	if w.c.Verify && s.Op == result.Read {
		w.verified++
		return check(local, qp, 0)
	}
	return nil
}

// awaitStep waits for the message that the peer sends in step s. Messages on other queue pairs stay
// in the inbox.
func (w *worker) awaitStep(qp int, s *result.Step) error {
	for {
		for i := range w.inbox {
			if d := w.inbox[i]; int(d.qp) == qp {
				w.inbox = append(w.inbox[:i], w.inbox[i+1:]...)
				w.expects = s.Size
				return w.gotMessage(&d)
			}
		}
		n, err := w.reap()
		if err != nil {
			return err
		}
		if n == 0 && !w.initOps && w.initiated() >= w.sh.expect.Load() {
			return errNoMore
		}
	}
}

// initiated returns the number of transactions that this end has run.
func (w *worker) initiated() (n int64) {
	for _, seq := range w.initSeq {
		n += int64(seq)
	}
	return n
}

// follow runs the server's part of all transactions.
func (w *worker) follow() error {
	waits := false
	for _, s := range w.steps {
		waits = waits || s.Op == result.Send && !s.Server
	}
	if !waits { // the client's writes and reads need no action of the server
		return w.watch()
	}
	defer w.spin.begin(w.c)()
	for n := int64(0); n < w.sh.expect.Load(); n++ {
		w.spin.breathe(w.now())
		if n == w.c.Warmup {
			w.cost.restart()
		}
		if err := w.transact(int(n % int64(w.c.QPs))); err != nil {
			if errors.Is(err, errNoMore) {
				return nil
			}
			return err
		}
	}
	return nil
}

// verifySteps compares the memory with the peer's last writes. The client can check the server's
// writes only if the server sends a message after its last write.
func (w *worker) verifySteps(mem []byte) error {
	var last result.Step
	writes, sent := uint64(0), false
	for _, s := range w.steps {
		switch {
		case s.Server != w.initOps: // a step of this end
		case s.Op == result.Write:
			last, sent = s, false
			writes++
		case s.Op == result.Send:
			sent = true
		}
	}
	if writes == 0 || w.initOps && !sent {
		return nil
	}
	for qp := range w.c.QPs {
		transactions := w.initSeq[qp]
		if !w.initOps {
			transactions = w.sh.counts[qp]
		}
		if transactions == 0 {
			continue
		}
		at := w.lay.written.at(qp, 0)
		if err := check(mem[at:at+last.Size], qp, transactions*writes-1); err != nil {
			return err
		}
		w.verified++
	}
	return nil
}
