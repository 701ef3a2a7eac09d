package programs

import (
	"bytes"
	"fmt"
	"net/rpc"
	"testing"
)

// Echo is a service of net/rpc.
type Echo struct{}

func (Echo) Say(in []byte, out *[]byte) error {
	*out = in
	return nil
}

func serveRPC() (string, func() error, error) {
	s := rpc.NewServer()
	if err := s.Register(Echo{}); err != nil {
		return "", nil, err
	}
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	go s.Accept(l)
	return l.Addr().String(), l.Close, nil
}

func useRPC(t *testing.T, address string) {
	c, err := rpc.Dial("tcp", address)
	must(t, err)
	parallel(t, 16, func(i int) error {
		for k := range 50 {
			in := pattern(sizes[k%len(sizes)], i)
			var out []byte
			if err := c.Call("Echo.Say", in, &out); err != nil || !bytes.Equal(in, out) {
				return fmt.Errorf("%d bytes: %d come back, %v", len(in), len(out), err)
			}
		}
		return nil
	})
	must(t, c.Close())
	if err := c.Call("Echo.Say", []byte("x"), new([]byte)); err != rpc.ErrShutdown {
		t.Errorf("a call after Close: %v", err)
	}
}
