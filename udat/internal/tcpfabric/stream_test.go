package tcpfabric

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

const large = 8 << 20 // more than the sockets hold

// region registers memory of the victim, in which adjacent bytes differ.
func (v *victim) region(n int, access fabric.Access) ([]byte, fabric.MR) {
	v.t.Helper()
	mem := make([]byte, n)
	for i := range mem {
		mem[i] = byte(i>>16 + i*7)
	}
	mr, err := v.pd.RegMR(mem, access)
	assert.NilError(v.t, err)
	return mem, mr
}

// TestLargeTransfers: data of many segments arrives at its destination, in both directions.
func TestLargeTransfers(t *testing.T) {
	for _, sums := range []bool{false, true} {
		v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &sums})
		const n, at = 1<<20 - 3, 5
		mem, mr := v.region(at+n+at, fabric.RemoteWrite|fabric.RemoteRead)
		i := v.joins(v.listener.Addr())
		s := v.session()
		s.expect(fabric.EventEstablished)
		far := fabric.SendWR{Opcode: fabric.OpRead, RKey: mr.RKey(), RemoteAddr: addressOf(mem) + at}
		want := bytes.Clone(mem)
		for range 2 {
			clear(i.mem)
			i.post(far, n)
			i.ends(1)
			assert.Assert(t, bytes.Equal(i.mem[:n], want[at:at+n]), "read")
			clear(mem[at : at+n])
			far.Opcode = fabric.OpWrite
			i.post(far, n)
			i.ends(1)
			assert.Assert(t, bytes.Equal(mem, want), "written")
			far.Opcode = fabric.OpRead
		}
		i.close()
		s.leaves(t)
		assert.NilError(t, mr.Close())
	}
}

// TestTurns: answers and requests of an end take turns, so that none waits for all of the others.
func TestTurns(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(large, fabric.RemoteRead)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	l.inTurn(func() {
		for n := range uint32(readDepth) {
			p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: n + 1, Length: large, Key: mr.RKey(),
				Offset: addressOf(mem)}, nil)
			_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
			assert.NilError(t, err)
		}
		within(t, "the reads have not come", func() bool { return l.heard.reads.Load() == readDepth })
	})
	var order []iwarp.Opcode
	for len(order) < 2*readDepth {
		if h, _ := p.read(); h.Last && h.Op != iwarp.OpControl {
			order = append(order, h.Op)
		}
	}
	assert.DeepEqual(t, order, slices.Repeat([]iwarp.Opcode{iwarp.OpSend, iwarp.OpReadResponse}, readDepth))
	p.Close()
	s.expect(fabric.EventDisconnected)
	assert.NilError(t, mr.Close())
}

// rest reads frames until the stream ends.
func (p *peer) rest(each func(iwarp.Header, []byte)) error {
	for {
		h, payload, err := p.readFrame()
		if err != nil {
			return err
		}
		each(h, payload)
	}
}

// TestAnswersBeforeTheEnd: a peer breaks a rule after it has asked for an answer. It gets the whole
// answer first, even a large one, then the reason, and then the end of the stream, whatever it has
// sent meanwhile.
func TestAnswersBeforeTheEnd(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(large, fabric.RemoteRead)
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 1, Length: large, Key: mr.RKey(),
		Offset: addressOf(mem)}, nil)
	p.write(send(7, 0, true), []byte("of the wrong number"))
	go p.bytes(make([]byte, large))
	s.expect(fabric.EventEstablished)
	got, reasons := 0, 0
	err := p.rest(func(h iwarp.Header, payload []byte) {
		switch h.Op {
		case iwarp.OpReadResponse:
			assert.Assert(t, bytes.Equal(payload, mem[got:got+len(payload)]), "at %d", got)
			got += len(payload)
			if large-got < 6<<20 { // the rest waits in the victim
				time.Sleep(time.Millisecond)
			}
		case iwarp.OpTerminate:
			assert.Equal(t, got, large)
			reasons++
		}
	})
	assert.Equal(t, got, large)
	assert.Equal(t, reasons, 1)
	assert.Assert(t, errors.Is(err, io.EOF), "%v", err)
	p.Close()
	s.over()
	assert.NilError(t, mr.Close())
	v.serves()
}

