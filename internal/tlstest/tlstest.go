// Package tlstest makes TLS configurations for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Env is the environment variable that makes suites open the devices tcp with TLS.
const Env = "GODAT_TEST_TLS"

// Suite returns the configuration with which a suite opens the device, the same in this process and
// in its children. It returns nil if the device has no TLS, or the suite runs without.
func Suite(device string) *tls.Config {
	if os.Getenv(Env) == "" || !strings.HasPrefix(device, "tcp") {
		return nil
	}
	return suite()
}

var suite = sync.OnceValue(func() *tls.Config {
	identity := os.Getenv(Env)
	if !strings.HasPrefix(identity, "-----BEGIN") {
		identity = Identity("suite")
		os.Setenv(Env, identity)
	}
	return Mutual(identity)
})

// Identity returns a new key and a certificate with this common name, in PEM.
func Identity(name string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	var b strings.Builder
	must(pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	must(pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return b.String()
}

// Mutual returns a configuration for both ends of a connection on a loopback address. Each end
// shows the certificate of the identity, and accepts no peer with another one.
func Mutual(identity string) *tls.Config {
	own, err := tls.X509KeyPair([]byte(identity), []byte(identity))
	must(err)
	roots := x509.NewCertPool()
	roots.AddCert(own.Leaf)
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, ClientCAs: roots,
		ClientAuth: tls.RequireAndVerifyClientCert}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
