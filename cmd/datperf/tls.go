package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// tlsFlags are the flags of TLS for the connections that are measured, on the device tcp.
type tlsFlags struct{ cert, key, ca string }

func (t *tlsFlags) register(f *pflag.FlagSet) {
	f.StringVar(&t.cert, "tls-cert", "", "device tcp: measure over TLS at both ends, with the certificate in this `file` "+
		"(PEM); --tls-key and --tls-ca are needed too")
	f.StringVar(&t.key, "tls-key", "", "`file` with the key of --tls-cert (PEM)")
	f.StringVar(&t.ca, "tls-ca", "", "`file` with the authorities that may have signed the peer's certificate (PEM)")
}

// config returns the configuration for both sides of a connection, or nil without the flags. The
// certificate of the end that listens must be for the host name, or for its IP address if host is
// empty.
func (t *tlsFlags) config(host string) (*tls.Config, error) {
	switch {
	case *t == tlsFlags{}:
		return nil, nil
	case t.cert == "" || t.key == "" || t.ca == "":
		return nil, usagef("--tls-cert, --tls-key and --tls-ca: all three are needed, because both ends show a certificate")
	}
	own, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	text, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-ca %s: there is no certificate in it (PEM)", t.ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: host, ClientCAs: roots,
		ClientAuth: tls.RequireAndVerifyClientCert}, nil
}
