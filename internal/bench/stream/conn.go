package main

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// patience bounds what must come.
const patience = 30 * time.Second

// stream is an end of a net.Conn.
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

// accept takes the one connection of a listener.
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
	lc := rdmanet.ListenConfig{Device: w.device, ReadBuffer: w.buffer, WriteBuffer: w.buffer}
	l, err := lc.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		return nil, err
	}
	return accept(l, w, address)
}

func dialRDMA(w *work, address string) (end, error) {
	d := rdmanet.Dialer{Device: w.device, ReadBuffer: w.buffer, WriteBuffer: w.buffer, Timeout: patience}
	c, err := d.Dial(context.Background(), "rdma", address)
	if err != nil {
		return nil, err
	}
	return newStream(c, w), nil
}

// lent is a stream that writes memory which it lends to the device.
type lent struct {
	*stream
	conn   *rdmanet.Conn
	region *rdmanet.Region
}

func dialLent(w *work, address string) (end, error) {
	e, err := dialRDMA(w, address)
	if err != nil {
		return nil, err
	}
	s := e.(*stream)
	c := s.Conn.(*rdmanet.Conn)
	r, err := c.NewRegion(s.p, 0)
	if err != nil {
		return nil, err
	}
	return &lent{s, c, r}, nil
}

func (l *lent) send() error { return l.write() }

func (l *lent) write() error {
	_, err := l.conn.WriteRegion(l.region, 0, len(l.p))
	return err
}

// tcpAddress is the address of the device's network interface.
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
	l, err := net.Listen("tcp", a)
	if err != nil {
		return nil, err
	}
	return accept(l, w, address)
}

func dialTCP(w *work, address string) (end, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	return newStream(c, w), nil
}
