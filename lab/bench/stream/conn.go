//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"time"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// patience limits the time to connect, and each wait for an event.
const patience = 30 * time.Second

// stream is an end that uses a net.Conn.
type stream struct {
	net.Conn
	p, all []byte
}

func newStream(c net.Conn, w *work) *stream {
	return &stream{Conn: c, p: make([]byte, w.size), all: make([]byte, 256<<10)}
}

func (s *stream) send() error { return s.write() }

func (s *stream) write() error {
	_, err := s.Write(s.p)
	return err
}

func (s *stream) receive() error {
	_, err := io.ReadFull(s, s.p)
	return err
}

func (s *stream) take() error {
	for {
		if _, err := s.Read(s.all); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func (s *stream) close() error {
	s.Close()
	return nil
}

func (w *work) path() rdmanet.Path {
	if w.spin < 0 {
		return rdmanet.Path{}
	}
	return rdmanet.Path{Spin: &w.spin}
}

// accept accepts one connection and closes the listener.
func accept(l net.Listener, w *work, address func(string)) (end, error) {
	defer l.Close()
	address(l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	return newStream(c, w), nil
}

func listenRDMA(w *work, address func(string)) (end, error) {
	lc := rdmanet.ListenConfig{Device: w.device, Path: w.path(), ReadBuffer: w.buffer, WriteBuffer: w.buffer}
	l, err := lc.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		return nil, err
	}
	return accept(l, w, address)
}

func dialRDMA(w *work, address string) (end, error) {
	d := rdmanet.Dialer{Device: w.device, Path: w.path(), ReadBuffer: w.buffer, WriteBuffer: w.buffer, Timeout: patience}
	c, err := d.Dial(context.Background(), "rdma", address)
	if err != nil {
		return nil, err
	}
	return newStream(c, w), nil
}

// tcpAddress returns the address to listen on: that of the device's network interface, with port 0.
func tcpAddress(w *work) (string, error) {
	ia, err := udat.Open(w.device)
	if err != nil {
		return "", err
	}
	defer ia.Close(udat.CloseAbrupt)
	return net.JoinHostPort(ia.Addr().String(), "0"), nil
}

func listenTCP(w *work, address func(string)) (end, error) {
	a, err := tcpAddress(w)
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: unpace}
	l, err := lc.Listen(context.Background(), "tcp", a)
	if err != nil {
		return nil, err
	}
	return accept(l, w, address)
}

func dialTCP(w *work, address string) (end, error) {
	d := net.Dialer{Timeout: patience, Control: unpace}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return newStream(c, w), nil
}

// unpace gives a socket the congestion control that udat's own connections within a host have. The
// host's default may be BBR, which paces its packets. Then the ratios of the streams would only
// show this pacing.
func unpace(_, _ string, c syscall.RawConn) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	const tcpCongestion = 13
	var refused error
	err := c.Control(func(fd uintptr) {
		refused = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, tcpCongestion, "reno")
	})
	return errors.Join(err, refused)
}

// polled is a TCP connection whose reader does not park: it calls read in a loop.
type polled struct {
	*stream
	raw syscall.RawConn
	ask func(fd uintptr) bool
	got int   // number of bytes of p that have been read
	err error // error of the last read
}

func listenPolled(w *work, address func(string)) (end, error) {
	return newPolled(listenTCP(w, address))
}

func dialPolled(w *work, address string) (end, error) { return newPolled(dialTCP(w, address)) }

func newPolled(e end, err error) (end, error) {
	if err != nil {
		return nil, err
	}
	p := &polled{stream: e.(*stream)}
	p.ask = func(fd uintptr) bool {
		var n int
		n, p.err = syscall.Read(int(fd), p.p[p.got:])
		switch {
		case p.err != nil:
		case n == 0:
			p.err = io.EOF
		default:
			p.got += n
		}
		return true
	}
	p.raw, err = p.Conn.(*net.TCPConn).SyscallConn()
	return p, err
}

func (p *polled) receive() error {
	for p.got = 0; p.got < len(p.p); {
		if err := p.raw.Read(p.ask); err != nil {
			return err
		}
		if p.err != nil && p.err != syscall.EAGAIN && p.err != syscall.EINTR {
			return p.err
		}
	}
	return nil
}
