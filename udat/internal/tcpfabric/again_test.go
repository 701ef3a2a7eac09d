package tcpfabric

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// sentFrame is a frame that the victim's end has sent.
type sentFrame struct {
	Head    iwarp.Header
	Payload []byte
}

// reads reads n frames.
func (p *peer) reads(n int) (all []sentFrame) {
	p.t.Helper()
	for range n {
		h, payload := p.read()
		all = append(all, sentFrame{h, payload})
	}
	return all
}

// sends posts requests at the victim's end, in one turn of the link, and calls then in that turn.
// Each request with a length gets the first bytes of the room.
func (s *session) sends(wrs []fabric.SendWR, lengths []uint32, then func()) {
	s.v.t.Helper()
	var sges []fabric.SGE
	for i := range wrs {
		wrs[i].ID, wrs[i].Flags = uint64(100+i), wrs[i].Flags|fabric.Signaled
		if lengths[i] > 0 {
			wrs[i].FirstSGE, wrs[i].NumSGE = uint32(len(sges)), 1
			sges = append(sges, fabric.SGE{Addr: s.v.at(0), Length: lengths[i], LKey: s.v.mr.LKey()})
		}
	}
	linkOf(s.qp.(*softnic.QP)).inTurn(func() {
		_, err := s.qp.PostSend(wrs, sges)
		assert.NilError(s.v.t, err)
		then()
	})
}

// statuses waits for the completions of n requests that sends has posted, and returns their
// statuses in the order of the posts.
func (s *session) statuses(n int) (all []fabric.Status) {
	s.v.t.Helper()
	for until := time.Now().Add(patience); len(all) < n; {
		var wcs [1]fabric.WC
		got, err := s.v.cq.Poll(wcs[:], 1)
		assert.NilError(s.v.t, err)
		if got > 0 && wcs[0].ID >= 100 {
			assert.Equal(s.v.t, wcs[0].ID, uint64(100+len(all)))
			all = append(all, wcs[0].Status)
		}
		assert.Assert(s.v.t, time.Now().Before(until), "%d of %d completions", len(all), n)
	}
	return all
}

// resumed reads the frame after which the victim's end sends again, from request n+1 on.
func (p *peer) resumed(n uint64) {
	p.t.Helper()
	want := control(2, iwarp.ControlResume, n)
	want.Last = true
	h, _ := p.read()
	assert.DeepEqual(p.t, h, want)
}

// readyAgain says in one write that the peer has no receive for the first request, and that it has
// one now.
func (p *peer) readyAgain() {
	p.t.Helper()
	p.bytes(append(frame(control(2, iwarp.ControlNotReady, 0), nil, p.crc),
		frame(control(3, iwarp.ControlReady, 0), nil, p.crc)...))
}

