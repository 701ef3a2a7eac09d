package memfabric

import (
	"sync"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Retry intervals of an unanswered message, and of one that met no receive. A peer that has left
// does not answer. With 7 retries, the default, its disconnect has half a second to arrive before a
// request fails.
const (
	ackTimeout = 64 * time.Millisecond
	rnrTimer   = 640 * time.Microsecond
)

// Outcomes of one attempt at a work request that are not its status yet.
const (
	noAnswer fabric.Status = 1<<16 + iota
	notReady
)

// engine executes the send queues of a device's queue pairs in one goroutine. It does not wait for
// one queue pair: a timer, or the event that ends the wait, queues it again.
type engine struct {
	mu     sync.Mutex
	ready  []*qp // to be looked at, in this order
	parked bool
	ended  bool

	bell chan struct{}
	done chan struct{}

	// Scratch of the message under way, whose responder this goroutine is too.
	src, dst pieces
	inline   [1][]byte
	rx       receive
	old      [atomicSize]byte // what an atomic found
}

func (e *engine) start() {
	e.bell = make(chan struct{}, 1)
	e.done = make(chan struct{})
	go e.run()
}

// stop ends the goroutine, after the queue pairs.
func (e *engine) stop() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	ring(e.bell)
	<-e.done
}

func (e *engine) add(q *qp) {
	e.mu.Lock()
	e.ready = append(e.ready, q)
	wake := e.parked
	e.parked = false
	e.mu.Unlock()
	if wake {
		ring(e.bell)
	}
}

// take exchanges what is queued for an empty slice; where nothing is, the goroutine parks next.
func (e *engine) take(empty []*qp) (ready []*qp, ended bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ready, e.ready = e.ready, empty
	e.parked = len(ready) == 0
	return ready, e.ended
}

func (e *engine) run() {
	defer close(e.done)
	var ready []*qp
	for ended := false; ; {
		clear(ready)
		switch ready, ended = e.take(ready[:0]); {
		case ended:
			return
		case len(ready) == 0:
			<-e.bell
		}
		for _, q := range ready {
			q.queued.Store(false) // before the look: who posts from now on queues it again
			q.step()
		}
	}
}

// wake queues the queue pair for the engine.
func (q *qp) wake() {
	if !q.queued.Load() && q.queued.CompareAndSwap(false, true) {
		q.dev.engine.add(q)
	}
}

// wakeAt is wake at the time given.
func (q *qp) wakeAt(at time.Time) {
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.wake)
	} else {
		q.timer.Reset(time.Until(at))
	}
}

// step executes or flushes, in order, the requests posted by now; later ones queue the queue pair
// again.
func (q *qp) step() {
	for range q.sq.len() {
		if !q.is(qpConnected) {
			break
		}
		s := q.sq.first()
		st, done := q.execute(s)
		if !done {
			return
		}
		q.complete(s, st)
	}
	switch qpState(q.state.Load()) {
	case qpError:
		q.flush()
		if q.srq != nil && !q.lastWQE {
			q.lastWQE = true
			q.dev.report(fabric.AsyncEvent{Kind: fabric.AsyncQPLastWQE, QP: q})
		}
	case qpClosed:
		if q.timer != nil {
			q.timer.Stop()
		}
		if q.done != nil {
			close(q.done)
			q.done = nil
		}
	}
}

