package tcpfabric

import (
	"bytes"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// TestHostileAnswers: an answer that does not fit the read or the atomic that it answers ends the
// connection with a terminate that says why. Nothing is written beyond the request's memory, and
// nothing before the answer is known to fit.
func TestHostileAnswers(t *testing.T) {
	v := newVictim(t)
	const size = 16 // of the read
	data := bytes.Repeat([]byte{0xBD}, size+1)
	for name, c := range map[string]struct {
		do    func(p *peer, read, add iwarp.Header)
		want  iwarp.Fault
		fits  int // bytes of the read's memory that may have changed
		added bool
	}{
		"another key": {do: func(p *peer, read, _ iwarp.Header) {
			read.SinkKey++
			p.answers(read, 0, data[:size], true)
		}, want: iwarp.FaultTaggedKey},
		"not from its beginning": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 1, data[:size], true)
		}, want: iwarp.FaultTaggedBounds},
		"a byte too long": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data, true)
		}, want: iwarp.FaultTaggedBounds},
		"too short": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data[:size-1], true)
		}, want: iwarp.FaultTaggedBounds},
		"all and no end": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data[:size], false)
		}, want: iwarp.FaultTaggedBounds},
		"nothing and no end": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, nil, false)
		}, want: iwarp.FaultTaggedBounds},
		"a piece twice": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data[:8], false)
			p.answers(read, 0, data[:8], true)
		}, want: iwarp.FaultTaggedBounds, fits: 8},
		"a gap": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data[:4], false)
			p.answers(read, 8, data[:8], true)
		}, want: iwarp.FaultTaggedBounds, fits: 4},
		"a second piece that is too long": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data[:8], false)
			p.answers(read, 8, data[:9], true)
		}, want: iwarp.FaultTaggedBounds, fits: 8},
		"a second piece that is much too long, and not the last": {do: func(p *peer, read, _ iwarp.Header) {
			p.answers(read, 0, data[:8], false)
			p.answers(read, 8, data[:size], false)
		}, want: iwarp.FaultTaggedBounds, fits: 8},
		"the old value for a read": {do: func(p *peer, read, _ iwarp.Header) {
			p.write(iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: 1, ID: read.SinkKey}, nil)
		}, want: iwarp.FaultOpcode},
		"bytes for an atomic": {do: func(p *peer, read, add iwarp.Header) {
			p.answers(read, 0, data[:size], true)
			add.SinkKey = add.ID
			p.answers(add, 0, data[:8], true)
		}, want: iwarp.FaultOpcode, fits: size},
		"the old value for another atomic": {do: func(p *peer, read, add iwarp.Header) {
			p.answers(read, 0, data[:size], true)
			p.write(iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: 1, ID: add.ID + 1}, nil)
		}, want: iwarp.FaultOperation, fits: size},
		"an answer twice": {do: func(p *peer, read, add iwarp.Header) {
			p.answers(read, 0, data[:size], true)
			p.write(iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: 1, ID: add.ID}, nil)
			p.answers(read, 0, data[:size], true)
		}, want: iwarp.FaultOpcode, fits: size, added: true},
		"fewer requests executed than before": {do: func(p *peer, _, _ iwarp.Header) {
			p.write(acks(2, 2), nil)
			p.write(acks(3, 1), nil)
		}, want: iwarp.FaultOperation},
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.t = t
			p, s := w.joined()
			before := bytes.Clone(w.mem)
			_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpRead, NumSGE: 1},
				{Opcode: fabric.OpFetchAdd, FirstSGE: 1, NumSGE: 1}}, []fabric.SGE{
				{Addr: w.at(0), Length: size, LKey: w.mr.LKey()}, {Addr: w.at(size), Length: 8, LKey: w.mr.LKey()}})
			assert.NilError(t, err)
			read, _ := p.read()
			assert.Equal(t, read.Op, iwarp.OpReadRequest)
			add, _ := p.read()
			assert.Equal(t, add.Op, iwarp.OpAtomicRequest)
			c.do(p, read, add)
			p.terminatedWith(c.want)
			p.Close()
			s.over()
			copy(before[roomAt:], w.room()[:c.fits])
			if c.added {
				clear(before[roomAt+size:][:8])
			}
			assert.Assert(t, bytes.Equal(w.mem, before))
		})
	}
	v.serves()
}

// answers writes a piece of the answer to a read.
func (p *peer) answers(read iwarp.Header, at uint64, data []byte, last bool) {
	p.t.Helper()
	p.write(iwarp.Header{Op: iwarp.OpReadResponse, Last: last, Key: read.SinkKey, Offset: read.SinkOffset + at}, data)
}