// TestLeavesInTheMiddle: an end that disconnects while a large message is on its way ends its
// stream as soon as the peer reads.
func TestLeavesInTheMiddle(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(large, fabric.LocalWrite)
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true}, nil)
	s.expect(fabric.EventEstablished)
	sge := fabric.SGE{Addr: addressOf(mem), Length: large, LKey: mr.LKey()}
	_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpWrite, NumSGE: 1}}, []fabric.SGE{sge})
	assert.NilError(t, err)
	time.Sleep(20 * time.Millisecond) // in which the sockets fill
	assert.NilError(t, s.conn.Disconnect())
	n, err := io.Copy(io.Discard, p)
	assert.NilError(t, err) // within patience
	assert.Assert(t, n < large, n)
	p.Close()
	s.expect(fabric.EventDisconnected)
	assert.NilError(t, mr.Close())
}

// TestNothingAfterTerminate: frames after a peer's terminate are not executed, even while requests
// of this end are in flight.
func TestNothingAfterTerminate(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	sge := fabric.SGE{Addr: v.at(0), Length: 8, LKey: v.mr.LKey()}
	_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend, NumSGE: 1}}, []fabric.SGE{sge})
	assert.NilError(t, err)
	h, _ := p.read()
	assert.Equal(t, h.Op, iwarp.OpSend)
	before := bytes.Clone(v.room())
	stream := frame(iwarp.Header{Op: iwarp.OpTerminate, MSN: 1}, []byte{0x02, 0x07, 0, 0}, false)
	write := iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}
	p.bytes(append(stream, frame(write, []byte("behind"), false)...))
	p.terminated()
	p.Close()
	s.over()
	assert.DeepEqual(t, v.room(), before)
}

// TestTerminated: a peer's terminate says why it refuses a request of this end. That request fails
// with the status that fits. Without a request, the program hears of it as an event of the device.
func TestTerminated(t *testing.T) {
	v := newVictim(t)
	for _, c := range []struct {
		payload []byte
		fault   iwarp.Fault
		status  fabric.Status
	}{
		{[]byte{0x02, 0x07, 0, 0}, 0x0207, statusOf(0x0207)},
		{[]byte{0x01, 0x01, 0, 0}, 0x0101, fabric.StatusRemoteAccess},
		{[]byte{0x12, 0x02, 0, 0}, iwarp.FaultNoBuffer, fabric.StatusRNRExceeded},
		{[]byte{0x12, 0x02}, iwarp.FaultStream, fabric.StatusRemoteOp}, // less than a reason
	} {
		for _, requests := range []int{0, 1} {
			p, s := v.joined()
			for range requests {
				_, err := s.qp.PostSend([]fabric.SendWR{{ID: 99, Opcode: fabric.OpSend}}, nil)
				assert.NilError(t, err)
				h, _ := p.read()
				assert.Equal(t, h.Op, iwarp.OpSend)
			}
			p.write(iwarp.Header{Op: iwarp.OpTerminate, MSN: 1}, c.payload)
			if requests == 0 {
				select {
				case ev := <-v.reports:
					assert.Equal(t, ev.Kind, fabric.AsyncQPFatal)
					assert.Equal(t, ev.QP, s.qp)
					assert.ErrorIs(t, ev.Err, c.fault)
				case <-time.After(patience):
					t.Fatal("no report")
				}
			} else {
				var wcs [1]fabric.WC
				within(t, "the request does not fail", func() bool {
					n, err := v.cq.Poll(wcs[:], 1)
					assert.NilError(t, err)
					return n > 0 && wcs[0].ID == 99
				})
				assert.Equal(t, wcs[0].Status, c.status)
			}
			p.Close()
			s.over()
		}
	}
}

// TestAnswerWithoutPlace: the answer to a read whose memory is no longer registered fails the read,
// and changes nothing.
func TestAnswerWithoutPlace(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(8, fabric.LocalWrite)
	before := bytes.Clone(mem)
	p, s := v.joined()
	sge := fabric.SGE{Addr: addressOf(mem), Length: 8, LKey: mr.LKey()}
	_, err := s.qp.PostSend([]fabric.SendWR{{ID: 99, Opcode: fabric.OpRead, NumSGE: 1}}, []fabric.SGE{sge})
	assert.NilError(t, err)
	h, _ := p.read()
	assert.Equal(t, h.Op, iwarp.OpReadRequest)
	assert.NilError(t, mr.Close())
	p.write(iwarp.Header{Op: iwarp.OpReadResponse, Last: true, Key: h.SinkKey, Offset: h.SinkOffset}, []byte("answered"))
	var wcs [1]fabric.WC
	within(t, "the read does not complete", func() bool {
		n, err := v.cq.Poll(wcs[:], 1)
		assert.NilError(t, err)
		return n > 0 && wcs[0].ID == 99
	})
	assert.Equal(t, wcs[0].Status, fabric.StatusLocalProt)
	p.terminated()
	p.Close()
	s.over()
	assert.DeepEqual(t, mem, before)
}

