package udat_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/udat"
)

const overTLS = "tcp:127.0.0.1"

func withTLS(config *tls.Config) setup { return setup{opts: []udat.Option{udat.WithTLS(config)}} }

// TestTLSPeer: each end knows the certificate of the other, in the request and on the endpoint, and
// no longer once the endpoint is unconnected.
func TestTLSPeer(t *testing.T) {
	noLeaks(t)
	config := tlstest.Mutual(tlstest.Identity("node 7"))
	a, b := newEnd(t, overTLS, withTLS(config)), newEnd(t, overTLS, withTLS(config))
	for range 2 {
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), listen(t, b).Qual(), patience, nil, 0, 0))
		request := expect(t, b.cr, udat.EventConnectionRequest)
		p, err := request.CR.Query()
		assert.NilError(t, err)
		assert.Equal(t, len(p.PeerCertificates), 1)
		assert.Equal(t, p.PeerCertificates[0].Subject.CommonName, "node 7")
		assert.NilError(t, request.CR.Accept(b.ep, nil))
		for _, e := range []*end{b, a} {
			expect(t, e.conn, udat.EventConnectionEstablished)
			p, err := e.ep.Query()
			assert.NilError(t, err)
			assert.Equal(t, len(p.PeerCertificates), 1)
			assert.Equal(t, p.PeerCertificates[0].Subject.CommonName, "node 7")
		}
		exchange(t, a, b, 8)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		for _, e := range []*end{a, b} {
			expect(t, e.conn, udat.EventConnectionDisconnected)
			assert.NilError(t, e.ep.Reset())
			p, err := e.ep.Query()
			assert.NilError(t, err)
			assert.Equal(t, len(p.PeerCertificates), 0)
		}
	}
}

// exchange sends n messages in each direction.
func exchange(t *testing.T, a, b *end, n int) {
	t.Helper()
	for i := range n {
		for _, d := range [][2]*end{{a, b}, {b, a}} {
			from, to := d[0], d[1]
			assert.NilError(t, to.ep.PostRecv(to.iov(0, 64), udat.Cookie(i), 0))
			assert.NilError(t, from.ep.PostSend(from.iov(0, 64), udat.Cookie(i), 0))
			completion(t, to.recv, udat.Cookie(i))
			completion(t, from.request, udat.Cookie(i))
		}
	}
}

// TestTLSRefused: no request reaches a program from a peer whose certificate it does not accept,
// from one without a certificate, or from one without TLS; and no peer without TLS, or with another
// certificate, becomes the acceptor of a connection. The connector learns why.
func TestTLSRefused(t *testing.T) {
	t.Setenv(tlsEnv, "")
	ours, others := tlstest.Mutual(tlstest.Identity("ours")), tlstest.Mutual(tlstest.Identity("others"))
	anonymous := ours.Clone()
	anonymous.Certificates = nil
	impostor := others.Clone() // accepts us, but has a certificate that we do not accept
	impostor.ClientAuth = tls.NoClientCert
	for name, row := range map[string]struct {
		active, passive setup
		want            string
	}{
		"the server has another certificate": {withTLS(ours), withTLS(impostor), "certificate signed by unknown authority"},
		"the client has another certificate": {withTLS(withoutVerify(others)), withTLS(ours), "remote error: tls"},
		"the client has no certificate":      {withTLS(anonymous), withTLS(ours), "certificate required"},
		"the client has no TLS":              {setup{}, withTLS(ours), "the set-up"},
		"the server has no TLS":              {withTLS(ours), setup{}, "TLS with 127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			a, b := newEnd(t, overTLS, row.active), newEnd(t, overTLS, row.passive)
			psp := listen(t, b)
			assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
			ev := expect(t, a.conn, udat.EventConnectionNonPeerRejected)
			assert.ErrorContains(t, ev.Err(), row.want)
			assert.NilError(t, psp.Free())
			_, err := b.cr.Dequeue()
			assert.ErrorIs(t, err, udat.ErrQueueEmpty)
		})
	}
}

func withoutVerify(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.InsecureSkipVerify = true
	return config
}

