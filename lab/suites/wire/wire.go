// Package wire replaces TCP connections by connections of package rdmanet. Command suites adds a
// file to each package under test. That file sets the hooks of package net to Dial and Listen: see
// hook.go in lab/suites.
package wire

import (
	"context"
	"net"
	"os"

	"github.com/godat/godat/rdmanet"
)

const (
	// Env names the environment variable with the device of the connections. If it is empty,
	// nothing is replaced and the connections are TCP.
	Env = "GODAT_SUITES_DEVICE"
	// PipeEnv names the environment variable that, if set, makes Pipe replace net.Pipe.
	PipeEnv = "GODAT_SUITES_PIPE"
	// CountEnv names the environment variable with a file to which Dial appends a byte for each
	// connection.
	CountEnv = "GODAT_SUITES_COUNT"
)

// Device returns the device of this process's connections, or "" for TCP.
func Device() string { return os.Getenv(Env) }

// Listen listens over rdmanet. It replaces the method Listen of net.ListenConfig.
func Listen(ctx context.Context, _, address string) (net.Listener, error) {
	lc := rdmanet.ListenConfig{Device: Device(), TCPAddrs: true}
	return lc.ListenNet(ctx, rdmanet.Network, address)
}

// Dial connects over rdmanet. It replaces the method DialContext of net.Dialer.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := rdmanet.Dialer{Device: Device(), TCPAddrs: true}
	c, err := d.DialContext(ctx, network, address)
	if err == nil {
		count()
	}
	return c, err
}

// count appends a byte to the file of CountEnv.
func count() {
	if f, err := os.OpenFile(os.Getenv(CountEnv), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		f.Write([]byte{'.'})
		f.Close()
	}
}

// ReplacesPipe reports whether net.Pipe is to be replaced.
func ReplacesPipe() bool { return os.Getenv(PipeEnv) != "" }

// Pipe replaces net.Pipe. It returns the two ends of a connection.
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
