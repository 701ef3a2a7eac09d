package tcpfabric

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

func newLink(q *softnic.QP) softnic.Link {
	l := &link{qp: q}
	l.step = l.work
	return l
}

// work is the function that the link's turn runs in one goroutine at a time. It completes requests
// that are done, and sends what can be sent.
func (l *link) work() {
	q := l.qp
	if q.Connected() && l.live.Load() {
		l.serve()
	}
	if !q.Connected() {
		q.Flush(&l.rx.in)
		if l.live.Load() {
			q.In.Lock()
			l.rx.discard(l)
			q.In.Unlock()
			if l.stalled.Swap(false) || l.sent.recheck.Swap(false) {
				l.resume()
			}
			l.over()
			if l.leave() {
				l.shut()
			}
		}
		if q.Gone() {
			q.Leave()
		}
	}
	if l.killed.Load() && l.live.Load() {
		l.shut()
	}
}

// The method work calls serve if the queue pair is connected.
func (l *link) serve() {
	l.reserve()
	l.settle()
	if l.refusing.Load() { // settle has completed what was acknowledged before
		l.qp.In.Lock()
		l.rx.fail(l)
		l.qp.In.Unlock()
		return
	}
	for n := 1; l.qp.Connected() && l.wants(); n++ {
		more := l.push()
		if l.sent.recheck.Load() && l.sent.recheck.Swap(false) {
			l.resume()
		}
		l.settle()
		if !more || n%batches == 0 && l.sock.later() {
			break
		}
	}
	answered := l.sent.answers.Load() == l.heard.reads.Load()
	if l.stalled.Load() && (answered || l.tx.cut) { // after a cut no answer can be sent
		l.stalled.Store(false)
		l.resume()
	}
	l.tx.tidy(l)
	l.over()
}

// resume makes rx, which has stopped before it had read all that has come, go on.
func (l *link) resume() {
	for _, more := l.receive(false); more && !l.sock.later(); {
		_, more = l.receive(false)
	}
	l.owe(l.polled[ofReceives])
}

// settle completes requests that are done, in order. It stops at the first request that is not
// done.
func (l *link) settle() {
	q := l.qp
	sq := q.Sends()
	for l.live.Load() && q.Connected() && sq.Len() > 0 {
		done, st := l.done(sq.Head())
		if !done {
			switch st = fabric.Status(l.verdict.Load()); {
			case st != 0:
			case l.lost.Load():
				st = fabric.StatusRetryExceeded
			default:
				return
			}
		}
		l.complete(st)
	}
}

// complete completes the oldest request. If it fails, rx may be using its memory for an answer at
// this moment: then complete waits for rx.
func (l *link) complete(st fabric.Status) {
	if st != fabric.StatusSuccess {
		l.qp.In.Lock()
		defer l.qp.In.Unlock()
	}
	l.qp.Complete(l.qp.Sends().First(), st)
}

// push writes the batch. If the batch is empty, push makes a new one first. It reports whether the
// socket may have room for more.
func (l *link) push() bool {
	t := &l.tx
	return (!t.empty() || l.fill()) && !t.cut && l.flushBatch()
}

// A call of wants reports whether there may be something to send.
func (l *link) wants() bool {
	t := &l.tx
	return !t.empty() || t.next != l.qp.Sends().Tail() || t.begun || l.heard.reads.Load() != t.answered ||
		l.heard.asks.Load() != t.granted || l.ackNow.Load() || l.urgent()
}

// fill makes the next batch. It returns false if there is nothing to send.
func (l *link) fill() bool {
	t := &l.tx
	t.borrow(l)
	owes := l.controls()
	// Answers and requests alternate, one message at a time.
	for more := true; more && l.roomy(); t.answers.turn = !t.answers.turn {
		more = t.answers.turn && l.answer() || l.requestNext() || l.answer()
	}
	if t.next != l.qp.Sends().Tail() && l.roomy() {
		l.starve()
	}
	if owes && l.due() { // no Send has carried the acknowledgement
		l.tell(iwarp.ControlAck)
	}
	return len(t.parts) > 0
}

// A call of over checks whether the peer has ended its stream. The first call that finds this
// completes the requests that are done, and tells the connection that the peer has left. All other
// calls do nothing.
func (l *link) over() {
	if e := l.end.Load(); e != nil && !l.eof {
		l.eof = true
		l.settle()
		err := l.cause(e.err)
		l.conn.PeerLeft(kindOf(err, l.own, l.qp.Sends().Len()), err)
		l.grace = time.AfterFunc(graceLimit, func() {
			l.lost.Store(true)
			l.run()
		})
	}
}

// cause returns why the stream has ended, of which a read has got the error read; nil: it has found
// the end. EPIPE of a write says only that there was another error or an end before.
func (l *link) cause(read error) error {
	err := l.sock.broken()
	if err == nil || read != nil && !errors.Is(read, errMidFrame) || isOf(err, syscall.EPIPE) ||
		errors.Is(err, os.ErrDeadlineExceeded) {
		return read
	}
	return err
}

// shut closes the socket. Only the goroutine that runs link.work may call it.
func (l *link) shut() {
	l.qp.In.Lock()
	l.live.Store(false)
	l.sock.shut()
	l.rx.discard(l)
	l.qp.In.Unlock()
	l.tx.stage = nil
	l.tx.loan.drop(l)
	l.qp.Forget(l)
	l.uses((*progress).part)
	for _, t := range []*time.Timer{l.linger, l.rnr, l.first, l.grace} {
		if t != nil {
			t.Stop()
		}
	}
	l.conn.PeerLeft(fabric.EventDisconnected, softnic.ErrSilence)
	l.dev.unlist(l)
}

// uses calls f for each completion queue of the queue pair.
func (l *link) uses(f func(*progress, *link)) {
	f(l.polled[ofReceives], l)
	if l.polled[ofSends] != l.polled[ofReceives] {
		f(l.polled[ofSends], l)
	}
}
