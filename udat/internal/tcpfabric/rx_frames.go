package tcpfabric

import (
	"encoding/binary"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// frame handles the headers of a frame, and determines the destination of its payload. If it
// returns a fault, the frame has had no effect, except that its acknowledgement counts. The
// parameter rest is the part of the payload that has come so far.
func (x *rx) frame(l *link, rest []byte) iwarp.Fault {
	h := &x.h
	f := x.verifyFirst(l)
	if f != fine {
		return f
	}
	if h.Op == iwarp.OpTerminate {
		return x.terminate(l, rest[:h.Payload])
	}
	if l.own && h.Op.Acknowledges() {
		f = x.verifyWord(l)
	}
	if f == fine {
		f = x.verifyOrder()
	}
	if f != fine {
		return f
	}
	switch h.Op {
	case iwarp.OpWrite:
		x.into = toRegion
	case iwarp.OpReadRequest:
		f = x.readRequest(l)
	case iwarp.OpAtomicRequest:
		f = x.atomicRequest(l)
	case iwarp.OpReadResponse, iwarp.OpAtomicResponse:
		f = x.answer(l)
	case iwarp.OpControl:
		f = x.verifyControl(l)
	default: // sends and immediate data
		f = x.take(l)
	}
	if f != fine {
		return f
	}
	if x.into != nowhere && h.Payload > len(rest) { // else the copy checks the memory
		if _, f = x.pin(l, 0, uint64(h.Payload)); f != fine {
			return f
		}
		x.release()
	}
	if !x.greeted { // after the peer's first frame this end may send
		x.greeted, x.ready = true, true
		l.heard.greeted.Store(true)
	}
	if !h.Op.Tagged() {
		x.queues[h.Op.Queue()] = h.MSN
	}
	return fine
}

// take gets a receive for a send or for immediate data. If there is none, the peer gets a fault.
func (x *rx) take(l *link) iwarp.Fault {
	h := &x.h
	if !x.open {
		if f := x.verifyMessage(l); f != fine {
			return f
		}
		x.size = 0
		x.describe()
	}
	x.in.WR = &x.wr
	switch st := l.qp.Receive(&x.in, nil); {
	case st == softnic.NotReady:
		return iwarp.FaultNoBuffer
	case st != fabric.StatusSuccess:
		return faultOf(h.Op, st)
	}
	if h.Payload > 0 {
		x.into = toReceive
	}
	x.open, x.openOp = true, h.Op
	return fine
}

// describe sets wr to the work request that the peer has posted for this message.
func (x *rx) describe() {
	h := &x.h
	x.wr = fabric.SendWR{Opcode: fabric.OpSend}
	switch h.Op {
	case iwarp.OpSendInv, iwarp.OpSendSEInv:
		x.wr.Opcode, x.wr.RKey = fabric.OpSendInv, h.Word
	case iwarp.OpSendImm, iwarp.OpSendSEImm:
		x.wr.Opcode, x.wr.Imm = fabric.OpSendImm, h.Word
	case iwarp.OpImmediate, iwarp.OpImmediateSE:
		x.wr.Opcode, x.wr.Imm = fabric.OpWriteImm, uint32(h.Value)
	}
	if h.Op.Solicited() {
		x.wr.Flags = fabric.Solicited
	}
}

// pin pins and returns a part of the destination of the frame's payload: the n bytes from offset
// off on.
func (x *rx) pin(l *link, off, n uint64) ([][]byte, iwarp.Fault) {
	h := &x.h
	switch x.into {
	case toReceive:
		here, there := l.qp.Room(&x.in, x.size+off, n)
		if here != fabric.StatusSuccess {
			x.spoil = here
			return nil, faultOf(h.Op, there)
		}
	case toRegion:
		if f := x.reach(l, off, n, fabric.RemoteWrite, ofTagged); f != fine {
			return nil, f
		}
	case toAnswer:
		bufs, st := l.qp.Payload(&x.out, l.qp.Sends().Slot(x.answers.slot), x.got+off, n)
		if st != fabric.StatusSuccess {
			return nil, x.halt(l, st)
		}
		return bufs, fine
	}
	return x.in.Place(), fine
}

// reach pins a part of the memory that the frame names: n bytes, which begin at the offset off.
func (x *rx) reach(l *link, off, n uint64, need fabric.Access, kind int) iwarp.Fault {
	return denials[l.qp.Reach(&x.in, x.h.Key, x.h.Offset+off, n, need)][kind]
}

// finish ends a frame whose payload is in its destination.
func (x *rx) finish(l *link) {
	h := &x.h
	n := uint64(h.Payload)
	switch h.Op {
	case iwarp.OpWrite:
		if x.fresh {
			x.written = 0
		}
		x.written += n
		if x.fresh = h.Last; h.Last {
			x.executed(l)
		}
	case iwarp.OpReadResponse:
		if x.got += n; h.Last {
			x.got = 0
			l.heard.answered.Add(1)
		}
	case iwarp.OpReadRequest, iwarp.OpAtomicRequest:
		x.executed(l)
	case iwarp.OpAtomicResponse, iwarp.OpControl:
	default:
		if x.size += n; h.Last {
			x.open = false
			x.in.Length = x.size
			if x.wr.Opcode == fabric.OpWriteImm {
				x.in.Length, x.written = x.written, 0
			}
			l.qp.Finish(&x.in)
			if x.wr.Opcode == fabric.OpSendInv && !l.own && !l.qp.Connected() {
				x.refuse(l, iwarp.FaultInvalidate)
			}
			x.executed(l)
			l.heard.delivered.Store(l.heard.executed.Load())
		}
	}
}

// After this many requests or bytes without an acknowledgement, one is due. A write and its
// immediate data are one request here.
const (
	ackRequests = 2 // a single request is acknowledged by the program's answer
	ackBytes    = 512 << 10
)

// A call of executed counts a request of the peer as executed. It makes an acknowledgement due if
// ackRequests or ackBytes are reached.
func (x *rx) executed(l *link) {
	n := l.heard.executed.Load() + 1
	l.heard.executed.Store(n)
	if n-l.sent.executed.Load() >= ackRequests && !x.h.Op.EndsWrite() || x.bytes >= ackBytes {
		x.bytes = 0
		l.ackNow.Store(true)
	}
}

// terminate handles a terminate message. The oldest request that is not done completes with the
// status for the message's reason.
func (x *rx) terminate(l *link, payload []byte) iwarp.Fault {
	f, err := iwarp.ParseTerminate(payload)
	if err != nil {
		f = iwarp.FaultStream
	}
	if l.qp.Sends().Len() == 0 {
		l.qp.Fatal(f)
	}
	l.verdict.CompareAndSwap(0, uint32(statusOf(f)))
	x.stop = true
	return fine
}

// readRequest queues the answer to a read.
func (x *rx) readRequest(l *link) iwarp.Fault {
	h := &x.h
	if f := x.verifyRead(l); f != fine {
		return f
	}
	a := answer{sink: h.SinkKey, at: h.SinkOffset, key: h.Key, addr: h.Offset, n: uint64(h.Length)}
	if f := x.reach(l, 0, a.n, fabric.RemoteRead, ofRequests); f != fine {
		return f
	}
	x.in.Release()
	x.push(l, &a)
	return fine
}

// atomicRequest executes an atomic and queues its answer.
func (x *rx) atomicRequest(l *link) iwarp.Fault {
	h := &x.h
	const word = 8
	if h.Offset%word != 0 {
		return iwarp.FaultOperation
	}
	if f := x.verifyRead(l); f != fine {
		return f
	}
	if f := x.reach(l, 0, word, fabric.RemoteAtomic, ofRequests); f != fine {
		return f
	}
	x.atomic = fabric.SendWR{Opcode: fabric.OpFetchAdd, CompareAdd: h.Operand}
	if h.Atomic == iwarp.CmpSwap {
		x.atomic = fabric.SendWR{Opcode: fabric.OpCmpSwap, CompareAdd: h.Compare, Swap: h.Operand}
	}
	x.in.WR = &x.atomic
	l.qp.Atomic(&x.in)
	a := answer{atomic: true, sink: h.ID, value: binary.NativeEndian.Uint64(x.in.Place()[0])}
	x.in.Release()
	x.push(l, &a)
	return fine
}

func (x *rx) push(l *link, a *answer) {
	n := l.heard.reads.Load()
	l.tx.pending[n%uint64(len(l.tx.pending))] = *a
	l.heard.reads.Store(n + 1)
}

// answer handles the peer's answer to a read or an atomic. If it is the answer to an atomic, it
// also writes the old value to the memory of the request.
func (x *rx) answer(l *link) iwarp.Fault {
	a, f := x.verifyAnswer(l)
	switch {
	case f != fine:
		return f
	case a.atomic:
		return x.atomicAnswer(l, a)
	case x.h.Payload > 0:
		x.into, x.answers = toAnswer, a
	}
	return fine
}

// atomicAnswer handles the answer to an atomic: it writes the old value to the memory of the
// request.
func (x *rx) atomicAnswer(l *link, a *ask) iwarp.Fault {
	bufs, st := l.qp.Payload(&x.out, l.qp.Sends().Slot(a.slot), 0, a.length)
	if st != fabric.StatusSuccess {
		return x.halt(l, st)
	}
	binary.NativeEndian.PutUint64(x.word[:], x.h.Value)
	x.one[0] = x.word[:]
	softnic.Transfer(bufs, x.one[:])
	x.out.Release()
	l.heard.answered.Add(1)
	return fine
}
