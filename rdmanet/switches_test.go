//go:build linux

package rdmanet_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/internal/tlstest"
)

// child starts this program in a role and returns what it prints, line by line.
func child(t *testing.T, role string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

// TestIdleWakesNothing: a connection of two processes that nobody uses wakes no thread of either,
// whether a Read is blocked or not. The bound leaves room for two keep-alives and for Go's runtime;
// a poll every 100 ms would break it.
func TestIdleWakesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		tlstest.Suite(dev) // names the certificate of both children in the environment
		listener, out := child(t, dev)
		assert.Assert(t, out.Scan())
		ends := []*exec.Cmd{listener}
		if dev != "mem0" {
			dialer, _ := child(t, dev+" "+out.Text())
			ends = append(ends, dialer)
		}
		assert.Assert(t, out.Scan() && out.Text() == "idle")
		const rest = 2 * time.Second
		time.Sleep(rest / 2)
		before := switches(t, ends)
		time.Sleep(rest)
		for i, after := range switches(t, ends) {
			n := after - before[i]
			t.Logf("%d voluntary context switches in %v", n, rest)
			assert.Check(t, n <= 15, "%d voluntary context switches in %v", n, rest)
		}
	})
}

func switches(t *testing.T, of []*exec.Cmd) (counts []int) {
	for _, cmd := range of {
		n, err := leaktest.Switches(cmd.Process.Pid)
		assert.NilError(t, err)
		counts = append(counts, n)
	}
	return counts
}
