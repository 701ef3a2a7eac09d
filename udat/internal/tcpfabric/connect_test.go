package tcpfabric

import (
	"io"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// server is a TCP listener whose connections the test answers itself.
type server struct {
	*net.TCPListener
	t *testing.T
}

func serve(t *testing.T) server {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	return server{l, t}
}

// request accepts a connection and reads its request.
func (l server) request() (*peer, iwarp.Setup) {
	l.t.Helper()
	assert.NilError(l.t, l.SetDeadline(time.Now().Add(patience)))
	c, err := l.AcceptTCP()
	assert.NilError(l.t, err)
	l.t.Cleanup(func() { c.Close() })
	request, err := readSetup(c, false, patience)
	assert.NilError(l.t, err)
	assert.NilError(l.t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{Conn: c, t: l.t}, request
}

func (p *peer) replies(s iwarp.Setup) {
	p.t.Helper()
	s.Reply = true
	assert.NilError(p.t, writeSetup(p.Conn.(*net.TCPConn), &s))
	assert.NilError(p.t, p.SetDeadline(time.Now().Add(patience)))
}

// isClosed waits until the other end has closed the connection.
func (p *peer) isClosed() {
	p.t.Helper()
	_, err := io.Copy(io.Discard, p)
	if ne, ok := err.(net.Error); ok {
		assert.Assert(p.t, !ne.Timeout(), "the connection stays open")
	}
}

// TestRequest: a request offers the depths of the program and revision 2, and a ready message.
// After the reply both ends use the smaller depths, and the first frame is a ready message if the
// peer asks for one that this end can send.
func TestRequest(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	for _, c := range []struct {
		reply   iwarp.Setup
		in, out int
		ready   bool
	}{
		{iwarp.Setup{Revision: 2, Enhanced: true, In: 1, Out: 2}, 2, 1, false},
		{iwarp.Setup{Revision: 2, Enhanced: true, In: 9, Out: readDepth}, readDepth, readDepth, false},
		{iwarp.Setup{Revision: 2, Enhanced: true, In: 2, Out: 0, PeerToPeer: true, ReadyWrite: true}, 0, 2, true},
		{iwarp.Setup{Revision: 2, Enhanced: true, In: 2, Out: 1, ReadyWrite: true}, 1, 2, false},
		{iwarp.Setup{Revision: 2}, readDepth, readDepth, false},
	} {
		i := v.joins(addrOf(l.Addr()))
		p, request := l.request()
		assert.DeepEqual(t, request, iwarp.Setup{Revision: 2, Extended: true, Enhanced: true, In: readDepth, Out: readDepth,
			PeerToPeer: true, ReadyWrite: true, Private: []byte("recorded")})
		p.replies(c.reply)
		assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventEstablished)
		i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8)
		i.ends(1)
		in, out := i.qp.(*softnic.QP).ReadDepths()
		assert.Equal(t, in, c.in)
		assert.Equal(t, out, c.out)
		h, payload := p.read()
		if c.ready {
			assert.DeepEqual(t, h, iwarp.Header{Op: iwarp.OpWrite, Last: true})
			h, payload = p.read()
		}
		assert.Equal(t, h.Op, iwarp.OpSend)
		assert.DeepEqual(t, payload, i.mem[:8])
		p.Close()
		i.close()
	}
}

