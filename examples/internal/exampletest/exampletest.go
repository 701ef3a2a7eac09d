// Package exampletest runs the example programs in their tests. On a device, each end is a process
// of its own. On mem0, both ends run inside the test's process.
package exampletest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

const role = "GODAT_EXAMPLE" // environment variable that is set in processes that run the example

// Patience is how long a process may run before it is killed. It is long enough for a slow machine.
const Patience = 60 * time.Second

// Main runs the example if Start has started this process. Otherwise it runs the tests.
func Main(m *testing.M, example func()) {
	if os.Getenv(role) != "" {
		example()
		os.Exit(0)
	}
	leaktest.Main(m)
}

// Device returns the device of GODAT_TEST_DEVICE. It skips the test if the variable names no
// device.
func Device(t testing.TB) string {
	t.Helper()
	device := os.Getenv("GODAT_TEST_DEVICE")
	if device == "" || device == "mem0" {
		t.Skip("GODAT_TEST_DEVICE names no device: two processes need one")
	}
	return device
}

// A test calls Inside if it runs both ends in this process on mem0. If the run is short and
// GODAT_TEST_DEVICE is set, Inside skips the test.
func Inside(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv("GODAT_TEST_DEVICE") != "" {
		t.Skip("not on mem0 in a short run on a device")
	}
}

// Messages starts a server on the device, and three clients with a message each, which they must
// print. The interrupted server must end with status 0.
func Messages(t testing.TB, device string) {
	t.Helper()
	server := Start(t, device)
	address := server.Address(t)
	clients := map[string]*Process{}
	for i := range 3 {
		text := fmt.Sprint("message of client ", i)
		clients[text] = Start(t, device, address, text)
	}
	for text, client := range clients {
		assert.Equal(t, client.Wait(t), text+"\n")
	}
	server.Interrupt(t)
	server.Wait(t)
}

// Run runs the example with the arguments until it ends, and returns its output. The test fails
// unless the exit status is 0.
func Run(t testing.TB, args ...string) string {
	t.Helper()
	return Start(t, args...).Wait(t)
}

// Usage checks that the example prints its usage for -h.
func Usage(t *testing.T, usage string) {
	cmd := exec.Command(os.Args[0], "-h")
	cmd.Env = append(os.Environ(), role+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), usage) {
		t.Errorf("-h prints %q, %v, expected %q", out, err, usage)
	}
}

// Process is a running example.
type Process struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
	Stdin  io.WriteCloser
}

// Start starts the example with the arguments. The process is killed after Patience, or when the
// test ends.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), role+"=1")
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin, p.stdout = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { p.cmd.Process.Kill() })
	timer := time.AfterFunc(Patience, kill)
	t.Cleanup(func() { timer.Stop(); kill(); p.cmd.Wait() })
	return p
}

// Line returns the next line that the process prints.
func (p *Process) Line(t testing.TB) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		t.Fatalf("%v has ended after %q: %v\n%s", p.cmd.Args, line, err, p.stderr.Bytes())
	}
	return strings.TrimSuffix(line, "\n")
}

// Address returns the last word of the next line: the address that a server prints.
func (p *Process) Address(t testing.TB) string {
	t.Helper()
	words := strings.Fields(p.Line(t))
	if len(words) == 0 {
		t.Fatal("the server prints an empty line instead of its address")
	}
	return words[len(words)-1]
}

// Interrupt sends the process SIGINT.
func (p *Process) Interrupt(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// Wait waits for the end of the process and returns the rest of its output. The test fails unless
// the exit status is 0.
func (p *Process) Wait(t testing.TB) string {
	t.Helper()
	rest, _ := io.ReadAll(p.stdout)
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s%s", p.cmd.Args, err, rest, p.stderr.Bytes())
	}
	return string(rest)
}
