package memfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// How long an unanswered message waits before it is sent again, and one that met no receive.
const (
	ackTimeout = 4 * time.Millisecond
	rnrTimer   = 640 * time.Microsecond
)

// Outcomes of one attempt at a work request that are not its status yet.
const (
	noAnswer fabric.Status = 1<<16 + iota
	notReady
)

// engine is the state of the goroutine that executes a queue pair's send queue.
type engine struct {
	src      pieces
	one      [1][]byte
	timer    *time.Timer
	readDone []time.Time // when the latest reads were done: a ring of as many as may be outstanding
	reads    int
}

func (e *engine) init(q *qp) {
	e.src.bufs = make([][]byte, 0, q.maxSendSGE)
	e.src.held = make([]*span, 0, q.maxSendSGE)
	e.readDone = make([]time.Time, q.readOut)
}

// run is the engine of a queue pair: it executes or flushes what is posted, in order, until Close.
func (q *qp) run() {
	defer close(q.done)
	for lastWQE := false; ; {
		q.mu.Lock()
		state := qpState(q.state.Load())
		var s *sendSlot
		if q.sq.n > 0 {
			s = &q.sq.slots[q.sq.head]
		}
		q.mu.Unlock()
		switch {
		case state == qpClosed:
			return
		case state == qpConnected && s != nil:
			if st, done := q.execute(s); done {
				q.complete(s, st)
			}
			continue
		case state == qpError:
			q.flush()
			if q.srq != nil && !lastWQE {
				lastWQE = true
				q.dev.report(fabric.AsyncEvent{Kind: fabric.AsyncQPLastWQE, QP: q})
			}
		}
		<-q.bell
	}
}

// complete ends the oldest request. An error is always told, and ends the connection.
func (q *qp) complete(s *sendSlot, st fabric.Status) {
	wc := fabric.WC{ID: s.wr.ID, Status: st, QPNum: q.num}
	tell := st != fabric.StatusSuccess || s.wr.Flags&fabric.Signaled != 0
	if st == fabric.StatusSuccess {
		wc.Opcode, wc.ByteLen = sendOpcode(s.wr.Opcode), uint32(total(s.sges))
	} else {
		if s.bind != nil {
			s.bind.cancel()
		}
		if st != fabric.StatusFlush {
			q.fail()
		}
	}
	q.mu.Lock()
	q.sq.pop()
	q.mu.Unlock()
	if tell {
		q.sendCQ.push(&wc, false)
	}
}

func sendOpcode(op fabric.Opcode) fabric.WCOpcode {
	switch op {
	case fabric.OpWrite, fabric.OpWriteImm:
		return fabric.OpWCWrite
	case fabric.OpRead:
		return fabric.OpWCRead
	case fabric.OpCmpSwap:
		return fabric.OpWCCmpSwap
	case fabric.OpFetchAdd:
		return fabric.OpWCFetchAdd
	case fabric.OpLocalInv:
		return fabric.OpWCLocalInv
	case opBind:
		return fabric.OpWCBind
	default:
		return fabric.OpWCSend
	}
}

// flush completes everything posted, in order, as flushed. Receives stay on an SRQ, but for those taken from it.
func (q *qp) flush() {
	q.in.Lock() // a message that is coming in completes first
	for q.popAhead(&q.rx) {
		q.hold(-1)
		q.flushReceive()
	}
	for q.srq == nil {
		if ok, _ := q.rq.pop(&q.rx, nil); !ok {
			break
		}
		q.flushReceive()
	}
	q.in.Unlock()
	for {
		q.mu.Lock()
		if q.sq.n == 0 {
			q.mu.Unlock()
			return
		}
		s := &q.sq.slots[q.sq.head]
		q.mu.Unlock()
		q.complete(s, fabric.StatusFlush)
	}
}

