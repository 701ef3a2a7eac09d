package rdmanet_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
)

// roleEnv makes a second process of this test program the peer of a test: "DEVICE ADDRESS" dials,
// "DEVICE" listens.
const roleEnv = "GODAT_TEST_ROLE"

// play is the peer: it dials, echoes what comes, and ends when the stream does.
func play(role string) int {
	var dev, address string
	if n, _ := fmt.Sscan(role, &dev, &address); n == 1 {
		return playListener(dev)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := dialer(dev).Dial(ctx, "rdma", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, err = io.Copy(c, c)
	c.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// playListener listens, says where, accepts one connection and sends a byte. Once that has come
// back it does nothing more. On mem0, which connects within one process, it dials too.
func playListener(dev string) int {
	err := func() error {
		lc := rdmanet.ListenConfig{Device: dev, TLS: tlstest.Suite(dev)}
		l, err := lc.Listen(context.Background(), "rdma", ":0")
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
		if dev == "mem0" {
			go play(dev + " " + l.Addr().String())
		}
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if _, err = io.WriteString(c, "x"); err != nil {
			return err
		}
		_, err = io.ReadFull(c, make([]byte, 1))
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("idle")
	select {}
}

// otherProcess starts a peer in another process, and returns its connection.
func otherProcess(t *testing.T, dev string, lc rdmanet.ListenConfig) (*rdmanet.Conn, *exec.Cmd) {
	if dev == "mem0" {
		t.Skip("mem0 connects within one process")
	}
	l := listen(t, dev, lc)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+dev+" "+l.Addr().String())
	cmd.Stderr = os.Stderr
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	assert.NilError(t, l.SetDeadline(time.Now().Add(patience)))
	c, err := l.AcceptConn()
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	echo(t, c, "hello")
	return c, cmd
}

// echo sends a text and expects it back.
func echo(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	assert.NilError(t, err)
	p := make([]byte, len(text))
	_, err = io.ReadFull(c, p)
	assert.NilError(t, err)
	assert.Equal(t, string(p), text)
}

// TestOtherProcess echoes between two processes, which both end in good order.
func TestOtherProcess(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		c, cmd := otherProcess(t, dev, rdmanet.ListenConfig{})
		assert.NilError(t, c.CloseWrite())
		rest, err := io.ReadAll(c)
		assert.NilError(t, err)
		assert.Equal(t, len(rest), 0)
		assert.NilError(t, cmd.Wait())
	})
}

// TestPeerKilled kills the peer's process: blocked calls end.
func TestPeerKilled(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		c, cmd := otherProcess(t, dev, rdmanet.ListenConfig{KeepAlive: time.Second})
		ended := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		leaktest.Blocked(t, 1, "rdmanet.(*Conn).Read")
		assert.NilError(t, cmd.Process.Kill())
		expectEnd(t, ended)
		_, err := c.Write([]byte("x"))
		assert.Assert(t, err != nil)
	})
}

// expectEnd waits for a blocked call that must end with an error.
func expectEnd(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		assert.Assert(t, err != nil && err != io.EOF, "%v", err)
	case <-time.After(patience):
		t.Fatal("the call is still blocked")
	}
}
