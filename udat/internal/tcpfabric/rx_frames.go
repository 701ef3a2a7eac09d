package tcpfabric

import (
	"encoding/binary"
	"errors"
	"io"
	"syscall"

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
	ok := softnic.Transfer(bufs, x.one[:])
	x.out.Release()
	if !ok {
		return x.halt(l, fabric.StatusLocalProt)
	}
	l.heard.answered.Add(1)
	return fine
}

const (
	direct = 8 << 10 // if at least this many bytes of a payload are missing, they are read directly into their destination
	ahead  = 2 << 10 // bytes after the payload that are read with it
	rounds = 16      // reads from one socket before the other sockets are read
)

// receive reads and handles what has come, and runs the link if necessary. If poll is true and
// another goroutine is receiving, it returns at once. The results say whether anything has come,
// and whether there may be more to read.
func (l *link) receive(poll bool) (got, more bool) {
	in := &l.qp.In
	if !poll {
		in.Lock()
	} else if !in.TryLock() {
		return false, false
	}
	l.inside.Store(true)
	got, more = l.rx.work(l)
	l.rx.tidy(l)
	ready := l.rx.ready
	l.rx.ready = false
	l.inside.Store(false)
	in.Unlock()
	if ready {
		l.conn.Ready()
	}
	// If the queue pair failed meanwhile, this call has to start the flush.
	if got || l.refusing.Load() || l.end.Load() != nil || !l.qp.Connected() {
		l.run()
	}
	return got, more
}

// work reads and handles what has come. The results say whether anything has come, and whether
// there may be more to read.
func (x *rx) work(l *link) (got, more bool) {
	if x.buf == nil {
		x.buf = x.loan.enlarge(l, nil)
	}
	x.early = false
	for range rounds {
		if !l.live.Load() || l.end.Load() != nil || l.stalled.Load() {
			return got, false
		}
		before := x.frames
		x.consume(l)
		got = got || x.frames != before
		if l.stalled.Load() || x.early {
			return got, false
		}
		all, err := x.read(l)
		if err != nil {
			switch {
			case isOf(err, syscall.EFAULT):
				x.fault(l, x.gone(l))
				return true, true
			case !errors.Is(err, errAgain):
				x.close(l, err)
			}
			return got, false
		}
		got = true
		if all && !l.ending.Load() {
			x.consume(l)
			return got, false
		}
	}
	return got, true
}

// tidy keeps no more memory than the bytes need that have been read and not used.
func (x *rx) tidy(l *link) {
	x.one[0] = nil
	if x.r == x.w {
		x.r, x.w, x.buf = 0, 0, nil
		x.loan.drop(l)
		return
	}
	if moved := x.loan.wait(l, x.buf[x.r:x.w], 1); moved != nil {
		x.r, x.w, x.buf = 0, x.w-x.r, moved
	}
}

// discard drops what has been read and not used.
func (x *rx) discard(l *link) {
	if x.buf != nil {
		x.stop, x.r, x.w, x.left, x.buf = true, 0, 0, 0, nil
		x.loan.drop(l)
	}
}

// enlarge makes room for the bytes that a frame still needs, and for more than one frame if nothing
// is left of the last.
func (x *rx) enlarge(l *link) {
	if n := x.w - x.r; !x.loan.full() && (n == 0 || n+max(x.missing, 1) > len(x.buf)) {
		x.buf, x.r, x.w = x.loan.enlarge(l, x.buf[x.r:x.w]), 0, n
	}
}

// close records that the stream has ended, and how.
func (x *rx) close(l *link, err error) {
	if errors.Is(err, io.EOF) {
		err = nil
		if !x.stop && (x.r != x.w || x.left > 0 || x.trail > 0) { // else this end has refused the rest
			err = errMidFrame
		}
	}
	x.r, x.w = 0, 0
	l.end.Store(&end{err})
}

