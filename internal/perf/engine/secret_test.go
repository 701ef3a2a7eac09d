package engine

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// One newline after a secret is ignored, if the rest is long enough. All other bytes count.
func TestSecretNewline(t *testing.T) {
	bytes := strings.Repeat("\x80", minSecret-1) + " "
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{bytes, bytes + "\n", true},
		{bytes, bytes + "\r\n", true},
		{bytes + "\n", bytes + "\n\n", false},
		{bytes + "x", bytes + "x ", false},
		{bytes, "\n" + bytes, false},
		{bytes + "\t", bytes + "\v", false},
		{bytes[1:] + "\n", bytes[1:] + "\n\n", true}, // as long as it must be with the newline
	} {
		one, err := Secure([]byte(c.one))
		assert.NilError(t, err)
		other, err := Secure([]byte(c.other))
		assert.NilError(t, err)
		same := reflect.DeepEqual(one.Certificates[0].PrivateKey, other.Certificates[0].PrivateKey)
		assert.Equal(t, same, c.same, "%q and %q", c.one, c.other)
	}
}

// Ends with the same secret can talk. If the secrets differ, or only one end has a secret, they
// cannot, and the error names the flag.
func TestSecret(t *testing.T) {
	secret := func(letter string) *tls.Config {
		c, err := Secure([]byte(strings.Repeat(letter, minSecret) + "\n"))
		assert.NilError(t, err)
		return c
	}
	_, err := Secure([]byte(strings.Repeat("a", minSecret-1)))
	assert.ErrorContains(t, err, "31 bytes, it must have 32 or more")
	for _, c := range []struct {
		name           string
		server, client *tls.Config
		want           string
	}{
		{"same", secret("a"), secret("a"), ""},
		{"other", secret("a"), secret("b"), "--secret: the server at "},
		{"client has none", secret("a"), nil, "this server wants a secret: --secret FILE"},
		{"server has none", nil, secret("a"), "it uses no secret, or is not a datperf server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			assert.NilError(t, err)
			address := ln.Addr().String()
			if c.server != nil {
				ln = tls.NewListener(ln, c.server)
			}
			s, served := &Server{Setup: Setup{Device: "mem0"}}, make(chan error, 1)
			go func() { served <- s.Serve(ctx, ln) }()
			conn, err := Dial(ctx, address, 0, c.client)
			if err == nil {
				k := newControl(conn, "server")
				_, err = k.greet(ctx, answerTime, message{}, nil)
				k.close()
			}
			if c.want == "" {
				assert.NilError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
				assert.Equal(t, s.Stats().Clients, 0)
			}
			cancel()
			assert.NilError(t, <-served)
		})
	}
}
