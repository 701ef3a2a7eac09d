package main

import (
	"context"
	"io"

	"github.com/godat/godat/rdmanet"
)

// ofRdmanet returns an operation that writes 64 bytes to a connection. Both ends of the connection
// are in this process.
func ofRdmanet(name string, _ int) (o operation, err error) {
	l, err := (&rdmanet.ListenConfig{Device: "loop0"}).Listen(context.Background(), "rdma", ":0")
	if err != nil {
		return o, err
	}
	accepted := make(chan io.ReadWriteCloser, 1)
	go func() {
		conn, err := l.Accept()
		check(err)
		accepted <- conn
	}()
	d := rdmanet.Dialer{Device: "loop0"}
	a, err := d.Dial(context.Background(), "rdma", l.Addr().String())
	if err != nil {
		return o, err
	}
	b := <-accepted
	buf := make([]byte, size)
	write := func(n int) {
		for range n {
			_, err := a.Write(buf)
			check(err)
		}
	}
	read := func(n int) {
		for range n {
			_, err := io.ReadFull(b, buf)
			check(err)
		}
	}
	if name != "write" {
		return o, errUnknown("rdmanet", name)
	}
	return operation{do: write, settle: read}, nil
}
