package programs

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// serveConns accepts connections and serves each in a goroutine.
func serveConns(serve func(net.Conn)) (string, func() error, error) {
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(c) })
		}
	})
	return l.Addr().String(), func() error {
		err := l.Close()
		all.Wait()
		return err
	}, nil
}

func serveSSH() (string, func() error, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", nil, err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return "", nil, err
	}
	config := &ssh.ServerConfig{PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
		if string(password) != "sesame" {
			return nil, fmt.Errorf("wrong password")
		}
		return nil, nil
	}}
	config.AddHostKey(signer)
	return serveConns(func(c net.Conn) {
		sc, channels, requests, err := ssh.NewServerConn(c, config)
		if err != nil {
			return
		}
		defer sc.Close()
		go ssh.DiscardRequests(requests)
		for ch := range channels {
			switch ch.ChannelType() {
			case "session":
				go serveSession(ch)
			case "direct-tcpip":
				go forward(ch)
			default:
				ch.Reject(ssh.UnknownChannelType, "unknown")
			}
		}
	})
}

// serveSession echoes what it receives until the channel ends.
func serveSession(ch ssh.NewChannel) {
	c, requests, err := ch.Accept()
	if err != nil {
		return
	}
	for r := range requests {
		r.Reply(r.Type == "exec", nil)
		if r.Type == "exec" {
			go func() {
				io.Copy(c, c)
				c.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{0}))
				c.Close()
			}()
		}
	}
}

// forward connects a channel to the address that the client requests.
func forward(ch ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		Origin string
		From   uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil {
		ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	out, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer out.Close()
	c, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	go ssh.DiscardRequests(requests)
	go func() {
		io.Copy(out, c)
		out.(interface{ CloseWrite() error }).CloseWrite()
	}()
	io.Copy(c, out)
}

func useSSH(t *testing.T, address string) {
	config := &ssh.ClientConfig{User: "u", Auth: []ssh.AuthMethod{ssh.Password("sesame")}, Timeout: patience,
		HostKeyCallback: ssh.InsecureIgnoreHostKey()}
	c, err := ssh.Dial("tcp", address, config)
	must(t, err)
	defer c.Close()
	parallel(t, 8, func(i int) error {
		s, err := c.NewSession()
		if err != nil {
			return err
		}
		defer s.Close()
		in := pattern(400_000, i)
		s.Stdin = bytes.NewReader(in)
		out, err := s.Output("echo")
		if err != nil || !bytes.Equal(in, out) {
			return fmt.Errorf("%d bytes of %d come back, %v", len(out), len(in), err)
		}
		return nil
	})
	// A connection through the server back to the server.
	inner, err := c.Dial("tcp", address)
	must(t, err)
	ic, channels, requests, err := ssh.NewClientConn(inner, address, config)
	must(t, err)
	second := ssh.NewClient(ic, channels, requests)
	s, err := second.NewSession()
	must(t, err)
	s.Stdin = bytes.NewReader(pattern(100_000, 0))
	if out, err := s.Output("echo"); err != nil || len(out) != 100_000 {
		t.Errorf("forwarded: %d bytes, %v", len(out), err)
	}
	must(t, second.Close())
	config.Auth = []ssh.AuthMethod{ssh.Password("wrong")}
	if _, err := ssh.Dial("tcp", address, config); err == nil {
		t.Error("a wrong password is accepted")
	}
}

func serveSFTP() (string, func() error, error) {
	return serveConns(func(c net.Conn) {
		s, err := sftp.NewServer(c)
		if err != nil {
			return
		}
		s.Serve()
		s.Close()
	})
}

func useSFTP(t *testing.T, address string) {
	conn, err := net.Dial("tcp", address)
	must(t, err)
	c, err := sftp.NewClientPipe(conn, conn)
	must(t, err)
	dir := t.TempDir()
	data := pattern(8<<20, 5)
	parallel(t, 3, func(i int) error {
		name := filepath.Join(dir, fmt.Sprint(i))
		f, err := c.Create(name)
		if err != nil {
			return err
		}
		if _, err := f.ReadFromWithConcurrency(bytes.NewReader(data), 16); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		f, err = c.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		var got bytes.Buffer
		if _, err := f.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), data) {
			return fmt.Errorf("%d bytes come back, %v", got.Len(), err)
		}
		return nil
	})
	if list, err := c.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("a folder of %d files, %v", len(list), err)
	}
	if _, err := c.Stat(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
	must(t, c.Close())
}