// TestReplyChooses: a reply that chooses what the request has not offered gets a terminate that
// says so. One of an older version of this library is an error that names it.
func TestReplyChooses(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	for _, c := range []struct {
		reply iwarp.Setup
		want  iwarp.Fault
		err   error
	}{
		{iwarp.Setup{Revision: 2, Enhanced: true, PeerToPeer: true, ReadyRead: true}, iwarp.FaultNoReady, errReady},
		{iwarp.Setup{Revision: 2, Enhanced: true, PeerToPeer: true, ReadyRead: true, ReadyWrite: true, CRC: true},
			iwarp.FaultNoReady, errReady},
		{iwarp.Setup{Revision: 2, Enhanced: true, PeerToPeer: true, Extended: true}, iwarp.FaultNoReady, errReady},
		{iwarp.Setup{Revision: 2, Enhanced: true, Out: readDepth + 1}, iwarp.FaultReadDepth, errDepth},
		{iwarp.Setup{Revision: 2, Enhanced: true, Markers: true}, iwarp.FaultMarker, errMarkers},
	} {
		i := v.joins(addrOf(l.Addr()))
		p, _ := l.request()
		p.crc = c.reply.CRC
		p.replies(c.reply)
		ev := nextOf(t, i.events)
		assert.Equal(t, ev.Kind, fabric.EventFailed)
		assert.ErrorIs(t, ev.Err, c.err)
		p.terminatedWith(c.want)
		i.close()
	}
	for name, flags := range map[string]byte{"it accepts": 0x12, "it rejects": 0x32, "its library rejects": 0x33} {
		i := v.joins(addrOf(l.Addr()))
		p, _ := l.request()
		p.bytes(append([]byte("MPA ID Rep Frame"), flags, 2, 0, 4, 0, 0, 0, 0))
		ev := nextOf(t, i.events)
		assert.Equal(t, ev.Kind, fabric.EventRejected, name)
		assert.ErrorIs(t, ev.Err, errOutdated, name)
		p.isClosed()
		i.close()
	}
}

// TestOutdatedRequest: a request of an older version of this library is rejected, with the reason.
func TestOutdatedRequest(t *testing.T) {
	v := newVictim(t)
	p := v.dial()
	p.bytes(append([]byte("MPA ID Req Frame"), 0x14, 2, 0, 4, 0x80, 0, 0x80, 0))
	reply := p.reply()
	assert.Assert(t, reply.Reject && !reply.Extended)
	assert.Equal(t, string(reply.Private), errOutdated.Error())
	v.serves()
}

// TestRevision1: a peer that answers with revision 1 gets a new connection and a request of that
// revision, once.
func TestRevision1(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	for _, rejects := range []bool{false, true} {
		i := v.joins(addrOf(l.Addr()))
		p, request := l.request()
		assert.Equal(t, request.Revision, uint8(2))
		p.replies(iwarp.Setup{Revision: 1, Reject: true})
		p.isClosed()
		p, request = l.request()
		assert.DeepEqual(t, request, iwarp.Setup{Revision: 1, Extended: true, Private: []byte("recorded")})
		p.replies(iwarp.Setup{Revision: 1, Reject: rejects})
		if rejects {
			assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventRejected)
			p.isClosed()
			i.close()
			continue
		}
		assert.Equal(t, nextOf(t, i.events).Kind, fabric.EventEstablished)
		i.post(fabric.SendWR{Opcode: fabric.OpSend}, 8)
		i.ends(1)
		h, _ := p.read()
		assert.Equal(t, h.Op, iwarp.OpSend)
		p.Close()
		i.close()
	}
}

// TestGivesUpWhileConnecting: if the program closes the connection, or its queue pair fails, while
// the peer has not answered, the TCP connection is closed, and nothing of it is left.
func TestGivesUpWhileConnecting(t *testing.T) {
	v := newVictim(t)
	l := serve(t)
	none := func() bool {
		d := v.dev.(*Device)
		d.HW.Mu.Lock()
		defer d.HW.Mu.Unlock()
		return len(d.links) == 0
	}
	for n := range 50 { // Close meets each step of the set-up
		i := v.joins(addrOf(l.Addr()))
		p, _ := l.request()
		if n > 0 {
			assert.NilError(t, i.conn.Close())
		} else {
			assert.NilError(t, i.qp.SetError())
			p.replies(iwarp.Setup{Revision: 2, Enhanced: true, Extended: true, In: 1, Out: 1})
			ev := nextOf(t, i.events)
			assert.Equal(t, ev.Kind, fabric.EventFailed)
			assert.ErrorIs(t, ev.Err, fabric.ErrQPState)
			assert.Assert(t, !linkOf(i.qp.(*softnic.QP)).live.Load())
			assert.NilError(t, i.conn.Close())
		}
		p.isClosed()
		assert.Assert(t, none())
		assert.NilError(t, i.qp.Close())
		assert.NilError(t, i.mr.Close())
		assert.NilError(t, i.cq.Close())
	}
}
