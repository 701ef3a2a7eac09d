package tcpfabric

import (
	"errors"
	"math"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// TestForeignSendsNothing: an end that has accepted may send even if the peer has sent nothing, as
// programs on soft-iWARP expect. But if a peer of RFC 6581 announces its first frame, this end
// waits for that frame.
func TestForeignSendsNothing(t *testing.T) {
	v := newVictim(t)
	for _, peerToPeer := range []bool{false, true} {
		p := v.dial()
		request := setup(0)
		request.PeerToPeer, request.ReadyWrite = peerToPeer, peerToPeer
		reply := p.connect(request)
		assert.Equal(t, reply.PeerToPeer, peerToPeer)
		s := v.session()
		if peerToPeer {
			p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true}, nil)
		}
		s.expect(fabric.EventEstablished)
		sge := fabric.SGE{Addr: v.at(0), Length: 8, LKey: v.mr.LKey()}
		_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend, Flags: fabric.Signaled, NumSGE: 1}},
			[]fabric.SGE{sge})
		assert.NilError(t, err)
		h, payload := p.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		assert.DeepEqual(t, payload, v.room()[:8])
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
}

// TestForeignRejected: a peer that is not of this library gets the private data of a reject after
// the marker of DAPL, in the form of its request.
func TestForeignRejected(t *testing.T) {
	dev := openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7}, nil)
	byConsumer := make(chan bool, 1)
	l, err := dev.Listen(0, nil, func(r fabric.Request) {
		if err := r.Reject([]byte("no"), <-byConsumer); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, l.Close()) })
	for _, c := range []struct {
		request    iwarp.Setup
		byConsumer bool
		want       string
	}{
		{iwarp.Setup{Revision: 2, Enhanced: true}, true, rejectMarker + "no"},
		{iwarp.Setup{Revision: 2, Enhanced: true}, false, "no"},
		{iwarp.Setup{Revision: 2}, true, rejectMarker + "no"},
		{iwarp.Setup{Revision: 1}, true, rejectMarker + "no"},
		{iwarp.Setup{Revision: 2, Enhanced: true, Extended: true}, true, "no"},
	} {
		byConsumer <- c.byConsumer
		p := dial(t, l.Addr())
		reply := p.connect(c.request)
		assert.Assert(t, reply.Reject)
		assert.Equal(t, string(reply.Private), c.want)
		assert.Equal(t, reply.Enhanced, c.request.Enhanced)
		assert.Equal(t, reply.Revision, c.request.Revision)
		p.Close()
	}
}

// TestForeignReplies: the reply of a peer that is not of this library leads to an event. If the
// peer sends something else instead, the attempt still ends.
func TestForeignReplies(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	reply := func(change func(*iwarp.Setup)) []byte {
		s := iwarp.Setup{Reply: true, Revision: 2, Enhanced: true, In: 1, Out: 1}
		change(&s)
		b, err := s.Append(nil)
		assert.NilError(t, err)
		return b
	}
	rejects := func(data string) []byte {
		return reply(func(s *iwarp.Setup) { s.Reject, s.Private = true, []byte(data) })
	}
	for name, c := range map[string]struct {
		reply []byte
		kind  fabric.ConnEventKind
		data  string
	}{
		"accepts": {reply(func(s *iwarp.Setup) { s.Private = []byte("yes") }),
			fabric.EventEstablished, "yes"},
		"a program rejects":          {rejects(rejectMarker + "no"), fabric.EventPeerRejected, "no"},
		"a program of verbs rejects": {rejects("no"), fabric.EventRejected, "no"},
		"rejects without data":       {rejects(""), fabric.EventRejected, ""},
		"wants markers":              {reply(func(s *iwarp.Setup) { s.Markers = true }), fabric.EventFailed, ""},
		"nothing":                    {nil, fabric.EventRejected, ""},
		"half a reply":               {rejects("no")[:21], fabric.EventRejected, ""},
		"another protocol":           {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), fabric.EventRejected, ""},
		"what it was asked":          {[]byte("MPA ID Req Frame\x14\x02\x00\x04\x00\x01\x00\x01"), fabric.EventRejected, ""},
		"depths that are not there":  {[]byte("MPA ID Rep Frame\x10\x02\x00\x02\x00\x01"), fabric.EventRejected, ""},
		"the extension's bits and all": {[]byte("MPA ID Rep Frame\x1f\x02\x00\x04\x00\x01\x00\x01"),
			fabric.EventEstablished, ""},
	} {
		t.Run(name, func(t *testing.T) {
			qp, err := v.dev.CreateQP(fabric.QPInit{PD: v.pd, SendCQ: v.cq, RecvCQ: v.cq, MaxSend: 1, MaxRecv: 1,
				MaxSendSGE: 1, MaxRecvSGE: 1})
			assert.NilError(t, err)
			events := make(chan fabric.ConnEvent, 4)
			conn, err := v.dev.Connect(qp, fabric.ConnectParams{Remote: addrOf(l.Addr()), Private: []byte("hi"), ReadIn: 1,
				ReadOut: 1}, func(ev fabric.ConnEvent) { events <- ev })
			assert.NilError(t, err)
			p, request := server{l.TCPListener, t}.request()
			assert.Equal(t, string(request.Private), "hi")
			p.bytes(c.reply)
			if c.kind != fabric.EventEstablished {
				p.Close()
			}
			s := &session{v: v, events: events}
			ev := s.next()
			assert.Equal(t, ev.Kind, c.kind, "%v", ev.Err)
			assert.Equal(t, string(ev.Private), c.data)
			p.Close()
			assert.NilError(t, conn.Close())
			assert.NilError(t, qp.Close())
		})
	}
}