// TestNothingAfterFailed: a request that fails at this end completes in its turn, after the
// requests before it. No request after it is sent meanwhile, nor if those before it are sent again.
func TestNothingAfterFailed(t *testing.T) {
	v := newVictim(t)
	for name, c := range map[string]struct {
		wr     fabric.SendWR
		length uint32
		status fabric.Status
	}{
		"short payload":   {fabric.SendWR{Opcode: fabric.OpSend}, 8, fabric.StatusLocalProt},
		"long payload":    {fabric.SendWR{Opcode: fabric.OpSend}, copyLimit + 1, fabric.StatusLocalProt},
		"read":            {fabric.SendWR{Opcode: fabric.OpRead}, 1, fabric.StatusLocalProt},
		"no key":          {fabric.SendWR{Opcode: fabric.OpLocalInv, RKey: 1}, 0, fabric.StatusLocalQPOp},
		"a fault's share": {fabric.SendWR{Opcode: fabric.OpWrite}, 0, fabric.StatusGeneral},
	} {
		for _, again := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := *v
				w.t = t
				_, gone := w.region(copyLimit+1, fabric.LocalWrite)
				p, s := w.joined()
				first := fabric.SendWR{Opcode: fabric.OpRead}
				if again {
					first.Opcode = fabric.OpSend
				}
				wrs := []fabric.SendWR{first, c.wr, {Opcode: fabric.OpSend}, {Opcode: fabric.OpRead}}
				l := linkOf(s.qp.(*softnic.QP))
				if c.status == fabric.StatusGeneral {
					v.dev.(*Device).NIC().FailOp(2, c.status)
				}
				s.sends(wrs, []uint32{0, c.length, 8, 8}, func() {
					if c.length > 0 {
						l.qp.Sends().At(1).SGEs[0].LKey = gone.LKey()
					}
					assert.NilError(t, gone.Close())
				})
				h, _ := p.read()
				if again {
					assert.Equal(t, h.Op, iwarp.OpSend)
					p.write(control(2, iwarp.ControlNotReady, 0), nil)
					p.write(control(3, iwarp.ControlReady, 0), nil)
					p.resumed(0)
					h, _ = p.read()
					assert.Equal(t, h.Op, iwarp.OpSend)
				}
				p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}, []byte("some"))
				within(t, "the write does not come", func() bool { return l.executed.Load() == 1 })
				l.inTurn(func() {}) // so that it would have sent
				if again {
					p.write(control(4, iwarp.ControlAck, 1), nil)
				} else {
					p.answers(h, 0, nil, true)
				}
				assert.DeepEqual(t, s.statuses(4),
					[]fabric.Status{fabric.StatusSuccess, c.status, fabric.StatusFlush, fabric.StatusFlush})
				assert.NilError(t, s.conn.Disconnect())
				err := p.rest(func(h iwarp.Header, _ []byte) { assert.Equal(t, h.Op, iwarp.OpControl) })
				assert.Equal(t, err, io.EOF) // not within a frame
				p.Close()
				s.expect(fabric.EventDisconnected)
			})
		}
	}
}

// TestSentAgain: if a request finds no receive, it and those after it are sent again, as they were
// sent first, when there is a receive. What the peer has executed is not sent again, even if it is
// only the first part of a request. What needs no peer is not done again.
func TestSentAgain(t *testing.T) {
	v := newVictim(t)
	write := fabric.SendWR{Opcode: fabric.OpWriteImm, Imm: 77, RKey: 5, RemoteAddr: 1<<40 + 1}
	invalidate := fabric.SendWR{Opcode: fabric.OpLocalInv}
	for _, c := range []struct {
		name string
		wrs  []fabric.SendWR
		n    int // frames of all requests
		// Of the first request that is sent again.
		count  uint64
		frames int // the frames before it
	}{
		{"a send", []fabric.SendWR{{Opcode: fabric.OpSend}}, 1, 0, 0},
		{"the first", []fabric.SendWR{{Opcode: fabric.OpSend}, {Opcode: fabric.OpRead}, {Opcode: fabric.OpFetchAdd}, write},
			5, 0, 0},
		{"the last", []fabric.SendWR{{Opcode: fabric.OpWrite}, {Opcode: fabric.OpRead}, {Opcode: fabric.OpSend}}, 3, 2, 2},
		{"the immediate data", []fabric.SendWR{write, {Opcode: fabric.OpSend}, write}, 5, 1, 1},
		{"both parts", []fabric.SendWR{{Opcode: fabric.OpSend}, write, {Opcode: fabric.OpSendImm, Imm: 5}}, 4, 0, 0},
		{"with an invalidation", []fabric.SendWR{{Opcode: fabric.OpSend}, invalidate, {Opcode: fabric.OpSend}}, 2, 0, 0},
		{"after an invalidation", []fabric.SendWR{invalidate, {Opcode: fabric.OpSend}, {Opcode: fabric.OpSend}}, 2, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := *v
			w.t = t
			p, s := w.joined()
			wrs, lengths := slices.Clone(c.wrs), []uint32{8, 8, 8, 8}[:len(c.wrs)]
			l := linkOf(s.qp.(*softnic.QP))
			if i := slices.IndexFunc(wrs, func(wr fabric.SendWR) bool { return wr.Opcode == fabric.OpLocalInv }); i >= 0 {
				mem, mr := w.region(8, fabric.LocalWrite|fabric.WindowBind)
				mw, err := w.pd.AllocMW()
				assert.NilError(t, err)
				t.Cleanup(func() {
					assert.NilError(t, mw.Close())
					assert.NilError(t, mr.Close())
				})
				wrs[i].RKey, err = s.qp.Bind(mw, fabric.BindWR{MR: mr, Addr: addressOf(mem), Length: 8})
				assert.NilError(t, err)
				lengths[i] = 0
				within(t, "the window is not bound", func() bool { return l.qp.Sends().Len() == 0 })
			}
			s.sends(wrs, lengths, func() {})
			first := p.reads(c.n)
			p.write(control(2, iwarp.ControlNotReady, c.count), nil)
			p.write(control(3, iwarp.ControlReady, c.count), nil)
			p.resumed(c.count)
			assert.DeepEqual(t, p.reads(c.n-c.frames), first[c.frames:])
			units := uint64(0)
			for _, f := range first {
				switch f.Head.Op {
				case iwarp.OpReadRequest:
					p.answers(iwarp.Header{SinkKey: f.Head.SinkKey}, 0, []byte("answered"), true)
				case iwarp.OpAtomicRequest:
					p.write(iwarp.Header{Op: iwarp.OpAtomicResponse, MSN: 1, ID: f.Head.ID}, nil)
				}
				units++
			}
			p.write(control(4, iwarp.ControlAck, units), nil)
			assert.DeepEqual(t, s.statuses(len(wrs)), make([]fabric.Status, len(wrs)))
			p.Close()
			s.expect(fabric.EventDisconnected)
		})
	}
}

