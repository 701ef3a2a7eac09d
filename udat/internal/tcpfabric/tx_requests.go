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
	return t.next != l.qp.Sends().Tail() && l.heard.greeted.Load() && !t.stuck && !t.open &&
		(t.begun || !l.starves(l.qp.Sends().Slot(t.next)))
}

// sendsNext reports whether the next request is a Send that can be sent now, so that it can carry
// an acknowledgement.
func (l *link) sendsNext() bool {
	if !l.requestsNext() {
		return false
	}
	s := l.qp.Sends().Slot(l.tx.next)
	return s.WR.Opcode == fabric.OpSend && (l.tx.begun || l.mayBegin(s) && !l.qp.Holds(l.tx.next))
}

// A call of requestNext puts the next request into the batch, or as much of it as there is room
// for, and reports whether another request may follow.
func (l *link) requestNext() bool {
	t := &l.tx
	if !l.requestsNext() {
		return false
	}
	s, m := l.qp.Sends().Slot(t.next), t.mark(t.next)
	if !t.begun {
		if !l.mayBegin(s) || l.qp.Holds(t.next) {
			return false
		}
		*m = mark{request: t.next + 1}
		if st, local := l.local(s); local {
			l.decide(st)
			return !t.stuck
		}
		l.begin(s, m)
	}
	switch {
	case softnic.Sinks(s.WR.Opcode):
		l.ask(s)
	case !l.payload(s):
		return false
	}
	m.state, m.end = batched, t.queued
	t.begun = false
	t.next++
	return true
}

// decide ends the next request without the peer. If the request has failed, those after it stay.
func (l *link) decide(st fabric.Status) {
	t := &l.tx
	t.mark(t.next).decide(st)
	t.next++
	t.begun, t.stuck = false, st != fabric.StatusSuccess
}

// mayBegin returns false if a request must wait for earlier reads or atomics.
func (l *link) mayBegin(s *softnic.Slot) bool {
	under := l.tx.reads - l.heard.answered.Load()
	if s.WR.Flags&fabric.Fence != 0 && under > 0 {
		return false
	}
	_, out := l.qp.ReadDepths()
	return !softnic.Sinks(s.WR.Opcode) || out == 0 || under < uint64(out)
}

// A call of local handles a request that needs no message, or that must fail without one. It
// returns the status of such a request and true. For any other request it returns false.
func (l *link) local(s *softnic.Slot) (fabric.Status, bool) {
	if st := l.qp.Device().Started(); st != fabric.StatusSuccess {
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
	t.requests++
	switch op := s.WR.Opcode; {
	case takesReceive(op):
		t.messages++
		if op == fabric.OpWriteImm {
			t.requests++
		}
		l.sent.messages.Store(t.messages)
	case softnic.Sinks(op):
		t.reads++
	}
	m.numbers = t.numbers
	if l.rnr != nil {
		l.rnr.Stop()
		l.rnr = nil
	}
	switch {
	case softnic.Sinks(s.WR.Opcode):
		m.by = byAnswer
	case l.own:
		m.by = byAck
	}
}

// A call of ask puts a read or an atomic into the batch.
func (l *link) ask(s *softnic.Slot) {
	t, wr := &l.tx, &s.WR
	a := &l.asked[t.reads%uint64(len(l.asked))]
	*a = ask{slot: t.next, key: l.sinkKey + uint32(t.reads), length: s.Length, atomic: wr.Opcode != fabric.OpRead}
	h := iwarp.Header{MSN: uint32(t.reads), Key: wr.RKey, Offset: wr.RemoteAddr}
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
func (l *link) payload(s *softnic.Slot) bool {
	t, wr := &l.tx, &s.WR
	h := iwarp.Header{Op: opcodes[wr.Opcode][wr.Flags&fabric.Solicited/fabric.Solicited], MSN: uint32(t.messages)}
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
		executed, limit, tells := l.heard.executed.Load(), uint64(0), l.own && h.Op.Acknowledges()
		if tells {
			limit = l.limit()
			h.Word = iwarp.Word(uint16(executed), uint16(limit))
		}
		if st := l.frame(&h, part{kind: ofRequest, off: t.sent, n: n, slot: t.next}); st != fabric.StatusSuccess {
			l.decide(st) // answers go on
			return false
		}
		if tells {
			l.sent.executed.Store(executed)
			l.sent.limit.Store(limit)
		}
		t.sent += uint64(n)
	}
	if wr.Opcode == fabric.OpWriteImm {
		t.immediate = true // all frames of the write are in batches
		if !l.roomy() {
			return false
		}
		h = iwarp.Header{Op: iwarp.OpImmediate, MSN: uint32(t.messages), Value: uint64(wr.Imm)}
		if wr.Flags&fabric.Solicited != 0 {
			h.Op = iwarp.OpImmediateSE
		}
		l.frame(&h, part{})
	}
	return true
}

// opcodes has the opcode of each send and write, without and with a solicited event.
var opcodes = [...][2]iwarp.Opcode{
	fabric.OpWrite:    {iwarp.OpWrite, iwarp.OpWrite},
	fabric.OpWriteImm: {iwarp.OpWrite, iwarp.OpWrite},
	fabric.OpSend:     {iwarp.OpSend, iwarp.OpSendSE},
	fabric.OpSendImm:  {iwarp.OpSendImm, iwarp.OpSendSEImm},
	fabric.OpSendInv:  {iwarp.OpSendInv, iwarp.OpSendSEInv},
}

// answers holds the answers that the peer's reads and atomics wait for. An answer keeps its place
// in the ring until it is written.
type answers struct {
	pending  []answer // a ring as long as the read depth
	answered uint64   // answers put into batches
	open     bool     // the next answer is partly in batches
	turn     bool     // the next message is an answer, not a request
}

// answer is the answer to a read or an atomic.
type answer struct {
	atomic  bool
	sink    uint32 // the key or the ID in the peer's request
	at      uint64 // the offset at the peer
	key     uint32 // the memory that is read
	addr, n uint64
	sent    uint64
	value   uint64 // the old value, for an atomic
	end     uint64 // how many bytes have been put into batches when the answer has been put as a whole
}

// A call of answer puts the oldest answer into the batch, or as much of it as there is room for,
// and reports whether another message may follow.
func (l *link) answer() bool {
	t := &l.tx
	if t.begun || t.answered == l.heard.reads.Load() {
		return false
	}
	a := &t.pending[t.answered%uint64(len(t.pending))]
	if a.atomic {
		t.back++
		l.frame(&iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: t.back, ID: a.sink, Value: a.value}, part{})
		a.end = t.queued
		t.answered++
		return true
	}
	t.open = true
	for done := false; !done; {
		n := l.fit(iwarp.OpReadResponse, a.n-a.sent)
		if !l.roomy() || n == 0 && a.sent < a.n {
			return false
		}
		done = a.sent+uint64(n) == a.n
		h := iwarp.Header{Op: iwarp.OpReadResponse, Last: done, Payload: n, Key: a.sink, Offset: a.at + a.sent}
		p := part{kind: ofPeer, off: a.addr + a.sent, n: n, key: a.key}
		if st := l.frame(&h, p); st != fabric.StatusSuccess {
			l.qp.In.Lock()
			l.rx.refuse(l, iwarp.FaultKey) // the memory could be accessed when the request came
			l.rx.fail(l)
			l.qp.In.Unlock()
			return false
		}
		a.sent += uint64(n)
	}
	t.open = false
	a.end = t.queued
	t.answered++
	return true
}

