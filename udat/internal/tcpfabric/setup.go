package tcpfabric

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
)

// maxPrivate is the most private data of a request and of a reply, in bytes. maxReject is the most
// private data of a reject. They are soft-iWARP's limits, because an initiator does not know
// whether soft-iWARP will answer.
const (
	maxPrivate = iwarp.MaxPrivateKernel
	maxReject  = maxPrivate - len(rejectMarker)
)

// rejectMarker begins the private data of a reject by the peer's program, if one of the devices is
// not of this fabric. OpenFabrics DAPL sends the marker, and so does this library on soft-iWARP. A
// reject without the marker comes from the peer's library, or from a program that uses neither
// library.
const rejectMarker = "\x02\x00\x02\x00"

// A call of rejected returns the event for a reply that rejects the request.
func rejected(reply *iwarp.Setup) *fabric.ConnEvent {
	data, marked := bytes.CutPrefix(reply.Private, []byte(rejectMarker))
	switch {
	case reply.Extended && !reply.Busy:
		return &fabric.ConnEvent{Kind: fabric.EventPeerRejected, Private: reply.Private}
	case marked && !reply.Extended:
		return &fabric.ConnEvent{Kind: fabric.EventPeerRejected, Private: data}
	}
	return &fabric.ConnEvent{Kind: fabric.EventRejected, Private: reply.Private, Err: errRejected}
}

var errRejected = fmt.Errorf("the peer refuses the connection, or the listener's queue is full: %w", syscall.EAGAIN)

// Bounds of the set-up.
const (
	dialLimit    = 10 * time.Second // until TCP is connected, unless the options say otherwise
	requestLimit = 10 * time.Second // until the request has come
	replyLimit   = 64 * time.Second // until the peer's program has answered
	writeLimit   = 2 * time.Second  // until the socket has room for a frame of the set-up
)

// readSetup reads a request or a reply, and no byte after it.
func readSetup(c stream, reply bool, limit time.Duration) (iwarp.Setup, error) {
	c.SetReadDeadline(time.Now().Add(limit))
	frame := make([]byte, iwarp.SetupHeaderSize, iwarp.MaxSetupSize)
	if _, err := io.ReadFull(c, frame); err != nil {
		return iwarp.Setup{}, err
	}
	n, err := iwarp.SetupSize(frame, reply)
	if err != nil {
		return iwarp.Setup{}, err
	}
	if _, err := io.ReadFull(c, frame[len(frame):n]); err != nil {
		return iwarp.Setup{}, err
	}
	c.SetReadDeadline(time.Time{})
	return iwarp.ParseSetup(frame[:n], reply)
}

// writeSetup writes a request, or a reply that rejects.
func writeSetup(c stream, s *iwarp.Setup) error {
	frame, err := s.Append(nil)
	if err != nil {
		return err
	}
	c.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err = c.Write(frame)
	return err
}

// writeTerminate ends a set-up that has succeeded for the peer.
func writeTerminate(c stream, crc bool, reason iwarp.Fault) {
	var b [iwarp.MaxHeader + iwarp.MaxTerminate + iwarp.MaxTrailer]byte
	var payload [iwarp.MaxTerminate]byte
	n := iwarp.PutTerminate(payload[:], reason, nil)
	h := iwarp.Header{Op: iwarp.OpTerminate, MSN: 1, Payload: n}
	end := h.Put(b[:])
	end += copy(b[end:], payload[:n])
	end += iwarp.PutTrailer(b[end:], end-lengthSize, iwarp.Checksum(0, b[:end]), crc)
	c.SetWriteDeadline(time.Now().Add(writeLimit))
	c.Write(b[:end]) // an error means that the peer has gone
}

// wantsCRC reports whether this end asks for checksums. If no option decides that, this end asks
// for checksums only if the bytes may leave this host without TLS.
func (d *Device) wantsCRC(c stream) bool {
	if on := d.Opts.Checksums; on != nil {
		return *on
	}
	return leaves(c) && c == stream(tcpOf(c)) // TLS finds every change
}

// A call of leaves reports whether the bytes that are sent on the connection may leave this host.
func leaves(c stream) bool {
	return between(addrOf(c.LocalAddr()).Addr(), addrOf(c.RemoteAddr()).Addr())
}

// A call of between reports whether bytes that are sent from one address to another may leave this
// host. They may if the addresses differ and the remote address is no loopback address. The call
// does not check whether this host has both addresses.
func between(local, remote netip.Addr) bool { return !remote.IsLoopback() && local != remote }

func addrOf(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// noPath is the segment size, in bytes, that is assumed if the system does not report TCP's segment
// size.
const noPath = 1448

// keepAlive returns the keep-alive, which ends an idle connection whose peer's host does not answer
// the first probe and the three after it.
func (d *Device) keepAlive() net.KeepAliveConfig {
	every := d.Opts.KeepAlive
	return net.KeepAliveConfig{Enable: every > 0, Idle: every, Interval: min(every, d.userTimeout()/4), Count: 3}
}

// keep sets the keep-alive, unless watchesPeers, and returns TCP's segment size. If the connection
// is within this host, keep also sets its congestion control.
func (d *Device) keep(c stream) (segment int) {
	tcp := tcpOf(c)
	if !watchesPeers {
		tcp.SetKeepAliveConfig(d.keepAlive())
	}
	if !leaves(c) {
		unpace(tcp)
	}
	if segment = segmentSize(tcp); segment <= 0 {
		segment = noPath
	}
	return segment
}

// encrypt does the handshake of TLS on a TCP connection within the limit, before the first byte of
// the set-up. Without the option TLS it returns the TCP connection.
func (d *Device) encrypt(ctx context.Context, tcp *net.TCPConn, active bool, limit time.Duration) (stream, error) {
	if d.Opts.TLS == nil {
		return tcp, nil
	}
	under, config := &carrier{tcp, maxHandshake}, d.Opts.TLS
	c := tls.Server(under, config)
	if active {
		if config.ServerName == "" && !config.InsecureSkipVerify {
			config = config.Clone()
			config.ServerName = addrOf(tcp.RemoteAddr()).Addr().WithZone("").String()
		}
		c = tls.Client(under, config)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %v: %w", tcp.RemoteAddr(), err)
	}
	under.left = math.MaxInt
	return c, nil
}

// canServe returns an error if a listener has no certificate to show.
func canServe(config *tls.Config) error {
	if config != nil && len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return fmt.Errorf("%w: to listen with TLS the configuration needs a certificate: set Certificates or "+
			"GetCertificate", fabric.ErrNotSupported)
	}
	return nil
}

// certificates returns the certificates that the peer has shown, its own first. Without TLS, or if
// the peer has shown none, it returns nil.
func certificates(c stream) []*x509.Certificate {
	if over, ok := c.(*tls.Conn); ok {
		return over.ConnectionState().PeerCertificates
	}
	return nil
}
