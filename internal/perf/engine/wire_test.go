package engine

import (
	"net"
	"sync"
	"testing"
)

// wire is a network in memory. In a bubble of testing/synctest a goroutine that waits for it lets
// the time pass; one that waits for the kernel's TCP does not.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newWire() *wire {
	w := &wire{conns: make(chan net.Conn), closed: make(chan struct{})}
	w.close = sync.OnceFunc(func() { close(w.closed) })
	return w
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case conn := <-w.conns:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error { w.close(); return nil }

func (w *wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// dial connects to the listener.
func (w *wire) dial(t *testing.T) net.Conn {
	client, server := w.cable()
	t.Cleanup(func() { client.Close() })
	select {
	case w.conns <- server:
	case <-w.closed:
		t.Fatal("the server no longer listens")
	}
	return client
}

// cable returns the ends of a connection that carries what is written before the peer reads it, as
// TCP does.
func (w *wire) cable() (client, server net.Conn) {
	client, a := net.Pipe()
	b, server := net.Pipe()
	carry := func(to, from net.Conn) {
		written := make(chan []byte, 10000)
		go func() {
			defer close(written)
			for {
				b := make([]byte, 4096)
				n, err := from.Read(b)
				if err != nil {
					return
				}
				written <- b[:n]
			}
		}()
		go func() {
			defer to.Close()
			for b := range written {
				if _, err := to.Write(b); err != nil {
					break
				}
			}
			from.Close()
			for range written {
			}
		}()
	}
	carry(a, b)
	carry(b, a)
	return addressed{client, w.Addr()}, addressed{server, w.Addr()}
}

// addressed is a connection that has the addresses of TCP.
type addressed struct {
	net.Conn
	addr net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.addr }
func (a addressed) RemoteAddr() net.Addr { return a.addr }