// leave sends what is due when the queue pair ends, and closes the stream to the peer once this end
// has disconnected. It reports whether the peer has ended its stream too.
func (l *link) leave() (done bool) {
	t := &l.tx
	if !t.parted {
		t.parted = true
		l.makeLastBatch()
		l.lingers(partLimit, func() {
			l.leaving.Store(true)
			l.run()
		})
	}
	for !t.empty() && !t.cut {
		if !l.flushBatch() && !t.cut {
			if l.leaving.Load() && !t.late { // a peer that does not read holds the socket no longer
				t.late = true
				l.lingers(lingerLimit, l.kill)
			}
			return false
		}
	}
	if !t.closed && (l.leaving.Load() || t.refused || l.qp.Gone()) {
		t.closed = true
		l.sock.closeWrite()
		l.lingers(lingerLimit, l.kill)
	}
	if !t.closed {
		return false
	}
	t.tidy(l)
	return l.eof
}

// lingers sets the timer linger to call then after limit. The timer of an earlier step ends.
func (l *link) lingers(limit time.Duration, then func()) {
	if l.linger != nil {
		l.linger.Stop()
	}
	l.linger = time.AfterFunc(limit, then)
}

// lastFrames is the room for the frames of the last batch, in frames without payload.
const lastFrames = 4

// makeLastBatch makes the last batch. If some payload in the batch is not copied to stage, it must
// not be sent any more, so the batch is cut off before it. Otherwise an acknowledgement and a
// terminate message are added, if they are due.
func (l *link) makeLastBatch() {
	t := &l.tx
	for i := t.first; i < len(t.parts); i++ {
		if t.parts[i].kind != staged {
			t.parts = t.parts[:i]
			return
		}
	}
	if t.cut {
		return
	}
	if t.empty() {
		t.borrow(l)
	}
	if cap(t.stage)-len(t.stage) < lastFrames*frameRoom {
		return
	}
	if l.own && l.heard.executed.Load() != l.sent.executed.Load() {
		// A receive that is posted from now on is flushed at once, so the limit stays as it is.
		l.putControl(iwarp.ControlAck, iwarp.Counts(uint32(l.heard.executed.Load()), uint32(l.sent.limit.Load())))
	}
	l.qp.In.Lock()
	n := len(l.rx.last)
	l.qp.In.Unlock()
	if n > 0 {
		t.refused = true
		l.frame(&iwarp.Header{Op: iwarp.OpTerminate, MSN: 1, Payload: n}, part{n: n})
	}
}
