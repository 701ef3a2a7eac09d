package tcpfabric

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// errNoPages is the error of a connection if this process has unmapped memory that was to be sent.
var errNoPages = fmt.Errorf("memory of this process that was to be sent cannot be read: it was unmapped, or its file "+
	"is shorter now: %w", syscall.EFAULT)

// tx is the transmitting half of a link. The goroutine that runs link.work owns it. Frames are put
// into a batch, as parts, and one system call writes the parts of the batch. Headers, trailers and
// short payload are copied to stage. Long payload is written directly from its memory, which is
// pinned only during the write. With checksums all payload is copied to stage, so that the checksum
// is that of the bytes that are sent.
type tx struct {
	stage   []byte // nil: none
	loan    loan   // what stage uses
	parts   []part
	first   int // the first part that is not written
	off     int // bytes of that part that are written
	size    int // bytes of the batch
	iov     [][]byte
	one     [1][]byte
	mine    softnic.Outbound // memory of this end's requests
	theirs  softnic.Inbound  // memory that the peer reads
	queued  uint64           // bytes put into batches so far
	written uint64           // bytes written so far
	cut     bool             // a frame cannot be completed, so nothing more can be sent
	parted  bool             // makeLastBatch has made the last batch
	refused bool             // the last batch has a terminate
	late    bool             // the time has begun in which the last batch must be written
	closed  bool             // this end has ended its stream

	next      uint64 // the request to send next
	counted   uint64 // the oldest request that is not known to be written
	sent      uint64 // payload bytes of the next request that are in batches
	begun     bool   // the next request has been numbered
	immediate bool   // only the immediate data of the next request is left
	stuck     bool   // a request has failed, so no later request may be sent
	marks     []mark // one for each request: a ring as long as the send queue
	back      uint32 // atomic responses sent
	control   uint32 // control messages sent
	numbers
	answers
	credit
}

// part is a piece of the batch.
type part struct {
	kind partKind
	off  uint64 // in the stage, or in the payload of the request
	n    int
	slot uint64 // of ofRequest: the slot in the send queue
	key  uint32 // the key of ofPeer; off is then the address
}

type partKind uint8

const (
	staged    partKind = iota
	ofRequest          // memory of a request
	ofPeer             // memory that the peer reads
)

const (
	copyLimit  = 2048    // payload of at most this many bytes is copied to stage
	batchLimit = 1 << 20 // bytes of a batch, about
	batches    = 4       // batches written to one socket before the other sockets have a turn
	maxParts   = 64
)

// start prepares tx for a connection.
func (t *tx) start(depth int, sums bool) {
	t.loan.init(sums)
	t.marks = make([]mark, depth)
}

// borrow begins an empty batch, with a stage for it.
func (t *tx) borrow(l *link) {
	t.parts, t.first, t.off, t.size = t.parts[:0], 0, 0, 0
	if !t.loan.full() {
		t.stage = t.loan.enlarge(l, nil)
	}
	t.stage = t.stage[:0]
}

// tidy keeps no more of the stage than the rest of the batch, and a last batch, need.
func (t *tx) tidy(l *link) {
	switch {
	case t.loan.buf == nil:
	case t.empty():
		t.stage = nil
		t.loan.drop(l)
	default:
		if moved := t.loan.wait(l, t.stage, lastFrames*frameRoom); moved != nil {
			t.stage = moved[:len(t.stage)]
		}
	}
}

func (t *tx) mark(n uint64) *mark { return &t.marks[n%uint64(len(t.marks))] }

// empty reports whether all of the batch is written.
func (t *tx) empty() bool { return t.first == len(t.parts) }

// flushBatch writes as much of the batch as one system call can. It returns false if nothing was
// written.
func (l *link) flushBatch() bool {
	t := &l.tx
	if !l.gather() {
		return false
	}
	if !l.unacked.Load() {
		l.unacked.Store(true)
		l.dev.watch()
	}
	l.sent.writing.Store(true)
	n, err := l.sock.write(t.iov)
	t.written += uint64(n)
	l.countWritten()
	l.sent.writing.Store(false)
	clear(t.iov)
	t.mine.Release()
	t.theirs.Release()
	if err != nil {
		if !errors.Is(err, errAgain) {
			t.cut, t.first = true, len(t.parts) // the receiving half will see the error too
			if isOf(err, syscall.EFAULT) {      // except EFAULT, which is an error of the program's memory and not of the socket
				l.conn.PeerLeft(fabric.EventFailed, errNoPages)
				l.qp.Fail()
				l.kill()
			}
		}
		return false
	}
	for t.off += n; !t.empty() && t.off >= t.parts[t.first].n; t.first++ {
		t.off -= t.parts[t.first].n
	}
	return true
}

