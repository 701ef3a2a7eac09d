package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/lab/process"
)

// daplName is dapltest's name for the device, in a dat.conf that bench writes.
const daplName = "bench"

// dapltestServer starts dapltest's server. It writes a dat.conf that names the library and the
// library's parameters, and returns the environment that the clients need.
func (b *bench) dapltestServer(library, parameters, port string) (env []string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, nil, err
	}
	conf := filepath.Join(dir, "dat.conf")
	text := fmt.Sprintf("%s u2.0 nonthreadsafe default %s dapl.2.0 %q \"\"\n", daplName, library, parameters)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	env = []string{"DAT_OVERRIDE=" + conf}
	line := []string{"dapltest", "-T", "S", "-D", daplName, "-n", port}
	server, err := process.Start(b.limit+time.Hour, env, b.pin(serverEnd, line)...)
	if err != nil {
		return nil, nil, err
	}
	stop = func() { server.Stop(); os.RemoveAll(dir) }
	ready := func() bool { return strings.Contains(server.Stdout.String(), "Ready") }
	if err := server.Until(20*time.Second, ready); err != nil {
		stop()
		return nil, nil, err
	}
	return env, stop, nil
}

// dapltestLine returns the command of a client of dapltest's performance test, which polls.
func (b *bench) dapltestLine(port, operations, depth, op string, size int) []string {
	return b.pin(clientEnd, []string{"dapltest", "-T", "P", "-D", daplName, "-s", b.address, "-n", port, "-m", "p",
		"-i", operations, "-p", depth, op, strconv.Itoa(size)})
}

// dapltestRun runs a client of dapltest's performance test.
func dapltestRun(env, line []string) (dapl, error) {
	p, err := process.Start(pairTime, env, line...)
	if err != nil {
		return dapl{}, err
	}
	out, err := p.Wait()
	if err != nil {
		return dapl{}, err
	}
	return dapltestRaw(out)
}
