package softnic

import "github.com/godat/godat/udat/internal/fabric"

// Complete completes the oldest request. An error is always reported, and ends the connection.
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

// Flush completes everything posted to a queue pair in error as flushed, in order. Receives on an
// SRQ stay there, except those that this queue pair has taken. The caller must be the one that
// works on the send queue. If in holds a receive whose message has not come whole, that one is
// flushed first; else in is scratch.
func (q *QP) Flush(in *Inbound) {
	if !q.is(qpError) {
		return
	}
	rx := &in.rx
	q.In.Lock() // a message that is coming in completes first
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