// TestForeignAccepts: if a peer that is not of this library has accepted, and does not announce its
// first frame, this end sends at once. It posts nothing that only ends of this library have.
func TestForeignAccepts(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	for range 2 {
		i := v.joins(addrOf(l.Addr()))
		p, _ := l.request()
		p.replies(iwarp.Setup{Revision: 2, Enhanced: true, In: 1, Out: 1})
		ev := nextOf(t, i.events)
		assert.Equal(t, ev.Kind, fabric.EventEstablished, "%v", ev.Err)
		for _, op := range []fabric.Opcode{fabric.OpWriteImm, fabric.OpSendImm, fabric.OpCmpSwap, fabric.OpFetchAdd} {
			_, err := i.qp.PostSend([]fabric.SendWR{{Opcode: op}}, nil)
			assert.ErrorIs(t, err, fabric.ErrNotSupported)
			assert.ErrorIs(t, err, errForeign)
		}
		i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8)
		i.ends(1)
		h, payload := p.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		assert.DeepEqual(t, payload, i.mem[:8])
		p.Close()
		i.close()
	}
}

// TestForeignCompletes: a request to a peer that is not of this library completes when all of it
// has been written, and not before, however much the connection has written already. No piece of it
// is empty.
func TestForeignCompletes(t *testing.T) {
	v := newVictim(t)
	mem, mr := v.region(large, fabric.LocalWrite)
	for start, options := range map[uint64]int{0: 0, 1: withCRC, 1 << 32: 0} {
		p := v.dial()
		p.connect(setup(options))
		s := v.session()
		s.expect(fabric.EventEstablished)
		l := linkOf(s.qp.(*softnic.QP))
		within(t, "this end does not send", l.heard.greeted.Load)
		var sock *stalls
		l.inTurn(func() {
			l.tx.queued, l.tx.written = l.tx.queued+start, l.tx.written+start
			sock = l.stalling()
			sock.left.Store(math.MaxInt64)
		})
		sge := fabric.SGE{Addr: addressOf(mem), Length: large, LKey: mr.LKey()}
		_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpWrite, NumSGE: 1}}, []fabric.SGE{sge})
		assert.NilError(t, err)
		got := 0
		for last := false; !last; {
			assert.Assert(t, got > 0 || l.qp.Sends().Len() == 1) // the rest does not fit into TCP's buffers
			h, payload := p.read()
			assert.Assert(t, len(payload) > 0)
			got, last = got+len(payload), h.Last
		}
		assert.Equal(t, got, large)
		within(t, "it does not complete", func() bool { return l.qp.Sends().Len() == 0 })
		sock.left.Store(0)
		sge.Length = 8
		_, err = s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpWrite, NumSGE: 1}}, []fabric.SGE{sge})
		assert.NilError(t, err)
		l.inTurn(func() { assert.Equal(t, l.qp.Sends().Len(), 1) })
		sock.left.Store(math.MaxInt64)
		l.writable()
		within(t, "the short one does not complete", func() bool { return l.qp.Sends().Len() == 0 })
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
	assert.NilError(t, mr.Close())
}

// TestForeignInvalidates: a peer that is not of this library may invalidate a window's key, once,
// and the connection goes on.
func TestForeignInvalidates(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	p.connect(setup(0))
	s := v.session()
	s.expect(fabric.EventEstablished)
	mw, err := v.pd.AllocMW()
	assert.NilError(t, err)
	mem, mr := v.region(8, fabric.LocalWrite|fabric.WindowBind)
	defer func() { assert.NilError(t, errors.Join(mw.Close(), mr.Close())) }()
	key, err := s.qp.Bind(mw, fabric.BindWR{MR: mr, Addr: addressOf(mem), Length: 8, Access: fabric.RemoteWrite})
	assert.NilError(t, err)
	l := linkOf(s.qp.(*softnic.QP))
	within(t, "the window is not bound", func() bool { return l.qp.Sends().Len() == 0 })
	for n, op := range []iwarp.Opcode{iwarp.OpSendInv, iwarp.OpSend} {
		p.write(iwarp.Header{Op: op, Last: true, MSN: uint32(n) + 1, Word: key}, []byte("some"))
		var wcs [1]fabric.WC
		within(t, "the send does not come", func() bool {
			got, err := v.cq.Poll(wcs[:], 1)
			assert.NilError(t, err)
			return got > 0 && wcs[0].Opcode == fabric.OpWCRecv
		})
		assert.Equal(t, wcs[0].Status, fabric.StatusSuccess)
		assert.Equal(t, wcs[0].Flags&fabric.WCWithInv != 0, op == iwarp.OpSendInv)
	}
	p.write(iwarp.Header{Op: iwarp.OpSendInv, Last: true, MSN: 3, Word: key}, []byte("some"))
	p.terminatedWith(iwarp.FaultInvalidate)
	p.Close()
	s.expect(fabric.EventDisconnected)
}
