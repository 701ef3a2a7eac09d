package programs

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"
)

func serveYamux() (string, func() error, error) {
	return serveConns(func(c net.Conn) {
		s, err := yamux.Server(c, quiet())
		if err != nil {
			return
		}
		defer s.Close()
		for {
			st, err := s.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(st, st)
				st.Close()
			}()
		}
	})
}

func quiet() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	return c
}

func useYamux(t *testing.T, address string) {
	conn, err := net.Dial("tcp", address)
	must(t, err)
	s, err := yamux.Client(conn, quiet())
	must(t, err)
	parallel(t, 16, func(i int) error {
		st, err := s.Open()
		if err != nil {
			return err
		}
		in := pattern(1_000_000, i)
		go func() {
			st.Write(in)
			st.Close()
		}()
		out := make([]byte, len(in))
		if _, err := io.ReadFull(st, out); err != nil || !bytes.Equal(in, out) {
			return fmt.Errorf("%d bytes: %v", len(in), err)
		}
		return nil
	})
	must(t, s.Close())
}
