package tcpfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// ask is a read or an atomic in flight.
type ask struct {
	slot   uint64
	key    uint32 // identifies this request in the answer
	length uint64
	atomic bool
}

// requestsNext reports whether there is a next request that may be sent now. It does not check
// whether the request must wait for earlier reads: mayBegin checks that.
func (l *link) requestsNext() bool {
	t := &l.tx
	return l.greeted.Load() && !l.held.Load() && !t.stuck && !t.open && t.next != l.qp.Sends().Tail()
}

// sendsNext reports whether the next request is a Send that can be sent now, so that it can carry
// an acknowledgement.
func (l *link) sendsNext() bool {
	if !l.requestsNext() {
		return false
	}
	s := l.qp.Sends().Slot(l.tx.next)
	return s.WR.Opcode == fabric.OpSend && (l.tx.begun || s.Due.IsZero() && l.mayBegin(s))
}

// A call of requests puts the next request into the batch, or as much of it as there is room for,
// and reports whether another request may follow.
func (l *link) requests() bool {
	t := &l.tx
	if !l.requestsNext() {
		return false
	}
	s, m := l.qp.Sends().Slot(t.next), t.mark(t.next)
	if !t.begun {
		if m.seq == uint32(t.next+1) && m.by == byStatus { // this request was done before the rewind
			t.next++
			t.stuck = m.status != fabric.StatusSuccess
			return !t.stuck
		}
		if !l.mayBegin(s) || !s.Due.IsZero() && l.delay(s.Due) {
			return false
		}
		m.seq, m.before = uint32(t.next+1), t.numbers
		if st, local := l.local(s); local {
			m.fail(st)
			t.next++
			t.stuck = st != fabric.StatusSuccess
			return !t.stuck
		}
		l.begin(s, m)
	}
	switch {
	case softnic.Sinks(s.WR.Opcode):
		l.askFor(s)
	case !l.payload(s, m):
		return false
	}
	if m.by == byWriting {
		m.end = t.queued
	}
	t.begun = false
	t.next++
	return true
}

// mayBegin returns false if a request must wait for earlier reads or atomics.
func (l *link) mayBegin(s *softnic.Slot) bool {
	under := l.tx.reads - l.answered.Load()
	if s.WR.Flags&fabric.Fence != 0 && under > 0 {
		return false
	}
	_, out := l.qp.ReadDepths()
	return !softnic.Sinks(s.WR.Opcode) || out == 0 || under < uint64(out)
}

// A call of delay reports whether a request that Faults.Delay has delayed must still wait until the
// time due. If so, it makes a timer run the link at that time.
func (l *link) delay(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return false
	}
	if l.fault == nil {
		l.fault = time.AfterFunc(wait, l.run)
	} else {
		l.fault.Reset(wait)
	}
	return true
}

// A call of local handles a request that needs no message, or that must fail without one. It
// returns the status of such a request and true. For any other request it returns false.
func (l *link) local(s *softnic.Slot) (fabric.Status, bool) {
	if st, hit := l.qp.Device().Faults.FailsNow(); hit {
		return st, true
	}
	if st, local := l.qp.Local(s); local {
		return st, true
	}
	if s.Length <= copyLimit && !softnic.Sinks(s.WR.Opcode) {
		return 0, false // the keys are checked when the payload is copied
	}
	_, st := l.qp.Payload(&l.tx.mine, s, 0, s.Length)
	l.tx.mine.Release()
	return st, st != fabric.StatusSuccess
}

// begin numbers a request.
func (l *link) begin(s *softnic.Slot, m *mark) {
	t := &l.tx
	t.begun, t.sent, t.immediate = true, 0, false
	m.units = 1
	switch s.WR.Opcode {
	case fabric.OpWriteImm:
		t.sends++
		m.units = 2
	case fabric.OpSend, fabric.OpSendImm, fabric.OpSendInv:
		t.sends++
	case fabric.OpRead, fabric.OpCmpSwap, fabric.OpFetchAdd:
		t.asks++
		t.reads++
	}
	if p := &l.polled[ofSends].latest; l.own && p.Load() != l {
		p.Store(l)
	}
	t.count += uint64(m.units)
	l.issued.Store(t.count)
	switch {
	case softnic.Sinks(s.WR.Opcode):
		m.by, m.end = byAnswer, t.reads
	case l.own:
		m.by, m.end = byAck, t.count
	default:
		m.by = byWriting
	}
}

