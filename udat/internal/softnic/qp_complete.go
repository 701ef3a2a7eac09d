package softnic

import "github.com/godat/godat/udat/internal/fabric"

// Complete completes the oldest request, s, with the status st. An error is reported even if the
// request is not signaled, and moves the queue pair to the error state.
func (q *QP) Complete(s *Slot, st fabric.Status) {
	wc := fabric.WC{ID: s.WR.ID, Status: st, QPNum: q.num}
	tell := st != fabric.StatusSuccess || s.WR.Flags&fabric.Signaled != 0
	if st == fabric.StatusSuccess {
		wc.Opcode, wc.ByteLen = sendOpcode(s.WR.Opcode), uint32(s.Length)
	} else {
		if s.bind != nil {
			s.bind.cancel()
		}
		if st != fabric.StatusFlush {
			q.Fail()
		}
	}
	q.sq.pop()
	if tell {
		q.sendCQ.push(&wc, false)
	}
}

// Flush completes everything posted to a queue pair in error, in order, with StatusFlush. In other
// states it does nothing. Receives in an SRQ stay there, except those that this queue pair has
// taken. If the parameter in has the receive of an incomplete message, that receive is flushed
// first. After that, Flush uses in as scratch space. Only the goroutine that works on the send
// queue may call Flush.
func (q *QP) Flush(in *Inbound) {
	if !q.is(qpError) {
		return
	}
	rx := &in.rx
	q.In.Lock() // a message that is being received completes first
	if in.taken {
		in.taken = false
		q.hold(-1)
		q.flushReceive(rx)
	}
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
	q.In.Unlock()
	for q.sq.Len() > 0 {
		q.Complete(q.sq.First(), fabric.StatusFlush)
	}
	if q.srq != nil && !q.lastWQE {
		q.lastWQE = true
		q.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncQPLastWQE, QP: q})
	}
}

func (q *QP) flushReceive(rx *receive) {
	q.recvCQ.push(&fabric.WC{ID: rx.id, Status: fabric.StatusFlush, Opcode: fabric.OpWCRecv, QPNum: q.num}, false)
}
