package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
)

// controlFlags are the flags of the control connection. Both ends have them.
type controlFlags struct {
	port   int
	secret string // name of the file with the secret, or empty
}

func (k *controlFlags) register(f *pflag.FlagSet) {
	f.IntVar(&k.port, "port", engine.DefaultPort, "TCP `port` of the control connection")
	f.StringVar(&k.secret, "secret", "", "`file` with a secret that both ends know, of 32 random bytes or more: "+
		"only clients that know it may measure, and the control connection is encrypted")
}

// check returns an error if the port is invalid or the secret cannot be read. It returns the TLS
// configuration, which is nil without --secret.
func (k *controlFlags) check() (*tls.Config, error) {
	if k.port < 1 || k.port > 65535 {
		return nil, usagef("--port %d: must be from 1 to 65535", k.port)
	}
	if k.secret == "" {
		return nil, nil
	}
	text, err := os.ReadFile(k.secret)
	if err != nil {
		return nil, fmt.Errorf("--secret: %w", err)
	}
	secret, err := engine.Secure(text)
	if err != nil {
		return nil, usagef("--secret %s: %w", k.secret, err)
	}
	return secret, nil
}

// dial connects to a server.
func (k *controlFlags) dial(ctx context.Context, address string) (net.Conn, error) {
	secret, err := k.check()
	if err != nil {
		return nil, err
	}
	if _, _, err := engine.SplitAddress(address, k.port); err != nil {
		return nil, &usageError{err}
	}
	return engine.Dial(ctx, address, k.port, secret)
}

// listen listens for clients.
func (k *controlFlags) listen(bind string) (net.Listener, error) {
	secret, err := k.check()
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(bind); err == nil {
		return nil, usagef("--bind %s: must be an address without a port; --port sets the port", bind)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(strings.Trim(bind, "[]"), strconv.Itoa(k.port)))
	if err != nil {
		return nil, fmt.Errorf("--bind and --port: %w", err)
	}
	if secret == nil {
		return ln, nil
	}
	return tls.NewListener(ln, secret), nil
}
