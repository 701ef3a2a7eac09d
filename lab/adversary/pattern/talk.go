package pattern

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"time"
)

// Mode is what lies between TCP and the set-up, or in each frame: the target's argument.
type Mode string

// The modes.
const (
	Plain Mode = "none"
	Sums  Mode = "sums" // the target asks for checksums
	TLS   Mode = "tls"
)

// Modes are all of them.
var Modes = []Mode{Plain, Sums, TLS}

// Config returns what an end of TLS needs here: a certificate, and no doubts about the peer.
func Config() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		InsecureSkipVerify: true}, err
}

// Private returns the private data of a request of the session with this seed.
func Private(seed uint64) []byte { return binary.BigEndian.AppendUint64([]byte(prefix), seed) }

// SeedOf returns the seed in private data that Private has made.
func SeedOf(private []byte) (seed uint64, ok bool) {
	if len(private) != len(prefix)+8 || string(private[:len(prefix)]) != prefix {
		return 0, false
	}
	return binary.BigEndian.Uint64(private[len(prefix):]), true
}

const prefix = "adversary"

// Theme is what a session is mostly about: both ends know it by the seed.
type Theme uint64

// The themes.
const (
	Slow     Theme = iota // the target posts more than TCP takes, the adversary reads late
	Answers               // the target reads, its queue is short
	Receives              // the target's receives come late
	Remote                // the adversary writes and reads
	Themes   = 8          // sessions with the other four have none
)

// ThemeOf returns the theme of a session.
func ThemeOf(seed uint64) Theme { return Theme(seed % Themes) }

// Grant is a region of the target.
type Grant struct {
	Name    string
	Key     uint32
	Address uint64
	Length  uint64
	// Read, Write and Atomic say what the peer may do; all false: nothing.
	Read, Write, Atomic bool
}

// Hello is what the target says when it is ready.
type Hello struct {
	Port   uint16
	Grants []Grant
}

// Report is what the target says about a session, after its end.
type Report struct {
	Findings    []string // what the target has seen that must not be
	Unfilled    []string // data that should have come: findings, unless the adversary sent pattern.Secret
	Established bool
	Posted      int
	Done        int // completions with success
	Failed      int // with an error
	End         string
	HeapKB      int
	Files       int
	Goroutines  int
}