// gather pins the parts of the batch that are not written, and lists them in iov. It returns false
// if nothing can be written.
func (l *link) gather() bool {
	t := &l.tx
	t.iov = t.iov[:0]
	mine, theirs := 0, 0
	for i := t.first; i < len(t.parts); i++ {
		p, skip := &t.parts[i], 0
		if i == t.first {
			skip = t.off
		}
		from, n := p.off+uint64(skip), p.n-skip
		if p.kind != staged && !l.qp.Connected() {
			break
		}
		switch p.kind {
		case staged:
			t.iov = append(t.iov, t.stage[from:from+uint64(n)])
			continue
		case ofRequest:
			bufs, st := l.qp.Payload(&t.mine, l.qp.Sends().Slot(p.slot), from, uint64(n))
			if st == fabric.StatusSuccess {
				t.iov, mine = append(t.iov, bufs[mine:]...), len(bufs)
				continue
			}
			t.mark(p.slot).decide(st)
		case ofPeer:
			if l.qp.Reach(&t.theirs, p.key, from, uint64(n), fabric.RemoteRead) == softnic.Granted {
				bufs := t.theirs.Place()
				t.iov, theirs = append(t.iov, bufs[theirs:]...), len(bufs)
				continue
			}
			l.qp.Fatal(nil)
		}
		t.cut = true // the frame's header has been made, and its payload can no longer be read
		break
	}
	if len(t.iov) == 0 {
		t.mine.Release()
		t.theirs.Release()
		return false
	}
	return true
}

// roomy reports whether the batch has room for another frame.
func (l *link) roomy() bool {
	t := &l.tx
	return t.size < batchLimit && len(t.parts)+4 <= maxParts && cap(t.stage)-len(t.stage) >= 2*frameRoom+copyLimit
}

// frameRoom is the space in the stage that a frame needs in addition to its payload.
const frameRoom = iwarp.MaxHeader + iwarp.MaxTrailer

// fit returns how many bytes of payload the next frame of a message can have. The parameter unsent
// is the number of bytes of the message that are not in frames yet. It returns 0 if the batch has
// no room for a useful frame.
func (l *link) fit(op iwarp.Opcode, unsent uint64) int {
	t := &l.tx
	limit := iwarp.PayloadLimit(op, int(l.heard.segment.Load()))
	n := int(min(unsent, uint64(limit)))
	if n > copyLimit && l.crc {
		if room := cap(t.stage) - len(t.stage) - 2*frameRoom; room < n {
			return 0
		}
	}
	return n
}

func (l *link) putControl(c iwarp.Control, value uint64) {
	l.tx.control++
	h := iwarp.Header{Op: iwarp.OpControl, MSN: l.tx.control, Control: c, Value: value}
	l.frame(&h, part{})
}

// A call of frame puts a frame into the batch, with the payload that p names. It returns an error
// status if the payload can no longer be read.
func (l *link) frame(h *iwarp.Header, p part) (st fabric.Status) {
	t := &l.tx
	from := len(t.stage)
	head := h.Put(t.stage[from : from+iwarp.MaxHeader])
	t.stage = t.stage[:from+head]
	n := h.Payload
	copied := n > 0 && (n <= copyLimit || l.crc)
	if copied {
		var bufs [][]byte
		inline := false // the payload is not memory of the program
		switch p.kind {
		case staged: // the payload of a terminate
			t.one[0] = l.rx.last[:n]
			bufs = t.one[:]
		case ofRequest:
			s := l.qp.Sends().Slot(p.slot)
			inline = s.WR.Flags&fabric.Inline != 0
			bufs, st = l.qp.Payload(&t.mine, s, p.off, uint64(n))
		case ofPeer:
			if l.qp.Reach(&t.theirs, p.key, p.off, uint64(n), fabric.RemoteRead) != softnic.Granted {
				st = fabric.StatusRemoteAccess
			}
			bufs = t.theirs.Place()
		}
		for _, b := range bufs {
			at := len(t.stage)
			t.stage = t.stage[:at+len(b)]
			if inline {
				copy(t.stage[at:], b)
			} else if !softnic.Move(t.stage[at:], b) {
				st = fabric.StatusLocalProt
			}
		}
		t.mine.Release()
		t.theirs.Release()
		if st != fabric.StatusSuccess {
			t.stage = t.stage[:from]
			return st
		}
	}
	sum := uint32(0)
	if l.crc {
		sum = iwarp.Checksum(0, t.stage[from:])
	}
	if n > 0 && !copied {
		t.add(part{off: uint64(from), n: head})
		t.add(p)
		from += head
	}
	end := len(t.stage)
	t.stage = t.stage[:end+iwarp.PutTrailer(t.stage[end:end+iwarp.MaxTrailer], head-lengthSize+n, sum, l.crc)]
	t.add(part{off: uint64(from), n: len(t.stage) - from})
	return fabric.StatusSuccess
}

