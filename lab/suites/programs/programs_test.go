// Package programs contains clients and servers that use other projects, as the documentation of
// those projects shows. They listen and dial by package net, which the suites replace. Each
// client and server run in one process, and in two.
package programs

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godat/godat/lab/suites/wire"
)

// program is a server and its client.
type program struct {
	name  string
	serve func() (address string, stop func() error, err error)
	use   func(t *testing.T, address string)
}

var programs = []program{
	{"net/rpc", serveRPC, useRPC},
	{"net/http", serveHTTP, useHTTP},
	{"net/http HTTP2", serveHTTP2, useHTTP2},
	{"fasthttp", serveFast, useFast},
	{"go-redis with redcon", serveRedis, useRedis},
	{"grpc", serveGRPC, useGRPC},
	{"connect", serveConnect, useConnect},
	{"ssh", serveSSH, useSSH},
	{"sftp", serveSFTP, useSFTP},
	{"nats", serveNATS, useNATS},
	{"yamux", serveYamux, useYamux},
}

const (
	roleEnv  = "GODAT_SUITES_ROLE" // makes this test program the server of the program it names
	patience = 60 * time.Second
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// play serves until standard input ends.
func play(role string) error {
	for _, p := range programs {
		if p.name == role {
			address, stop, err := p.serve()
			if err != nil {
				return err
			}
			fmt.Println(address)
			io.Copy(io.Discard, os.Stdin)
			return stop()
		}
	}
	return fmt.Errorf("no program %q", role)
}

func TestOneProcess(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			address, stop, err := p.serve()
			if err != nil {
				t.Fatal(err)
			}
			p.use(t, address)
			stopped := make(chan error, 1)
			go func() { stopped <- stop() }()
			expectStop(t, stopped)
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	if wire.Device() == "mem0" {
		t.Skip("mem0 connects within one process")
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleEnv+"="+p.name)
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			must(t, err)
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			defer cmd.Process.Kill()
			address, err := bufio.NewReader(out).ReadString('\n')
			must(t, err)
			p.use(t, strings.TrimSpace(address))
			in.Close()
			stopped := make(chan error, 1)
			go func() { stopped <- cmd.Wait() }()
			expectStop(t, stopped)
		})
	}
}

func expectStop(t *testing.T, stopped <-chan error) {
	t.Helper()
	select {
	case err := <-stopped:
		must(t, err)
	case <-time.After(patience):
		t.Fatal("the server does not stop")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen returns the listener that most servers use.
func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// parallel calls f for 0 to n-1, each in a goroutine. An error fails the test.
func parallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := f(i); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// pattern returns n bytes that depend on their position and on i.
func pattern(n, i int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k*7 + k>>8 + i)
	}
	return b
}

// sizes lists sizes of messages.
var sizes = []int{0, 1, 100, 4096, 70_000, 300_000}
