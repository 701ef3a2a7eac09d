package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// certificate writes an authority's certificate to NAME.ca, and one that it has signed for a host
// or an IP address to NAME.pem, with its key in NAME.key.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: certificate NAME HOST")
	}
	write := func(ending, kind string, der []byte) {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+ending), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	ts.Check(err)
	write(".ca", "CERTIFICATE", der)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: root.NotAfter, DNSNames: []string{args[1]}}
	if ip := net.ParseIP(args[1]); ip != nil {
		leaf.DNSNames, leaf.IPAddresses = nil, []net.IP{ip}
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	der, err = x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, key)
	ts.Check(err)
	write(".pem", "CERTIFICATE", der)
	der, err = x509.MarshalPKCS8PrivateKey(own)
	ts.Check(err)
	write(".key", "PRIVATE KEY", der)
}
