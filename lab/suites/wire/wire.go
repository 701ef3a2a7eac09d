// Package wire listens and dials by rdmanet where a program says TCP. The suites put it into the
// packages that they test: see hook.go of the command.
package wire

import (
	"context"
	"net"
	"os"

	"github.com/godat/godat/rdmanet"
)

const (
	// Env names the device of the connections. Empty: nothing is replaced, the connections are TCP.
	Env = "GODAT_SUITES_DEVICE"
	// PipeEnv, if it is set, replaces net.Pipe too, by a connection.
	PipeEnv = "GODAT_SUITES_PIPE"
	// CountEnv names a file that gets a byte for each connection.
	CountEnv = "GODAT_SUITES_COUNT"
)

// Device is the device of this process.
func Device() string { return os.Getenv(Env) }

// Listen is the Listen of a net.ListenConfig.
func Listen(ctx context.Context, _, address string) (net.Listener, error) {
	lc := rdmanet.ListenConfig{Device: Device(), TCPAddrs: true}
	return lc.Listen(ctx, rdmanet.Network, address)
}

// Dial is the DialContext of a net.Dialer.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := rdmanet.Dialer{Device: Device(), TCPAddrs: true}
	c, err := d.DialContext(ctx, network, address)
	if err == nil {
		count()
	}
	return c, err
}

// count adds a connection to the file of CountEnv.
func count() {
	if f, err := os.OpenFile(os.Getenv(CountEnv), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		f.Write([]byte{'.'})
		f.Close()
	}
}

// ReplacesPipe reports whether net.Pipe is to be replaced.
func ReplacesPipe() bool { return os.Getenv(PipeEnv) != "" }

// Pipe is a connection as net.Pipe returns it.
func Pipe() (net.Conn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		accepted <- c
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	return c, <-accepted
}