// askFor puts a read or an atomic into the batch.
func (l *link) askFor(s *softnic.Slot) {
	t, wr := &l.tx, &s.WR
	a := &l.asks[t.reads%uint64(len(l.asks))]
	*a = ask{slot: t.next, key: l.sinkKey + uint32(t.reads), length: s.Length, atomic: wr.Opcode != fabric.OpRead}
	l.asked.Store(t.reads)
	h := iwarp.Header{MSN: t.asks, Key: wr.RKey, Offset: wr.RemoteAddr}
	switch wr.Opcode {
	case fabric.OpRead:
		h.Op, h.SinkKey, h.Length = iwarp.OpReadRequest, a.key, uint32(s.Length)
	case fabric.OpFetchAdd:
		h.Op, h.ID, h.Atomic, h.Operand = iwarp.OpAtomicRequest, a.key, iwarp.FetchAdd, wr.CompareAdd
	default:
		h.Op, h.ID, h.Atomic, h.Operand, h.Compare =
			iwarp.OpAtomicRequest, a.key, iwarp.CmpSwap, wr.Swap, wr.CompareAdd
	}
	l.frame(&h, part{})
}

// A call of payload puts frames of a send or a write into the batch. It reports whether all frames
// of the request have been put into batches now.
func (l *link) payload(s *softnic.Slot, m *mark) bool {
	t, wr := &l.tx, &s.WR
	h := iwarp.Header{Op: opcode(wr), MSN: t.sends}
	switch wr.Opcode {
	case fabric.OpSendInv:
		h.Word = wr.RKey
	case fabric.OpSendImm:
		h.Word = wr.Imm
	}
	for done := t.immediate; !done; {
		n := l.fit(h.Op, s.Length-t.sent)
		if !l.roomy() || n == 0 && t.sent < s.Length {
			return false
		}
		done = t.sent+uint64(n) == s.Length
		h.Last, h.Payload = done, n
		if h.Op == iwarp.OpWrite {
			h.Key, h.Offset = wr.RKey, wr.RemoteAddr+t.sent
		} else {
			h.MO = uint32(t.sent)
		}
		executed, acks := l.executed.Load(), l.own && h.Op.Acknowledges()
		if acks {
			h.Word = uint32(executed)
		}
		if st := l.frame(&h, part{kind: ofRequest, off: t.sent, n: n, slot: t.next}); st != fabric.StatusSuccess {
			m.fail(st)
			t.stuck, t.begun, t.next = true, false, t.next+1 // answers go on
			return false
		}
		if acks {
			l.told.Store(executed)
		}
		t.sent += uint64(n)
	}
	if wr.Opcode == fabric.OpWriteImm {
		t.immediate = true // all frames of the write are in batches
		if !l.roomy() {
			return false
		}
		h = iwarp.Header{Op: iwarp.OpImmediate, MSN: t.sends, Value: uint64(wr.Imm)}
		if wr.Flags&fabric.Solicited != 0 {
			h.Op = iwarp.OpImmediateSE
		}
		l.frame(&h, part{})
	}
	return true
}

func opcode(wr *fabric.SendWR) iwarp.Opcode {
	solicited := wr.Flags&fabric.Solicited != 0
	switch wr.Opcode {
	case fabric.OpWrite, fabric.OpWriteImm:
		return iwarp.OpWrite
	case fabric.OpSendInv:
		if solicited {
			return iwarp.OpSendSEInv
		}
		return iwarp.OpSendInv
	case fabric.OpSendImm:
		if solicited {
			return iwarp.OpSendSEImm
		}
		return iwarp.OpSendImm
	}
	if solicited {
		return iwarp.OpSendSE
	}
	return iwarp.OpSend
}

// hold is called after ControlNotReady. It rewinds to the request that the peer has ignored. Once
// the peer has a receive for this request, hold makes the link send it and all later ones again.
func (l *link) hold() {
	t := &l.tx
	if !t.rewound {
		t.rewound = true
		l.rewind(l.acked.Load())
		if retries := l.qp.Device().Opts.RNRRetry; retries < 7 {
			l.rnr = time.AfterFunc(time.Duration(retries)*rnrTimer, l.giveUp)
		}
	}
	if !l.resumed.Load() {
		return
	}
	if l.rnr != nil {
		l.rnr.Stop()
	}
	t.rewound = false
	l.resumed.Store(false)
	l.held.Store(false)
	l.putControl(iwarp.ControlResume, l.acked.Load())
}

// giveUp fails the request that has waited too long for a receive at the peer.
func (l *link) giveUp() {
	if l.held.Load() && !l.resumed.Load() {
		l.verdict.CompareAndSwap(0, uint32(fabric.StatusRNRExceeded))
		l.run()
	}
}

// rewind makes request n+1, counted as the peer counts requests, the next one to send.
func (l *link) rewind(n uint64) {
	t, sq := &l.tx, l.qp.Sends()
	if t.begun {
		t.next++
		t.begun = false
	}
	t.stuck = false
	for i := sq.Head(); i < t.next; i++ {
		m := t.mark(i)
		if m.by == byStatus || m.before.count+uint64(m.units) <= n {
			continue
		}
		t.next, t.numbers = i, m.before
		if t.count < n { // the peer has executed the write, but not its immediate data
			s := sq.Slot(i)
			l.begin(s, m)
			t.sent, t.immediate = s.Length, true
		}
		break
	}
	l.asked.Store(t.reads)
	l.issued.Store(max(t.count, n))
}