// read reads once: into the destination of a long payload, or into buf. It returns true if nothing
// is left to read now.
func (x *rx) read(l *link) (all bool, err error) {
	if x.stop || !l.qp.Connected() {
		x.stop, x.r, x.w, x.left = true, 0, 0, 0
		x.one[0] = x.buf
		n, err := l.sock.read(x.one[:])
		return n < len(x.buf), err
	}
	x.enlarge(l)
	if x.left >= direct && x.r == x.w && x.into != nowhere && !l.crc {
		x.r, x.w = 0, 0
		bufs, ok := x.place(l, x.left)
		if !ok {
			return true, errAgain
		}
		x.iov = append(append(x.iov[:0], bufs...), x.buf[:ahead])
		n, err := l.sock.read(x.iov)
		x.release()
		clear(x.iov)
		placed := min(n, x.left)
		x.left, x.off, x.w = x.left-placed, x.off+uint64(placed), n-placed
		x.bytes += placed
		return x.left > 0 || x.w < ahead, err
	}
	if x.r > 0 {
		x.w = copy(x.buf, x.buf[x.r:x.w])
		x.r = 0
	}
	most := len(x.buf)
	if x.missing > 0 { // so that little needs to be moved to the front next time
		most = min(most, x.w+x.missing+ahead)
	}
	x.one[0] = x.buf[x.w:most]
	n, err := l.sock.read(x.one[:])
	x.w += n
	return x.w < most, err
}

// consume handles the frames, and the parts of frames, that are in buf.
func (x *rx) consume(l *link) {
	if x.due != 0 {
		x.refuse(l, x.due)
	}
	for !x.stop && l.qp.Connected() {
		if x.trail == 0 && !x.next(l) || x.stop {
			return
		}
		if n := min(x.left, x.w-x.r); x.left > 0 && (n == 0 || !x.put(l, n) || x.left > 0) {
			return
		}
		n := min(x.trail, x.w-x.r)
		if x.r, x.trail = x.r+n, x.trail-n; x.trail > 0 {
			return
		}
		x.finish(l)
	}
}

// next handles the headers of the next frame. It returns false if not all headers have come, or if
// the frame is refused.
func (x *rx) next(l *link) bool {
	x.missing = 0
	if x.w-x.r < iwarp.PrefixSize {
		return false
	}
	b := x.buf[x.r:x.w]
	segment := int(binary.BigEndian.Uint16(b))
	x.known = copy(x.head[:], b[:min(len(b), lengthSize+segment)])
	head, err := iwarp.HeaderSize(b, l.own)
	if err != nil {
		x.fault(l, asFault(err))
		return false
	}
	whole := lengthSize + segment + iwarp.TrailerSize(segment)
	terminates := iwarp.Opcode(b[3]&15) == iwarp.OpTerminate
	if terminates && whole > x.loan.large.size {
		x.fault(l, iwarp.FaultLength)
		return false
	}
	if len(b) < head || len(b) < whole && (l.crc || terminates) {
		if whole > len(x.buf) || whole >= direct {
			x.missing = whole - len(b)
		}
		return false
	}
	if l.crc {
		sum := iwarp.Checksum(0, b[:lengthSize+segment])
		if err := iwarp.CheckTrailer(b[lengthSize+segment:whole], sum); err != nil {
			x.fault(l, asFault(err))
			return false
		}
	}
	if err := x.h.Parse(b[:head], l.own); err != nil {
		x.fault(l, asFault(err))
		return false
	}
	x.off, x.into = 0, nowhere
	if f := x.frame(l, b[head:]); f != fine {
		x.fault(l, f)
		return false
	}
	x.frames++
	x.r += head
	x.trail = whole - lengthSize - segment
	x.left = x.h.Payload
	return true
}

// put copies n bytes of payload from buf to their destination.
func (x *rx) put(l *link, n int) bool {
	if x.into != nowhere {
		bufs, ok := x.place(l, n)
		if !ok {
			return false
		}
		at := x.r
		for _, b := range bufs {
			ok = ok && softnic.Move(b, x.buf[at:at+len(b)])
			at += len(b)
		}
		x.release()
		if !ok {
			x.fault(l, x.gone(l))
			return false
		}
	}
	x.r, x.left, x.off, x.bytes = x.r+n, x.left-n, x.off+uint64(n), x.bytes+n
	return true
}

// gone returns the fault of a frame whose destination the program has unmapped.
func (x *rx) gone(l *link) iwarp.Fault {
	switch x.into {
	case toAnswer:
		return x.halt(l, fabric.StatusLocalProt)
	case toReceive:
		x.spoil = fabric.StatusLocalProt
		return faultOf(x.h.Op, fabric.StatusRemoteOp)
	}
	return iwarp.FaultAccess
}

// place pins the destination of the next n bytes of the payload. It may fail even though the
// destination was checked when the frame began, because access may have been revoked since.
func (x *rx) place(l *link, n int) ([][]byte, bool) {
	bufs, f := x.pin(l, x.off, uint64(n))
	if f != fine {
		x.fault(l, f)
	}
	return bufs, f == fine
}
