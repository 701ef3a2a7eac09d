package tcpfabric

import (
	"io"
	"net"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestEndOfStream: if the network no longer reaches the peer, the event is not a disconnect. If the
// peer's host says that the connection is gone, it is one. If the stream ends within a message, the
// event is a failure.
func TestEndOfStream(t *testing.T) {
	v := newVictim(t)
	for err, want := range map[error]fabric.ConnEventKind{
		nil: fabric.EventDisconnected, errMidFrame: fabric.EventFailed,
		io.ErrUnexpectedEOF: fabric.EventDisconnected, syscall.ECONNRESET: fabric.EventDisconnected,
		syscall.ETIMEDOUT: fabric.EventUnreachable, syscall.EHOSTUNREACH: fabric.EventUnreachable,
		syscall.ENETUNREACH: fabric.EventUnreachable,
	} {
		p := v.dial()
		p.connect(setup(0))
		s := v.session()
		s.expect(fabric.EventEstablished)
		l := linkOf(s.qp.(*softnic.QP))
		l.end.Store(&end{err})
		l.run()
		ev := s.next()
		assert.Equal(t, ev.Kind, want, "%v", err)
		assert.Equal(t, ev.Err, err)
		p.Close()
	}
}

// TestEndWithinMessage: if the stream of a peer of this library ends within a message, the event is
// a failure only if this end has a request in flight, which the peer may have refused.
func TestEndWithinMessage(t *testing.T) {
	v := newVictim(t)
	for posts, want := range []fabric.ConnEventKind{fabric.EventDisconnected, fabric.EventFailed} {
		p := v.dial()
		p.greet()
		p.write(hello, nil)
		s := v.session()
		s.expect(fabric.EventEstablished)
		for range posts {
			_, err := s.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend}}, nil)
			assert.NilError(t, err)
		}
		l := linkOf(s.qp.(*softnic.QP))
		l.end.Store(&end{errMidFrame})
		l.run()
		ev := s.next()
		assert.Equal(t, ev.Kind, want, "%d requests in flight", posts)
		assert.Equal(t, ev.Err, errMidFrame)
		p.Close()
	}
}

// brokenSock is a socket of which a write has got an error.
type brokenSock struct {
	socket
	err error
}

func (s brokenSock) broken() error { return s.err }

// TestEndAfterWrite: the error of the stream that only a write has got decides the event, if a read
// has found no more than an end.
func TestEndAfterWrite(t *testing.T) {
	v := newVictim(t)
	for _, c := range []struct {
		write, read error
		kind        fabric.ConnEventKind
		err         error
	}{
		{syscall.ETIMEDOUT, nil, fabric.EventUnreachable, syscall.ETIMEDOUT},
		{syscall.ETIMEDOUT, errMidFrame, fabric.EventUnreachable, syscall.ETIMEDOUT},
		{syscall.ECONNRESET, nil, fabric.EventFailed, syscall.ECONNRESET},
		{syscall.ECONNRESET, syscall.ETIMEDOUT, fabric.EventUnreachable, syscall.ETIMEDOUT},
		{syscall.EPIPE, nil, fabric.EventDisconnected, nil},
	} {
		p, s := v.joined()
		l := linkOf(s.qp.(*softnic.QP))
		l.inTurn(func() { l.wrapSocket(func(sock socket) socket { return brokenSock{sock, c.write} }) })
		s.sends([]fabric.SendWR{{Opcode: fabric.OpWrite}}, []uint32{8}, func() { l.end.Store(&end{c.read}) })
		ev := s.next()
		assert.Equal(t, ev.Kind, c.kind, "%v, %v", c.write, c.read)
		assert.Equal(t, ev.Err, c.err)
		p.Close()
	}
}

// TestResetOfWrite: if a write is the call that gets ECONNRESET, the connection is broken with that
// error, as if a read had got it.
func TestResetOfWrite(t *testing.T) {
	v := newVictim(t)
	p, s := v.joined()
	l := linkOf(s.qp.(*softnic.QP))
	l.qp.In.Lock() // nobody reads
	assert.NilError(t, p.Conn.(*net.TCPConn).SetLinger(0))
	assert.NilError(t, p.Close())
	s.sends([]fabric.SendWR{{Opcode: fabric.OpWrite}}, []uint32{8}, func() {})
	l.qp.In.Unlock()
	ev := s.next()
	assert.Equal(t, ev.Kind, fabric.EventFailed)
	assert.ErrorIs(t, ev.Err, syscall.ECONNRESET)
}
