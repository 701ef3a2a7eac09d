// Interop runs the test programs of OpenFabrics DAPL and librdmacm with themselves, with peers
// written in Go on package udat, and on godat's DAT provider, and reports what passes. It runs
// where an RDMA device is, which `make interop` provides: the virtual machine.
//
//	interop --bin DIR [--device rxe0] [--page FILE] [NAME...]
//
// Each case is a server and a client. A case that fails is compared with the same programs among
// themselves (the row "C, C"): where that fails too, the fault is the program's.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/process"
	"github.com/godat/godat/udat"
)

func main() {
	bin := flag.String("bin", "bin", "folder of libgodat.so, libgodat and peer")
	device := flag.String("device", "rxe0", "RDMA device")
	page := flag.String("page", "", "file for the report in Markdown")
	flag.Parse()
	r := runner{bin: *bin, device: *device}
	if err := r.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	results := r.runAll(flag.Args())
	os.RemoveAll(r.dir)
	if *page != "" {
		if err := os.WriteFile(*page, markdown(results), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			os.Exit(1)
		}
	}
	passed, failed, explained := 0, 0, 0
	for _, res := range results {
		switch {
		case res.err == nil:
			passed++
		case res.explained:
			explained++
		default:
			failed++
		}
	}
	fmt.Printf("interop: %d cases are not counted: the C programs fail in them among themselves too\n", explained)
	fmt.Printf("interop: %d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// runner runs cases on one device.
type runner struct {
	bin, device string
	dir         string
	addr        string
}

// prepare writes dat.conf: the provider's lines, and the C library's for the device.
func (r *runner) prepare() error {
	for _, p := range udat.Providers() {
		if p.Name == r.device {
			r.addr = p.Addr
		}
	}
	if r.addr == "" {
		return fmt.Errorf("no device %s with an address here", r.device)
	}
	netdev, err := os.ReadFile("/sys/class/infiniband/" + r.device + "/ports/1/gid_attrs/ndevs/0")
	if err != nil {
		return err
	}
	conf, err := exec.Command(filepath.Join(r.bin, "libgodat"), filepath.Join(r.bin, "libgodat.so")).Output()
	if err != nil {
		return fmt.Errorf("libgodat: %w", err)
	}
	conf = fmt.Appendf(conf, "ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 %q \"\"\n",
		strings.TrimSpace(string(netdev))+" 0")
	if r.dir, err = os.MkdirTemp("", "interop"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "dat.conf"), conf, 0o644)
}

// result is the outcome of a case between two kinds of ends.
type result struct {
	name, server, client string
	err                  error
	explained            bool // the C programs fail among themselves too
	took                 time.Duration
}

func (r *runner) runAll(names []string) []result {
	var results []result
	for i := range cases {
		c := &cases[i]
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		baseline := true
		for _, ends := range c.ends {
			start := time.Now()
			res := result{name: c.name, server: ends.server, client: ends.client, err: r.run(c, ends)}
			res.took = time.Since(start)
			if ends == (pair{library, library}) {
				baseline = res.err == nil
			}
			res.explained = res.err != nil && !baseline
			verdict := "ok"
			if res.err != nil {
				verdict = "FAILED: " + res.err.Error()
			}
			if res.explained {
				verdict += "\n  (the C programs fail among themselves too)"
			}
			fmt.Printf("%-22s server %-6s client %-6s %5.1fs  %s\n", c.name, ends.server, ends.client, res.took.Seconds(),
				verdict)
			results = append(results, res)
		}
	}
	return results
}

// run runs one case.
func (r *runner) run(c *program, ends pair) error {
	const patience = 90 * time.Second // an emulated machine is slow
	start := func(end, line string) (*process.Process, error) {
		env := []string{"DAT_OVERRIDE=" + filepath.Join(r.dir, "dat.conf")}
		return process.Start(patience, env, r.command(c, end, line)...)
	}
	run := func(line string) error {
		p, err := start(ends.client, line)
		if err == nil {
			err = finish(p)
		}
		return err
	}
	server, err := start(ends.server, c.server)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.Until(patience/2, func() bool { return c.listening(server) }); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := run(c.client); err != nil {
		server.Stop()
		return fmt.Errorf("client: %w\nserver:\n%s", err, tail(server))
	}
	switch {
	case c.stays:
		return nil
	case c.quit != "":
		if err := run(c.quit); err != nil {
			return fmt.Errorf("quit: %w", err)
		}
	}
	if err := finish(server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// finish waits for the end of a program, and finds the failures that programs report in their
// output and not in their status.
func finish(p *process.Process) error {
	_, err := p.Wait()
	for _, word := range []string{"FAILED", "failed in file", "data mismatch"} {
		if err == nil && strings.Contains(p.Stdout.String()+p.Stderr.String(), word) {
			err = fmt.Errorf("it says %q", word)
		}
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(p))
	}
	return err
}

// listening reports whether the server takes a client: it says so, it has the TCP port, or it has
// had two seconds.
func (c *program) listening(p *process.Process) bool {
	switch {
	case c.says != "":
		return strings.Contains(p.Stdout.String()+p.Stderr.String(), c.says)
	case c.port != 0:
		ports, _ := os.ReadFile("/proc/net/tcp")
		return bytes.Contains(ports, fmt.Appendf(nil, ":%04X 00000000:0000 0A", c.port)) // 0A: LISTEN
	}
	time.Sleep(2 * time.Second)
	return true
}

// command is the command line of one end: IA is the adapter's name, ADDR the server's address.
func (r *runner) command(c *program, end, line string) []string {
	if end == goPeer {
		role := "server"
		if line == c.client {
			role = "client"
		}
		return []string{filepath.Join(r.bin, "peer"), c.peer, role, r.addr}
	}
	ia := map[string]string{library: "ofa", provider: "godat-" + r.device}[end]
	return strings.Fields(strings.NewReplacer("IA", ia, "ADDR", r.addr).Replace(line))
}

// tail is the end of what a program has written.
func tail(p *process.Process) string {
	lines := strings.Split(strings.TrimSpace(p.Stderr.String()+p.Stdout.String()), "\n")
	return "  | " + strings.Join(lines[max(0, len(lines)-12):], "\n  | ")
}