// TestAnswers: answers of any size are used, in one piece and in several: of no byte, of one, and
// of several.
func TestAnswers(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	data := []byte("0123456789")
	for _, cuts := range [][]int{{0}, {1}, {10}, {1, 2}, {9, 10}, {3, 6, 10}, {0}} {
		n := cuts[len(cuts)-1]
		want := bytes.Clone(v.mem)
		copy(want[roomAt:], data[:n])
		wr := fabric.SendWR{Opcode: fabric.OpRead, NumSGE: 1}
		sges := []fabric.SGE{{Addr: v.at(0), Length: uint32(n), LKey: v.mr.LKey()}}
		if n == 0 {
			wr.NumSGE, sges = 0, nil
		}
		_, err := s.qp.PostSend([]fabric.SendWR{wr}, sges)
		assert.NilError(t, err)
		read, _ := p.read()
		assert.Equal(t, read.Op, iwarp.OpReadRequest)
		assert.Equal(t, int(read.Length), n)
		at := 0
		for _, cut := range cuts {
			p.answers(read, uint64(at), data[at:cut], cut == n)
			at = cut
		}
		within(t, "the read does not complete", func() bool { return l.qp.Sends().Len() == 0 })
		assert.Assert(t, bytes.Equal(v.mem, want))
		copy(v.mem[roomAt:], bytes.Repeat([]byte{canary}, len(data)))
	}
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestReadDepth: a peer may have as many reads and atomics without an answer as the depth says.
// They are answered in order. The next is refused after these answers, and an atomic is not
// executed then.
func TestReadDepth(t *testing.T) {
	v := newVictim(t)
	for _, depth := range []uint16{0, 1, readDepth} {
		for _, op := range []iwarp.Opcode{iwarp.OpReadRequest, iwarp.OpAtomicRequest} {
			p := v.dial()
			request := setup(extended)
			request.Out = depth
			p.connect(request)
			s := v.session()
			p.write(hello, nil)
			s.expect(fabric.EventEstablished)
			h, _ := p.read()
			assert.Equal(t, h.Control, iwarp.ControlHello)
			before := bytes.Clone(v.mem)
			l := linkOf(s.qp.(*softnic.QP))
			allowed := uint32(depth)
			l.inTurn(func() { // answers nothing meanwhile
				for n := range allowed {
					p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: n + 1, SinkKey: n, SinkOffset: 1<<40 + 1, Key: v.mr.RKey(),
						Offset: v.at(int(n)), Length: 8}, nil)
				}
				within(t, "the reads have not come", func() bool { return l.heard.reads.Load() == uint64(allowed) })
				p.write(iwarp.Header{Op: op, MSN: allowed + 1, Key: v.mr.RKey(), Offset: v.at(0), Length: 8, Operand: 1}, nil)
				within(t, "one more is not refused", func() bool { return l.stalled.Load() || l.refusing.Load() })
			})
			for n := uint32(0); n < allowed; {
				h, payload := p.read()
				if h.Op == iwarp.OpControl {
					continue
				}
				assert.Equal(t, h.Op, iwarp.OpReadResponse)
				assert.Equal(t, h.Key, n)
				assert.Equal(t, h.Offset, uint64(1<<40+1))
				assert.DeepEqual(t, payload, before[roomAt+n:][:8])
				n++
			}
			p.terminatedWith(iwarp.FaultReadDepth)
			p.Close()
			s.expect(fabric.EventDisconnected)
			assert.Assert(t, bytes.Equal(v.mem, before))
		}
	}
}

// TestAnswerOfNothing: a read of no bytes has an answer, too.
func TestAnswerOfNothing(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 5}, nil)
	h, payload := p.read()
	if h.Op == iwarp.OpControl { // an acknowledgement
		h, payload = p.read()
	}
	assert.DeepEqual(t, h, iwarp.Header{Op: iwarp.OpReadResponse, Last: true, Key: 5})
	assert.Equal(t, len(payload), 0)
	p.Close()
	s.expect(fabric.EventDisconnected)
}

// TestReadOfWhatIsGone: memory that is deregistered between a peer's read and its answer is not
// sent. The program hears of it, and so does the peer unless the answer has begun.
func TestReadOfWhatIsGone(t *testing.T) {
	v := newVictim(t)
	for _, n := range []int{8, copyLimit + 1} {
		mem, mr := v.region(n, fabric.RemoteRead)
		p, s := v.joined()
		l := linkOf(s.qp.(*softnic.QP))
		l.inTurn(func() {
			p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, Key: mr.RKey(), Offset: addressOf(mem),
				Length: uint32(n)}, nil)
			within(t, "the read has not come", func() bool { return l.heard.reads.Load() == 1 })
			assert.NilError(t, mr.Close())
		})
		select {
		case ev := <-v.reports:
			assert.Equal(t, ev.Kind, fabric.AsyncQPFatal)
			assert.Equal(t, ev.QP, s.qp)
		case <-time.After(patience):
			t.Fatal("no report")
		}
		if n <= copyLimit {
			p.terminatedWith(iwarp.FaultKey)
		}
		p.Close()
		s.over()
	}
}