// TestTLSEach: not one message of a connection can be read between its ends, nor its private data.
func TestTLSEach(t *testing.T) {
	t.Setenv(tlsEnv, "")
	noLeaks(t)
	secret := []byte("not to be read between the ends")
	for _, encrypted := range []bool{false, true} {
		s := setup{}
		if encrypted {
			s = withTLS(tlstest.Mutual(tlstest.Identity("both")))
		}
		a, b := newEnd(t, overTLS, s), newEnd(t, overTLS, s)
		tap := newTap(t, netip.AddrPortFrom(b.ia.Addr(), uint16(listen(t, b).Qual())))
		assert.NilError(t, a.ep.Connect(b.ia.Addr(), udat.ConnQual(tap.port), patience, secret, 0, 0))
		request := expect(t, b.cr, udat.EventConnectionRequest)
		assert.NilError(t, request.CR.Accept(b.ep, secret))
		expect(t, b.conn, udat.EventConnectionEstablished)
		expect(t, a.conn, udat.EventConnectionEstablished)
		for _, e := range []*end{a, b} {
			for at := 0; at < endMemory; at += len(secret) {
				copy(e.mem.Bytes()[at:], secret)
			}
		}
		exchange(t, a, b, 3)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 4096), 9, b.mem.RMRTriplet(8192, 4096), 0))
		completion(t, a.request, 9)
		assert.NilError(t, a.ep.PostRDMARead(a.iov(4096, 4096), 10, b.mem.RMRTriplet(0, 4096), 0))
		completion(t, a.request, 10)
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		expect(t, b.conn, udat.EventConnectionDisconnected)
		seen := tap.seen()
		assert.Assert(t, len(seen) > 8192)
		assert.Equal(t, bytes.Contains(seen, secret[:16]), !encrypted)
	}
}

// tap passes on what two ends say, and keeps it.
type tap struct {
	port uint16
	mu   sync.Mutex
	said []byte
}

func newTap(t *testing.T, to netip.AddrPort) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	p := &tap{port: l.Addr().(*net.TCPAddr).AddrPort().Port()}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", to.String())
		if err != nil {
			c.Close()
			return
		}
		for _, d := range [][2]net.Conn{{c, s}, {s, c}} {
			go func() {
				io.Copy(io.MultiWriter(p, d[1]), d[0])
				d[1].(*net.TCPConn).CloseWrite()
			}()
		}
	}()
	return p
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, b...)
	return len(b), nil
}

func (p *tap) seen() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.said)
}

// TestTLSCut: a stream that ends without the farewell of TLS has been cut off by somebody between
// the ends, and the connection is broken.
func TestTLSCut(t *testing.T) {
	noLeaks(t)
	config := tlstest.Mutual(tlstest.Identity("both"))
	b := newEnd(t, overTLS, withTLS(config))
	a := newEnd(t, overTLS, withTLS(config))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	joined := make(chan [2]net.Conn, 1)
	qual := listen(t, b).Qual()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", netip.AddrPortFrom(b.ia.Addr(), uint16(qual)).String())
		if err != nil {
			return
		}
		go io.Copy(s, c)
		go io.Copy(c, s)
		joined <- [2]net.Conn{c, s}
	}()
	assert.NilError(t, a.ep.Connect(b.ia.Addr(), udat.ConnQual(l.Addr().(*net.TCPAddr).Port), patience, nil, 0, 0))
	request := expect(t, b.cr, udat.EventConnectionRequest)
	assert.NilError(t, request.CR.Accept(b.ep, nil))
	expect(t, b.conn, udat.EventConnectionEstablished)
	expect(t, a.conn, udat.EventConnectionEstablished)
	exchange(t, a, b, 1)
	for _, c := range <-joined {
		c.(*net.TCPConn).CloseWrite() // as an ordinary end of the stream
	}
	expect(t, a.conn, udat.EventConnectionBroken)
	expect(t, b.conn, udat.EventConnectionBroken)
}

// TestTLSArguments: what cannot be is refused at once, with the reason.
func TestTLSArguments(t *testing.T) {
	_, err := udat.Open("mem0", udat.WithTLS(new(tls.Config)))
	assert.ErrorIs(t, err, udat.ErrModelNotSupported)
	_, err = udat.Open("tcp", udat.WithTLS(nil))
	assert.ErrorIs(t, err, udat.ErrInvalidParameter)
	e := newEnd(t, overTLS, withTLS(new(tls.Config)))
	_, _, err = e.ia.CreatePSPAny(e.cr, udat.PSPConsumer)
	assert.Assert(t, err != nil && strings.Contains(err.Error(), "needs a certificate"), "%v", err)
}

// TestExposedLog: the log says once that an adapter listens on all addresses of the host without
// TLS, and nothing else.
func TestExposedLog(t *testing.T) {
	noLeaks(t)
	t.Setenv(tlsEnv, "") // the rows say which adapter has TLS
	config := tlstest.Mutual(tlstest.Identity("a"))
	for _, c := range []struct {
		device string
		opts   []udat.Option
		want   int
	}{{"tcp", nil, 1}, {overTLS, nil, 0}, {"tcp", []udat.Option{udat.WithTLS(config)}, 0}} {
		var log bytes.Buffer
		opts := append(c.opts, udat.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		e := newEnd(t, c.device, setup{opts: opts})
		listen(t, e)
		listen(t, e)
		assert.Equal(t, strings.Count(log.String(), "\n"), c.want, "%s", &log)
		assert.Equal(t, strings.Count(log.String(), "listens on all addresses of this host, without TLS"), c.want)
	}
}
