package engine

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// minSecret is the least length of a secret, in bytes. The secret must be random, because anyone
// who has connected once can then guess secrets offline.
const minSecret = 32

// Secure returns the TLS settings for both ends of a control connection that share a secret. Each
// end has a key that is derived from the secret, and by this key proves that it knows the secret.
// No certificate authority is trusted. TLS 1.3 then encrypts and authenticates the control
// connection. RDMA traffic is not protected.
//
// Secure ignores a newline (LF or CRLF) at the end of secret, if the part before the LF is at least
// minSecret bytes long. So one end may read the secret from a file that ends with a newline, and
// the other end from a file without one.
func Secure(secret []byte) (*tls.Config, error) {
	if len(secret) > minSecret {
		if text, ok := bytes.CutSuffix(secret, []byte("\n")); ok {
			secret = bytes.TrimSuffix(text, []byte("\r"))
		}
	}
	if len(secret) < minSecret {
		return nil, fmt.Errorf("the secret has %d bytes, it must have %d or more: openssl rand -hex 32", len(secret),
			minSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "datperf control connection 1", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	// The contents of the certificate do not matter, because the peer checks only its key.
	blank := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0)}
	cert, err := x509.CreateCertificate(nil, blank, blank, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection checks the key
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !key.Public().(ed25519.PublicKey).Equal(s.PeerCertificates[0].PublicKey) {
				return errOtherSecret
			}
			return nil
		},
	}, nil
}

var errOtherSecret = errors.New("the peer has another secret")

// secureTime is how long the TLS handshake may take.
const secureTime = silentTime

// secureClient performs the TLS handshake on a client's connection. If secret is nil, it returns
// conn.
func secureClient(ctx context.Context, conn net.Conn, secret *tls.Config) (net.Conn, error) {
	if secret == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secureTime)
	defer cancel()
	t := tls.Client(conn, secret)
	err := t.HandshakeContext(ctx)
	if err == nil {
		return t, nil
	}
	conn.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("nothing was heard from it for %v: it is frozen, or its host or the network is gone", secureTime)
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		err = errors.New("it uses no secret, or is not a datperf server")
	}
	return nil, fmt.Errorf("--secret: the server at %v: %w", conn.RemoteAddr(), err)
}
