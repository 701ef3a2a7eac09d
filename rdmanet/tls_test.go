package rdmanet_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
)

// acceptAll accepts connections and sends them on the channel, which is closed with the listener.
func acceptAll(l net.Listener) <-chan net.Conn {
	accepted := make(chan net.Conn, 4)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	return accepted
}

// TestTLSPeer: each end of a connection over TLS knows the other's certificate, and the stream and
// the regions work over it. The name that is dialed must be in the certificate, for each
// connection.
func TestTLSPeer(t *testing.T) {
	config := tlstest.Mutual(tlstest.Identity("node 7"))
	l, err := (&rdmanet.ListenConfig{Device: "tcp:127.0.0.1", TLS: config}).Listen(t.Context(), "rdma", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	accepted := acceptAll(l)
	_, port, err := net.SplitHostPort(l.Addr().String())
	assert.NilError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "127.0.0.1"} {
		d := rdmanet.Dialer{Device: "tcp:127.0.0.1", TLS: config}
		a, err := d.Dial(t.Context(), "rdma", net.JoinHostPort(host, port))
		assert.NilError(t, err, host)
		b := (<-accepted).(*rdmanet.Conn)
		for _, c := range []*rdmanet.Conn{a, b} {
			shown := c.PeerCertificates()
			assert.Equal(t, len(shown), 1)
			assert.Equal(t, shown[0].Subject.CommonName, "node 7")
		}
		_, err = a.Write([]byte("by TLS"))
		assert.NilError(t, err)
		got := make([]byte, 6)
		_, err = io.ReadFull(b, got)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "by TLS")
		assert.NilError(t, errors.Join(a.Close(), b.Close()))
	}
	other := config.Clone()
	other.ServerName = "elsewhere"
	d := rdmanet.Dialer{Device: "tcp:127.0.0.1", TLS: other}
	_, err = d.Dial(t.Context(), "rdma", net.JoinHostPort("localhost", port))
	assert.ErrorContains(t, err, "elsewhere")
	_, err = (&rdmanet.Dialer{Device: "tcp:127.0.0.1"}).Dial(t.Context(), "rdma", net.JoinHostPort("localhost", port))
	assert.Assert(t, err != nil, "a connection without TLS")
}

// TestTLSElsewhere: a device without TLS refuses the setting at both ends. Nothing is sent in the
// clear because TCP is used instead.
func TestTLSElsewhere(t *testing.T) {
	config := tlstest.Mutual(tlstest.Identity("both"))
	_, err := (&rdmanet.ListenConfig{Device: "mem0", TLS: config}).Listen(t.Context(), "rdma", ":0")
	assert.ErrorContains(t, err, "TLS")
	_, err = (&rdmanet.Dialer{Device: "mem0", TLS: config}).Dial(t.Context(), "rdma", ":1")
	assert.ErrorContains(t, err, "TLS")

	instead := func(error) {}
	l, err := (&rdmanet.ListenConfig{TLS: config, Fallback: instead}).ListenNet(t.Context(), "rdma", "127.0.0.1:0")
	if err != nil { // this host has an RDMA device, which refuses too
		assert.ErrorContains(t, err, "TLS")
		return
	}
	defer l.Close()
	shaken := make(chan error, 1)
	go func() {
		c := <-acceptAll(l)
		shaken <- c.(*tls.Conn).Handshake()
		c.Close()
	}()
	d := rdmanet.Dialer{TLS: config, Fallback: instead}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	assert.NilError(t, err)
	defer c.Close()
	assert.NilError(t, <-shaken)
	_, encrypted := c.(*tls.Conn)
	assert.Assert(t, encrypted)
}
