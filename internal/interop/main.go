// Interop runs the test programs of OpenFabrics DAPL and librdmacm with themselves, with peers
// written in Go on package udat, and on godat's DAT provider, and reports what passes. It runs
// where an RDMA device is, which `make interop` provides: the virtual machine.
//
//	interop --bin DIR [--device rxe0] [--results FILE] [--page FILE] [NAME...]
//
// NAME is the name of a case or its first words; default: all. The page has the latest result of
// each case in the file of results, which is JSON: a slow machine runs the cases in parts.
//
// Each case is a server and a client. A case that fails is compared with the same programs among
// themselves (the row "C, C"): where that fails too, the fault is the program's.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
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
	file := flag.String("results", "", "file of results, read and written")
	page := flag.String("page", "", "file for the report in Markdown")
	flag.Parse()
	if err := run(runner{bin: *bin, device: *device}, *file, *page, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(r runner, file, page string, names []string) error {
	var before []result
	if b, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(b, &before); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := r.prepare(); err != nil {
		return err
	}
	now := r.runAll(names)
	os.RemoveAll(r.dir)
	all := merge(before, now)
	if file != "" {
		b, err := json.MarshalIndent(all, "", "\t")
		if err == nil {
			err = os.WriteFile(file, b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if page != "" {
		if err := os.WriteFile(page, markdown(all), 0o644); err != nil {
			return err
		}
	}
	passed, failed, explained := count(now)
	fmt.Printf("interop: %d cases are not counted: the C programs fail in them among themselves too\n", explained)
	fmt.Printf("interop: %d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
	return nil
}

func count(results []result) (passed, failed, explained int) {
	for _, res := range results {
		switch {
		case res.Failure == "":
			passed++
		case res.Explained:
			explained++
		default:
			failed++
		}
	}
	return passed, failed, explained
}

// merge returns the results in the order of the cases; the later ones prevail.
func merge(before, now []result) (all []result) {
	for _, c := range cases {
		own := func(list []result) []result {
			return slices.DeleteFunc(slices.Clone(list), func(r result) bool { return r.Name != c.name })
		}
		latest := own(now)
		if len(latest) == 0 {
			latest = own(before)
		}
		all = append(all, latest...)
	}
	return all
}

// runner runs cases on one device.
type runner struct {
	bin, device  string
	dir          string
	addr, addrV6 string
}

// prepare writes two configurations of libdat2. In both the adapter has the same name, because a
// server of dtest tells its client which one to open.
func (r *runner) prepare() error {
	for _, p := range udat.Providers() {
		if p.Name != r.device {
			continue
		}
		for _, addr := range p.Addrs {
			switch ip, err := netip.ParseAddr(addr); {
			case err != nil:
			case ip.Is4() && r.addr == "":
				r.addr = addr
			case ip.Is6() && !ip.IsLinkLocalUnicast() && r.addrV6 == "":
				r.addrV6 = addr
			}
		}
	}
	if r.addr == "" {
		return fmt.Errorf("no device %s with an IPv4 address here", r.device)
	}
	netdev, err := os.ReadFile("/sys/class/infiniband/" + r.device + "/ports/1/gid_attrs/ndevs/0")
	if err != nil {
		return err
	}
	if r.bin, err = filepath.Abs(r.bin); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "interop"); err != nil {
		return err
	}
	const line = ia + " u2.0 nonthreadsafe default %s dapl.2.0 %q \"\"\n"
	for end, conf := range map[string]string{
		library:  fmt.Sprintf(line, "libdaplofa.so.2", strings.TrimSpace(string(netdev))+" 0"),
		provider: fmt.Sprintf(line, filepath.Join(r.bin, "libgodat.so"), r.device),
	} {
		if err := os.WriteFile(r.conf(end), []byte(conf), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) conf(end string) string { return filepath.Join(r.dir, end+".conf") }

// result is the outcome of a case between two kinds of ends.
type result struct {
	Name, Server, Client string
	Failure              string // empty: passed
	Explained            bool   // the C programs fail among themselves too
	Attempts             int
	Seconds              float64
}

func (r *runner) runAll(names []string) []result {
	var results []result
	for i := range cases {
		c := &cases[i]
		asked := func(name string) bool { return strings.HasPrefix(c.name+" ", name+" ") }
		if len(names) > 0 && !slices.ContainsFunc(names, asked) {
			continue
		}
		baseline := true
		for _, ends := range c.ends {
			res := r.attempt(c, ends)
			if ends == (pair{library, library}) {
				baseline = res.Failure == ""
			}
			verdict := "ok"
			if res.Failure != "" {
				verdict = "FAILED: " + res.Failure
				if res.Explained = !baseline; res.Explained {
					verdict += "\n  (the C programs fail among themselves too)"
				}
			}
			fmt.Printf("%-26s server %-6s client %-6s %5.1fs  %s\n", c.name, ends.server, ends.client, res.Seconds, verdict)
			results = append(results, res)
		}
	}
	return results
}

// attempt runs a case. Servers of dtest and dtestx tell the client their address before they
// listen: a client that is too early for that may try again, twice.
func (r *runner) attempt(c *program, ends pair) result {
	start := time.Now()
	res := result{Name: c.name, Server: ends.server, Client: ends.client}
	for early := true; early && res.Attempts < 3; {
		res.Attempts++
		res.Failure, early = "", false
		if err := r.run(c, ends); err != nil {
			res.Failure = err.Error()
			early = c.tcp != 0 && (strings.Contains(res.Failure, "NON_PEER_REJECTED") ||
				strings.Contains(res.Failure, "!conn established: 0x4003")) // the same, as a number
		}
	}
	res.Seconds = time.Since(start).Seconds()
	return res
}

// patience bounds a case between one pair of ends.
const patience = 90 * time.Second

// run runs one case.
func (r *runner) run(c *program, ends pair) error {
	if c.server == "" {
		return r.judge(c, ends.client, c.client)
	}
	server, err := r.start(c, ends.server, c.server)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.Until(c.limit()/2, func() bool { return c.listening(server) }); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	clients := make(chan error)
	for range max(c.clients, 1) {
		go func() { clients <- r.judge(c, ends.client, c.client) }()
	}
	var failed error
	for range max(c.clients, 1) {
		failed = errors.Join(failed, <-clients)
	}
	if failed == nil && c.quit != "" {
		end := library
		if ends.client == goPeer {
			end = goPeer
		}
		failed = r.judge(c, end, c.quit)
	}
	if failed != nil || c.stays && ends.server != goPeer {
		server.Stop()
		if failed = errors.Join(failed, complaint(server)); failed != nil {
			failed = fmt.Errorf("client: %w\nserver:\n%s", failed, tail(server))
		}
		return failed
	}
	if err := c.finish(server, ends.server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

func (c *program) limit() time.Duration {
	if c.bound > 0 {
		return c.bound
	}
	return patience
}

// start starts one end.
func (r *runner) start(c *program, end, line string) (*process.Process, error) {
	return process.Start(c.limit(), []string{"DAT_OVERRIDE=" + r.conf(end)}, r.command(c, end, line)...)
}

// judge runs a command to its end.
func (r *runner) judge(c *program, end, line string) error {
	p, err := r.start(c, end, line)
	if err != nil {
		return err
	}
	if line == c.quit {
		end = "" // it says less
	}
	return c.finish(p, end)
}

// finish waits for the end of a program, and finds the failures that C programs report in their
// output and not in their status.
func (c *program) finish(p *process.Process, end string) error {
	_, err := p.Wait()
	if err == nil {
		err = complaint(p)
	}
	if err == nil && (end == library || end == provider) && !strings.Contains(said(p), c.passes) {
		err = fmt.Errorf("it does not say %q", c.passes)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(p))
	}
	return err
}

func said(p *process.Process) string { return p.Stderr.String() + p.Stdout.String() }

func complaint(p *process.Process) error {
	for _, word := range []string{"FAILED", "Result: FAIL", "failed in file", "data mismatch", "data miscompare"} {
		if strings.Contains(said(p), word) {
			return fmt.Errorf("it says %q", word)
		}
	}
	return nil
}

// listening reports whether the server takes a client.
func (c *program) listening(p *process.Process) bool {
	switch {
	case c.says != "":
		return strings.Contains(said(p), c.says)
	case c.tcp != 0:
		ports, _ := os.ReadFile("/proc/net/tcp")
		return bytes.Contains(ports, fmt.Appendf(nil, ":%04X 00000000:0000 0A", c.tcp)) // 0A: LISTEN
	}
	ids, _ := exec.Command("rdma", "resource", "show", "cm_id").Output()
	for line := range bytes.Lines(ids) {
		if bytes.Contains(line, []byte("state LISTEN")) && bytes.Contains(line, fmt.Appendf(nil, ":%d ", c.port)) {
			return true
		}
	}
	time.Sleep(200 * time.Millisecond) // the command is dear where the machine is emulated
	return false
}

// command is the command line of one end: IA is the adapter's name, ADDR the server's address.
func (r *runner) command(c *program, end, line string) []string {
	addr := r.addr
	if c.v6 {
		addr = r.addrV6
	}
	if end == goPeer {
		role, switches := "client", strings.Fields(c.switches)
		switch line {
		case c.server:
			role = "server"
		case c.quit:
			switches = []string{"-T", "Q"}
		}
		return append([]string{filepath.Join(r.bin, "peer"), c.peer, role, addr}, switches...)
	}
	return strings.Fields(strings.NewReplacer("IA", ia, "ADDR", addr).Replace(line))
}

// tail is the end of what a program has written.
func tail(p *process.Process) string {
	lines := strings.Split(strings.TrimSpace(said(p)), "\n")
	return "  | " + strings.Join(lines[max(0, len(lines)-12):], "\n  | ")
}
