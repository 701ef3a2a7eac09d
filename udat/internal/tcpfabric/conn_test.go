package tcpfabric

import (
	"io"
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
