package tcpfabric

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// encrypt does the handshake of TLS on a TCP connection within the limit, before the first byte of
// the set-up. Without the option TLS it returns the TCP connection.
func (d *Device) encrypt(ctx context.Context, tcp *net.TCPConn, active bool, limit time.Duration) (stream, error) {
	if d.Opts.TLS == nil {
		return tcp, nil
	}
	var c *tls.Conn
	if active {
		config := d.Opts.TLS
		if config.ServerName == "" && !config.InsecureSkipVerify {
			config = config.Clone()
			config.ServerName = addrOf(tcp.RemoteAddr()).Addr().WithZone("").String()
		}
		c = tls.Client(carrier{tcp}, config)
	} else {
		c = tls.Server(carrier{tcp}, d.Opts.TLS)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %v: %w", tcp.RemoteAddr(), err)
	}
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
