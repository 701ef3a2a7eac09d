package tcpfabric

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
)

// TestHandshakeSize: a stranger whose handshake says that it is long gets no more memory than the
// limit: what it has sent is refused before the message is complete.
func TestHandshakeSize(t *testing.T) {
	config := tlstest.Mutual(tlstest.Identity("a"))
	v := newVictimWith(t, fabric.Options{TLS: config})
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	assert.NilError(t, err)
	defer listener.Close()
	refused := make(chan error)
	go func() {
		c, err := listener.AcceptTCP()
		if err == nil {
			_, err = v.dev.(*Device).encrypt(context.Background(), c, false, patience)
			c.Close()
		}
		refused <- err
	}()
	p := dial(t, addrOf(listener.Addr()))
	const record = 16 << 10
	hello := append([]byte{22, 3, 1, record >> 8, 0, 1, 0, 0xFF, 0}, make([]byte, record-4)...) // of 65,280 bytes
	binary.BigEndian.PutUint16(hello[3:], record)
	for range 2 { // 10 bytes more than the limit
		p.bytes(hello)
	}
	assert.ErrorIs(t, <-refused, errHandshake)
}

// deaf is a stream whose peer reads nothing and sends without end.
type deaf struct {
	net.Conn
	ended chan struct{}
}

func (d deaf) CloseWrite() error           { return nil }
func (d deaf) SetDeadline(time.Time) error { return nil }
func (d deaf) Read(b []byte) (int, error)  { return len(b), nil }
func (d deaf) Write([]byte) (int, error) {
	<-d.ended
	return 0, io.ErrClosedPipe
}

// stuck are the events of a link that takes nothing.
type stuck struct{ came chan struct{} }

func (s stuck) readable(bool) bool { s.came <- struct{}{}; return false }
func (stuck) rest()                {}
func (stuck) writable()            {}

// TestStreamBuffers: the socket of a stream, as with TLS, holds two buffers of what goes, if the
// peer does not read, and one of what comes.
func TestStreamBuffers(t *testing.T) {
	const size = 128 << 10
	d, on := deaf{ended: make(chan struct{})}, stuck{make(chan struct{})}
	s := newStreamSock(d, on)
	fill := func() (goes int) {
		for {
			n, err := s.write([][]byte{make([]byte, 50<<10)})
			if goes += n; err != nil {
				return goes
			}
		}
	}
	assert.Equal(t, fill(), size)
	go s.writes()
	within(t, "nothing is written", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lent == nil
	})
	assert.Equal(t, fill(), size)
	assert.Equal(t, fill(), 0)
	go s.reads()
	for _, n := range []int{idleRead, size} {
		<-on.came
		s.mu.Lock()
		assert.Equal(t, len(s.in), n)
		s.in, s.shutted = nil, n == size
		s.mu.Unlock()
		softnic.Ring(s.taken)
	}
	close(d.ended)
}

// secure does the handshake of TLS on the peer's end.
func (p *peer) secure(config *tls.Config) {
	over := tls.Client(p.Conn, config)
	assert.NilError(p.t, over.Handshake())
	p.Conn = over
}

// TestReset: a peer that resets its stream breaks the connection if a request is in flight, whose
// effect nobody knows. Otherwise it disconnects.
func TestReset(t *testing.T) {
	config := tlstest.Mutual(tlstest.Identity("a"))
	for name, o := range map[string]fabric.Options{"in the clear": {RNRRetry: 7, Retry: 7},
		"with TLS": {RNRRetry: 7, Retry: 7, TLS: config}} { // TLS has the sockets of other systems
		t.Run(name, func(t *testing.T) {
			v := newVictimWith(t, o)
			for _, own := range []int{0, extended} {
				for _, reads := range []bool{true, false} {
					p := v.dial()
					tcp := p.Conn.(*net.TCPConn)
					if o.TLS != nil {
						client := config.Clone()
						client.ServerName = "127.0.0.1"
						p.secure(client)
					}
					p.connect(setup(own))
					if own != 0 {
						p.read()
						p.write(hello, nil)
					}
					s := v.session()
					s.expect(fabric.EventEstablished)
					if reads {
						s.sends([]fabric.SendWR{{Opcode: fabric.OpRead}}, []uint32{8}, func() {})
						p.request()
					}
					assert.NilError(t, tcp.SetLinger(0))
					assert.NilError(t, tcp.Close())
					if !reads {
						s.expect(fabric.EventDisconnected)
						continue
					}
					s.expect(fabric.EventFailed)
					assert.DeepEqual(t, s.statuses(1), []fabric.Status{fabric.StatusRetryExceeded})
				}
			}
		})
	}
}