// TestWaitsAgain: each wait for a receive has the whole time that RNRRetry gives, even if the
// request has waited before.
func TestWaitsAgain(t *testing.T) {
	const retries = 6
	v := newVictimWith(t, fabric.Options{RNRRetry: retries, Retry: 7})
	p, s := v.joined()
	s.sends([]fabric.SendWR{{Opcode: fabric.OpSend}}, []uint32{8}, func() {})
	p.reads(1)
	p.readyAgain()
	p.resumed(0)
	p.reads(1)
	time.Sleep(retries * rnrTimer / 2)
	start := time.Now()
	p.write(control(4, iwarp.ControlNotReady, 0), nil)
	assert.DeepEqual(t, s.statuses(1), []fabric.Status{fabric.StatusRNRExceeded})
	assert.Assert(t, time.Since(start) >= retries*rnrTimer)
	p.Close()
	s.over()
}

// TestGivesUpInVain: the end of the wait for a receive fails nothing if the wait is over, or about
// to be.
func TestGivesUpInVain(t *testing.T) {
	l := new(link)
	l.step = func() {}
	l.giveUp()
	l.held.Store(true)
	l.resumed.Store(true)
	l.giveUp()
	assert.Equal(t, l.verdict.Load(), uint32(0))
}

// TestSentAgainFromItsBeginning: a message that finds no receive while the rest of it waits for
// room in the socket is sent again as a whole.
func TestSentAgainFromItsBeginning(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(large, fabric.LocalWrite)
	p, s := v.joined()
	_, err := s.qp.PostSend([]fabric.SendWR{{ID: 100, Opcode: fabric.OpSend, Flags: fabric.Signaled, NumSGE: 1}},
		[]fabric.SGE{{Addr: addressOf(mem), Length: large, LKey: mr.LKey()}})
	assert.NilError(t, err)
	p.readyAgain()
	h, _ := p.read()
	for h.Op == iwarp.OpSend {
		h, _ = p.read()
	}
	assert.Equal(t, h.Control, iwarp.ControlResume)
	for got := 0; got < large; {
		h, payload := p.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		assert.Equal(t, h.MSN, uint32(1))
		assert.Equal(t, int(h.MO), got)
		assert.Assert(t, bytes.Equal(payload, mem[got:][:len(payload)]))
		got += len(payload)
		assert.Equal(t, h.Last, got == large)
	}
	p.write(control(4, iwarp.ControlAck, 1), nil)
	assert.DeepEqual(t, s.statuses(1), []fabric.Status{fabric.StatusSuccess})
	p.Close()
	s.expect(fabric.EventDisconnected)
	assert.NilError(t, mr.Close())
}