// complete completes the oldest request. An error is always reported, and ends the connection.
func (q *qp) complete(s *sendSlot, st fabric.Status) {
	wc := fabric.WC{ID: s.wr.ID, Status: st, QPNum: q.num}
	tell := st != fabric.StatusSuccess || s.wr.Flags&fabric.Signaled != 0
	if st == fabric.StatusSuccess {
		wc.Opcode, wc.ByteLen = sendOpcode(s.wr.Opcode), uint32(s.length)
	} else {
		if s.bind != nil {
			s.bind.cancel()
		}
		if st != fabric.StatusFlush {
			q.fail()
		}
	}
	if q.try.placed || q.try.sent {
		q.try = try{}
	}
	q.sq.pop()
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

// flush completes everything posted, in order, as flushed. Receives stay on an SRQ, but for those
// taken from it.
func (q *qp) flush() {
	rx := &q.dev.engine.rx
	q.in.Lock() // a message that is coming in completes first
	for q.popAhead(rx) {
		q.hold(-1)
		q.flushReceive(rx)
	}
	for q.srq == nil {
		if ok, _ := q.rq.pop(rx, nil); !ok {
			break
		}
		q.flushReceive(rx)
	}
	q.in.Unlock()
	for q.sq.len() > 0 {
		q.complete(q.sq.first(), fabric.StatusFlush)
	}
}

func (q *qp) flushReceive(rx *receive) {
	q.recvCQ.push(&fabric.WC{ID: rx.id, Status: fabric.StatusFlush, Opcode: fabric.OpWCRecv, QPNum: q.num}, false)
}

// try is the progress of the oldest request if it had to wait.
type try struct {
	placed    bool // among the reads under way
	sent      bool // what it waits for is the peer
	lost, rnr patience
}

// patience counts the retries for one cause of waiting.
type patience struct {
	taken int
	next  time.Time
}

// spend uses a retry if one is due, and reports whether any is left.
func (p *patience) spend(limit int, every time.Duration) bool {
	now := time.Now()
	if now.Before(p.next) {
		return true
	}
	p.taken++
	p.next = now.Add(every)
	return p.taken <= limit
}

// execute completes the oldest request, or advances it as far as possible now.
func (q *qp) execute(s *sendSlot) (st fabric.Status, done bool) {
	if !q.try.sent {
		if !s.due.IsZero() && q.delay(s) {
			if sinks(s.wr.Opcode) {
				q.gatherAhead()
			}
			return 0, false
		}
		if st, hit := q.dev.faults.op.hit(); hit {
			return st, true
		}
	}
	if st = q.attempt(s); st == noAnswer || st == notReady {
		return q.retry(st)
	}
	return st, true
}

// retry schedules the oldest request again, or returns its final status.
func (q *qp) retry(why fabric.Status) (st fabric.Status, done bool) {
	t, o := &q.try, &q.dev.opts
	t.sent = true
	st, p, limit, every := fabric.StatusRetryExceeded, &t.lost, int(o.Retry)+1, ackTimeout
	if why == notReady {
		if o.RNRRetry == 7 { // as often as it takes: the receive that is posted wakes it
			return 0, false
		}
		st, p, limit, every = fabric.StatusRNRExceeded, &t.rnr, int(o.RNRRetry), rnrTimer
	}
	if p.spend(limit, every) {
		q.wakeAt(p.next)
		return 0, false
	}
	q.peer.rq.forget(q)
	return st, true
}

// delay reports whether Faults.Delay still holds a request back; it admits no more reads than the
// connection's depth.
func (q *qp) delay(s *sendSlot) bool {
	if sinks(s.wr.Opcode) && q.readOut > 0 && !q.try.placed {
		q.try.placed = true
		if q.readDone == nil {
			q.readDone = make([]time.Time, q.readOut)
		}
		oldest := &q.readDone[q.reads%len(q.readDone)]
		q.reads++
		if start := oldest.Add(q.dev.faults.Delayed()); s.due.Before(start) {
			s.due = start
		}
		*oldest = s.due
	}
	if !time.Now().Before(s.due) {
		return false
	}
	q.wakeAt(s.due)
	return true
}

// gatherAhead reads the payload of the requests behind a read that is under way, up to the first
// fence, as devices may: such a request does not see what the read brings. A payload that cannot be
// read now fails in its turn.
func (q *qp) gatherAhead() {
	var src pieces
	for i := range q.sq.len() - 1 {
		s := q.sq.at(1 + i)
		if s.bind != nil || s.wr.Flags&fabric.Fence != 0 {
			return
		}
		if s.ahead != nil || s.length == 0 || sinks(s.wr.Opcode) || s.wr.Flags&fabric.Inline != 0 {
			continue
		}
		if src.gather(&q.dev.f.keys, q.pd, s.sges, s.length, 0) {
			s.ahead = make([]byte, s.length)
			transfer([][]byte{s.ahead}, src.bufs)
		}
		src.release()
	}
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
	e := &q.dev.engine
	st := q.deliver(e, s)
	e.src.release()
	e.dst.release()
	return st
}

// deliver moves the payload of a message; the memory that it pins is the caller's to release.
func (q *qp) deliver(e *engine, s *sendSlot) fabric.Status {
	switch {
	case s.wr.Flags&fabric.Inline != 0:
		e.inline[0] = s.inline
		return q.peer.respond(e, q, s, e.inline[:])
	case s.ahead != nil:
		e.inline[0] = s.ahead
		return q.peer.respond(e, q, s, e.inline[:])
	}
	var need fabric.Access
	if sinks(s.wr.Opcode) {
		need = fabric.LocalWrite
		if q.readOut == 0 {
			return fabric.StatusLocalQPOp
		}
	}
	if !e.src.gather(&q.dev.f.keys, q.pd, s.sges, s.length, need) {
		return fabric.StatusLocalProt
	}
	return q.peer.respond(e, q, s, e.src.bufs)
}
