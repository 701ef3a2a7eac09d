package tcpfabric

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

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
	defer x.tidy(l)
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
			if !errors.Is(err, errAgain) {
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
		if x.left > 0 {
			n := min(x.left, x.w-x.r)
			if n == 0 || !x.put(l, n) {
				return
			}
			continue
		}
		if x.trail > 0 {
			n := min(x.trail, x.w-x.r)
			x.r, x.trail = x.r+n, x.trail-n
			if x.trail > 0 {
				return
			}
			x.finish(l)
			continue
		}
		if !x.next(l) {
			return
		}
	}
}

// next handles the headers of the next frame. It returns false if not all headers have come, or if
// the frame is refused.
func (x *rx) next(l *link) bool {
	b := x.buf[x.r:x.w]
	x.missing = 0
	if len(b) < iwarp.PrefixSize {
		return false
	}
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
			softnic.Move(b, x.buf[at:at+len(b)])
			at += len(b)
		}
		x.release()
	}
	x.r, x.left, x.off, x.bytes = x.r+n, x.left-n, x.off+uint64(n), x.bytes+n
	return true
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