func (q *qp) flushReceive() {
	q.recvCQ.push(&fabric.WC{ID: q.rx.id, Status: fabric.StatusFlush, Opcode: fabric.OpWCRecv, QPNum: q.num}, false)
}

// pause parks the engine until the bell rings or the time at comes; it tells which. The zero time never comes.
func (q *qp) pause(at time.Time) (expired bool) {
	if at.IsZero() {
		<-q.bell
		return false
	}
	if t := q.engine.timer; t == nil {
		q.engine.timer = time.NewTimer(time.Until(at))
	} else {
		t.Reset(time.Until(at))
	}
	defer q.engine.timer.Stop()
	select {
	case <-q.bell:
		return false
	case <-q.engine.timer.C:
		return true
	}
}

// patience counts the retries that one cause of waiting is granted.
type patience struct {
	left    int
	forever bool
	every   time.Duration
	at      time.Time // of the next retry; zero: not waiting yet
}

// spend takes a retry where the last one's time has come, and tells whether there was one.
func (p *patience) spend(expired bool) bool {
	if p.forever || !p.at.IsZero() && !expired {
		return true
	}
	if p.left == 0 {
		return false
	}
	p.left--
	p.at = time.Now().Add(p.every)
	return true
}

// execute brings one request to its end. It is not done when the queue pair has left the connected state.
func (q *qp) execute(s *sendSlot) (st fabric.Status, done bool) {
	d := q.dev
	if !q.delay(s) {
		return 0, false
	}
	if st, hit := d.faults.op.hit(); hit {
		return st, true
	}
	lost := patience{left: int(d.opts.Retry) + 1, every: ackTimeout}
	rnr := patience{left: int(d.opts.RNRRetry), forever: d.opts.RNRRetry == 7, every: rnrTimer}
	for expired := false; q.is(qpConnected); {
		st = q.attempt(s)
		var wait *patience
		switch st {
		case noAnswer:
			st, wait = fabric.StatusRetryExceeded, &lost
		case notReady:
			st, wait = fabric.StatusRNRExceeded, &rnr
		default:
			return st, true
		}
		if !wait.spend(expired) {
			q.peer.rq.forget(q)
			return st, true
		}
		expired = q.pause(wait.at)
	}
	return 0, false
}

// delay holds a request back as the fault of that name asks, with no more reads under way than may be.
func (q *qp) delay(s *sendSlot) bool {
	if s.due.IsZero() {
		return true
	}
	e := &q.engine
	if sinks(s.wr.Opcode) && len(e.readDone) > 0 {
		oldest := &e.readDone[e.reads%len(e.readDone)]
		e.reads++
		if start := oldest.Add(q.dev.faults.Delayed()); s.due.Before(start) {
			s.due = start
		}
		*oldest = s.due
	}
	for q.is(qpConnected) {
		if !time.Now().Before(s.due) || q.pause(s.due) {
			return true
		}
	}
	return false
}

// attempt tries a request once.
func (q *qp) attempt(s *sendSlot) fabric.Status {
	switch s.wr.Opcode {
	case opBind:
		return s.bind.apply()
	case fabric.OpLocalInv:
		if !q.dev.f.keys.invalidate(s.wr.RKey, q.pd) {
			return fabric.StatusLocalQPOp
		}
		return fabric.StatusSuccess
	}
	n := total(s.sges)
	if s.wr.Flags&fabric.Inline != 0 {
		q.engine.one[0] = s.inline
		return q.peer.respond(q, s, q.engine.one[:], n)
	}
	var need fabric.Access
	if sinks(s.wr.Opcode) {
		need = fabric.LocalWrite
		if q.readOut == 0 {
			return fabric.StatusLocalQPOp
		}
	}
	src := &q.engine.src
	defer src.release()
	if !src.gather(&q.dev.f.keys, q.pd, s.sges, n, need) {
		return fabric.StatusLocalProt
	}
	return q.peer.respond(q, s, src.bufs, n)
}