const lengthSize = 2 // of a frame's length field

// A call of setup puts a frame of the set-up into the batch.
func (t *tx) setup(frame []byte) {
	from := len(t.stage)
	t.stage = append(t.stage, frame...)
	t.add(part{off: uint64(from), n: len(frame)})
}

// add adds a part to the batch, or extends the last part.
func (t *tx) add(p part) {
	t.size += p.n
	t.queued += uint64(p.n)
	if k := len(t.parts) - 1; k >= 0 && p.kind == staged && t.parts[k].kind == staged {
		t.parts[k].n += p.n
		return
	}
	t.parts = append(t.parts, p)
}

// mark is how far a request of the send queue has come. A request takes its mark when it begins,
// and leaves the send queue only when done says so.
type mark struct {
	request uint64 // the number of the request in the send queue, from 1; a mark with another number is of an older one
	state   state
	by      doneBy
	status  fabric.Status // the result, if the state is decided
	end     uint64        // how many bytes have been put into batches when the request has been put as a whole
	numbers               // including the request
}

// state is the state of a request that has begun.
type state uint8

const (
	begun   state = iota // it is not in batches as a whole
	batched              // it is in batches as a whole
	written              // it has been written to the socket as a whole
	decided              // it has failed, or needed no message
)

// doneBy is the kind of progress that completes a request that has been written.
type doneBy uint8

const (
	byWriting doneBy = iota // nothing else
	byAck                   // the peer has acknowledged it
	byAnswer                // the peer has answered it
)

// numbers count what has begun.
type numbers struct {
	requests uint64 // as the peer counts them
	messages uint64 // sends and immediate data
	reads    uint64 // reads and atomics
}

func (m *mark) decide(st fabric.Status) { m.state, m.status = decided, st }

// done reports whether request n, counted from 0, has completed, and how.
func (l *link) done(n uint64) (bool, fabric.Status) {
	m := l.tx.mark(n)
	switch {
	case m.request != n+1:
		return false, 0 // it has not begun
	case m.state == decided:
		return true, m.status
	case m.state != written:
		return false, 0
	}
	switch m.by {
	case byAck:
		return l.heard.acked.Load() >= m.requests, fabric.StatusSuccess
	case byAnswer:
		return l.heard.answered.Load() >= m.reads, fabric.StatusSuccess
	}
	return true, fabric.StatusSuccess
}

// countWritten records what the latest write has written as a whole.
func (l *link) countWritten() {
	t := &l.tx
	for ; t.counted < t.next; t.counted++ {
		m := t.mark(t.counted)
		if m.request != t.counted+1 || m.state == decided { // also if it is done already
			continue
		}
		if m.end > t.written {
			break
		}
		m.state = written
		l.sent.requests.Store(m.requests)
		l.sent.reads.Store(m.reads)
	}
	for n := l.sent.answers.Load(); n < t.answered && t.pending[n%uint64(len(t.pending))].end <= t.written; n++ {
		l.sent.answers.Store(n + 1)
	}
	if t.askEnd != 0 && t.askEnd <= t.written {
		t.askEnd = 0
		l.sent.wanted.Store(t.wanted)
		l.sent.asks.Add(1)
	}
	if t.grantEnd != 0 && t.grantEnd <= t.written {
		t.grantEnd = 0
		l.sent.grants.Add(1)
	}
}