// TestCloseCutsStreams: a device closes although a peer never ends its stream.
func TestCloseCutsStreams(t *testing.T) {
	var held net.Conn
	var bound *time.Timer
	t.Cleanup(func() { // after the victim's device has been closed
		bound.Stop()
		held.Close()
	})
	v := newVictim(t)
	var err error
	held, err = net.DialTimeout("tcp", v.listener.Addr().String(), patience)
	assert.NilError(t, err)
	p := &peer{Conn: held, t: t}
	p.connect(setup(0))
	s := v.session()
	p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true}, nil)
	s.expect(fabric.EventEstablished)
	bound = time.AfterFunc(patience, func() {
		t.Error("the device waits for a peer")
		held.Close()
	})
}

// TestManySources: if there are too many connections without a request, the oldest of all is
// closed, even if its own address has few.
func TestManySources(t *testing.T) {
	l := serve(t)
	accept := func() *net.TCPConn {
		c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
		assert.NilError(t, err)
		t.Cleanup(func() { c.Close() })
		a, err := l.AcceptTCP()
		assert.NilError(t, err)
		t.Cleanup(func() { a.Close() })
		return a
	}
	oldest, other, latest := accept(), accept(), accept()
	at := &listener{all: 5, ofSource: 4}
	at.admit(oldest)
	for len(at.halfOpen) < at.all { // not counted by address, as if each came from another address
		at.halfOpen = append(at.halfOpen, other)
	}
	for range 2 {
		at.admit(latest)
		assert.Equal(t, len(at.halfOpen), at.all)
		assert.Equal(t, at.halfOpen[at.all-1], latest)
	}
	_, err := oldest.Write([]byte("x"))
	assert.ErrorIs(t, err, net.ErrClosed)
	_, err = other.Write([]byte("x"))
	assert.ErrorIs(t, err, net.ErrClosed)
	_, err = latest.Write([]byte("x"))
	assert.NilError(t, err)
}

// TestRefusedFrameHoldsNothing: the refusal of a message waits for answers that the peer does not
// read. Meanwhile the message keeps no region from being deregistered. The connection ends when the
// peer is gone.
func TestRefusedFrameHoldsNothing(t *testing.T) {
	v := newVictim(t)
	requests := make(chan fabric.Request, 1)
	l, err := v.dev.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(t, err)
	defer l.Close()
	mem, source := v.region(large, fabric.RemoteRead)
	first, stays := v.region(8, fabric.LocalWrite)
	second, goes := v.region(8, fabric.LocalWrite)
	p := dial(t, l.Addr())
	request := setup(0)
	b, err := request.Append(nil)
	assert.NilError(t, err)
	p.bytes(b)
	s := &session{v: v, events: make(chan fabric.ConnEvent, 16)}
	s.qp, err = v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSend: 1, MaxRecv: 1,
		MaxSendSGE: 1, MaxRecvSGE: 2})
	assert.NilError(t, err)
	t.Cleanup(s.close)
	_, err = s.qp.PostRecv([]fabric.RecvWR{{NumSGE: 2}}, []fabric.SGE{
		{Addr: addressOf(first), Length: 8, LKey: stays.LKey()}, {Addr: addressOf(second), Length: 8, LKey: goes.LKey()}})
	assert.NilError(t, err)
	s.conn, err = (<-requests).Accept(s.qp, fabric.AcceptParams{ReadIn: readDepth},
		func(ev fabric.ConnEvent) { s.events <- ev })
	assert.NilError(t, err)
	p.reply()
	assert.NilError(t, goes.Close())
	p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 1, Length: large, Key: source.RKey(),
		Offset: addressOf(mem)}, nil)
	p.write(send(1, 0, true), make([]byte, 16))
	link := linkOf(s.qp.(*softnic.QP))
	within(t, "the message is not refused", link.stalled.Load)
	closed := make(chan error, 1)
	go func() { closed <- stays.Close() }()
	select {
	case err = <-closed:
		assert.NilError(t, err)
	case <-time.After(patience / 4):
		t.Error("a region is held while the peer reads nothing")
	}
	p.Close()
	s.over()
	assert.NilError(t, source.Close())
}
