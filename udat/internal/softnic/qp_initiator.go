package softnic

import "github.com/godat/godat/udat/internal/fabric"

// Outbound is the memory of one request at its initiator.
type Outbound struct {
	src pieces
	one [1][]byte // the payload, if it was copied earlier
}

// Local executes the request s if it is a bind or a local invalidation, which need no message, and
// returns its status. For any other request it does nothing, and the result local is false.
func (q *QP) Local(s *Slot) (st fabric.Status, local bool) {
	switch s.WR.Opcode {
	case opBind:
		return s.bind.apply(), true
	case fabric.OpLocalInv:
		if !q.dev.HW.keys.invalidate(s.WR.RKey, q.pd) {
			return fabric.StatusLocalQPOp, true
		}
		return fabric.StatusSuccess, true
	}
	return 0, false
}

// Payload returns n bytes of the memory of request s, after the first skip bytes: the data that the
// request sends, or the place for the data of its answer. o pins the memory; the caller must call
// o.Release. If the memory cannot be accessed, Payload returns the status with which the request
// fails.
func (q *QP) Payload(o *Outbound, s *Slot, skip, n uint64) ([][]byte, fabric.Status) {
	switch {
	case s.WR.Flags&fabric.Inline != 0:
		o.one[0] = s.Inline[skip : skip+n]
		return o.one[:], fabric.StatusSuccess
	case s.Ahead != nil:
		o.one[0] = s.Ahead[skip : skip+n]
		return o.one[:], fabric.StatusSuccess
	}
	var need fabric.Access
	if Sinks(s.WR.Opcode) {
		need = fabric.LocalWrite
		if q.readOut == 0 {
			return nil, fabric.StatusLocalQPOp
		}
	}
	if !o.src.gather(&q.dev.HW.keys, q.pd, s.SGEs, skip, n, need) {
		return nil, fabric.StatusLocalProt
	}
	return o.src.bufs, fabric.StatusSuccess
}

// Release unpins the memory that Payload has pinned.
func (o *Outbound) Release() { o.src.release() }

// GatherAhead copies the payload of the requests that were posted after a read in flight, up to the
// first bind or fenced request. Real devices do so too. If the read writes to the memory of such a
// payload, the request still sends the old data. If a payload cannot be copied now, its request
// fails when it is executed.
func (q *QP) GatherAhead() {
	var src pieces
	for n := q.sq.Head() + 1; n < q.sq.Tail(); n++ {
		s := q.sq.Slot(n)
		if s.bind != nil || s.WR.Flags&fabric.Fence != 0 {
			return
		}
		if s.Ahead != nil || s.Length == 0 || Sinks(s.WR.Opcode) || s.WR.Flags&fabric.Inline != 0 {
			continue
		}
		if src.gather(&q.dev.HW.keys, q.pd, s.SGEs, 0, s.Length, 0) {
			s.Ahead = make([]byte, s.Length)
			if !Transfer([][]byte{s.Ahead}, src.bufs) {
				s.Ahead = nil
			}
		}
		src.release()
	}
}

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
