package main

import (
	"io"
	"net"

	"github.com/godat/godat/udat"
)

// ofTCPDevice returns the operation roundTrip on the device tcp: each end sends a message, and the
// other end receives it. Both ends poll, in one thread.
func ofTCPDevice(name string, _ int) (o operation, err error) {
	if name != roundTrip {
		return o, errUnknown("tcp", name)
	}
	d, err := openAdapter("tcp:127.0.0.1")
	if err != nil {
		return o, err
	}
	a, b := d.pair()
	a.receives(1)
	b.receives(1)
	message := func(from, to *endpoint) {
		check(from.ep.PostSend(from.triplets[:], 0, udat.CompletionSuppress))
		to.takeEach(1)
		to.receives(1)
	}
	return operation{do: func(n int) {
		for range n {
			message(a, b)
			message(b, a)
		}
	}}, nil
}

const roundTrip = "round trip"

// ofTCP returns the operation roundTrip with Go's net package.
func ofTCP(name string, _ int) (o operation, err error) {
	if name != roundTrip {
		return o, errUnknown("TCP", name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return o, err
	}
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return o, err
	}
	b, err := l.Accept()
	if err != nil {
		return o, err
	}
	p := make([]byte, size)
	message := func(from io.Writer, to io.Reader) {
		_, err := from.Write(p)
		check(err)
		_, err = io.ReadFull(to, p)
		check(err)
	}
	return operation{do: func(n int) {
		for range n {
			message(a, b)
			message(b, a)
		}
	}}, nil
}
