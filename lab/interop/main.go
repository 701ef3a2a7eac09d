// Interop runs test programs of other projects, and reports which of them pass. Those of
// OpenFabrics DAPL run over the C library and over godat's DAT provider. Those of librdmacm run
// among themselves, and with peers that are written in Go on package udat. An RDMA device is
// needed: `make interop` runs Interop in the virtual machine.
//
//	interop --bin DIR [--device rxe0] [--results FILE] [--page FILE] [NAME...]
//
// NAME is the name of a case or its first words; default: all. The page has the latest result of
// each case in the file of results, which is JSON: a slow machine runs the cases in parts.
//
// On soft-iWARP (--device siw0) the other end of each C program is a process without a device, on
// the tcp fabric.
//
// Each case is a server and a client. If a case fails, the same C programs run among themselves
// (the column "C, C"). If they fail too, the fault is theirs.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/lab/process"
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
	fmt.Printf("interop: %d failures are the programs', and are not counted\n", explained)
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

// merge returns the results of both lists in the order of the cases. If both lists have results of
// a case, merge uses those of the second list.
func merge(earlier, later []result) (all []result) {
	for _, soft := range []bool{false, true} {
		for _, c := range cases {
			own := func(list []result) []result {
				return slices.DeleteFunc(slices.Clone(list), func(r result) bool {
					return r.Name != c.name || iwarp(r.Device) != soft
				})
			}
			latest := own(later)
			if len(latest) == 0 {
				latest = own(earlier)
			}
			all = append(all, latest...)
		}
	}
	return all
}

// runner runs cases on one device.
type runner struct {
	bin, device  string
	dir          string
	addr, addrV6 string
}

// prepare writes a configuration of libdat2 for each kind of end. In all of them the adapter has
// the same name, because a server of dtest tells its client which adapter to open.
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
	netdev, err := interfaceOf(r.addr)
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
		library:  fmt.Sprintf(line, "libdaplofa.so.2", netdev+" 0"),
		provider: fmt.Sprintf(line, filepath.Join(r.bin, "libgodat.so"), r.device),
		overTCP:  fmt.Sprintf(line, filepath.Join(r.bin, "libgodat.so"), "tcp:"+r.addr),
	} {
		if err := os.WriteFile(r.conf(end), []byte(conf), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// interfaceOf returns the name of the interface that has the address.
func interfaceOf(addr string) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		own, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range own {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().String() == addr {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the address %s", addr)
}

func (r *runner) conf(end string) string { return filepath.Join(r.dir, end+".conf") }

// result is the outcome of a case between two kinds of ends.
type result struct {
	Device               string
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
		baseline, first := true, len(results)
		for _, ends := range c.endsOn(r.device) {
			res := r.attempt(c, ends)
			if ends == (pair{library, library}) {
				baseline = res.Failure == ""
			}
			verdict := "ok"
			if res.Failure != "" {
				if baseline && c.note != "" && len(results) > first {
					results[first] = r.amongC(c, results[first])
					baseline = results[first].Failure == ""
				}
				verdict = "FAILED: " + res.Failure
				res.Explained = !baseline || iwarp(r.device) && c.unlike != "" && ends != (pair{library, library})
				if res.Explained {
					verdict += "\n  (the page says why)"
				}
			}
			fmt.Printf("%-26s server %-6s client %-6s %5.1fs  %s\n", c.name, ends.server, ends.client, res.Seconds, verdict)
			results = append(results, res)
		}
	}
	return results
}

// amongC runs the C programs of a case until they fail, but not more than ten times. It is for
// cases that fail only now and then. It returns the result of the failure. If the programs do not
// fail, it returns its argument passed.
func (r *runner) amongC(c *program, passed result) result {
	for range 10 {
		if res := r.attempt(c, pair{library, library}); res.Failure != "" {
			res.Explained = true
			return res
		}
	}
	return passed
}

// attempt runs a case. Servers of dtest and dtestx tell the client their address before they
// listen. So a case whose client has connected too early is run again, at most twice.
func (r *runner) attempt(c *program, ends pair) result {
	start := time.Now()
	res := result{Device: r.device, Name: c.name, Server: ends.server, Client: ends.client}
	for early := true; early && res.Attempts < 3; {
		res.Attempts++
		res.Failure, early = "", false
		if err := r.run(c, ends); err != nil {
			res.Failure = err.Error()
			// On soft-iWARP rdma_cm may choose a port that a socket of this host already uses.
			taken := iwarp(r.device) && strings.Contains(res.Failure, "rdma_connect ERR -1 Address already in use")
			early = taken || c.tcp != 0 && (strings.Contains(res.Failure, "NON_PEER_REJECTED") ||
				strings.Contains(res.Failure, "!conn established: 0x4003")) // the number of NON_PEER_REJECTED
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
	if err := server.Until(c.limit()/2, func() bool { return c.listening(server, ends.server) }); err != nil {
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
		failed = r.judge(c, library, c.quit)
	}
	if failed != nil || c.stays && !c.isPeer(ends.server) {
		server.Stop()
		if failed = errors.Join(failed, c.complaint(server)); failed != nil {
			failed = fmt.Errorf("client: %w\nserver:\n%s", failed, tail(server))
		}
		return failed
	}
	if err := c.finish(server, ends.server, true); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// isPeer reports whether the end is a Go program, and not a C program on a library.
func (c *program) isPeer(end string) bool { return end == goPeer || end == overTCP && c.peer != "" }

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

// judge runs a command until it ends, and checks the outcome.
func (r *runner) judge(c *program, end, line string) error {
	p, err := r.start(c, end, line)
	if err != nil {
		return err
	}
	if line == c.quit {
		end = "" // this command does not print c.passes
	}
	return c.finish(p, end, false)
}

// finish waits for the end of a program. It also finds failures that C programs report only in
// their output, and not in their status.
func (c *program) finish(p *process.Process, end string, server bool) error {
	_, err := p.Wait()
	if err == nil {
		err = c.complaint(p)
	}
	want := c.passes
	if server && c.served != "" {
		want = c.served
	}
	if err == nil && end != "" && !c.isPeer(end) && !strings.Contains(said(p), want) {
		err = fmt.Errorf("it does not say %q", want)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(p))
	}
	return err
}

func said(p *process.Process) string { return p.Stderr.String() + p.Stdout.String() }

// complaints are texts that programs print when something has failed. ofDapltest are further texts
// of dapltest, which exits with status 0 even if something has failed.
var (
	complaints = []string{"FAILED", "Result: FAIL", "failed in file", "data mismatch", "data miscompare"}
	ofDapltest = []string{"arning", "rror", "fails", "failed", "mismatch", "retrying", "imed out", "unexpected"}
)

func (c *program) complaint(p *process.Process) error {
	words := complaints
	if c.dapltest {
		words = slices.Concat(words, ofDapltest)
	}
	for line := range strings.Lines(said(p)) {
		for _, word := range words {
			if strings.Contains(line, word) && !slices.ContainsFunc(c.harmless, func(s string) bool {
				return strings.Contains(line, s)
			}) {
				return fmt.Errorf("it says %q", strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// listening reports whether the server accepts clients. The parameter end says what kind of end the
// server is.
func (c *program) listening(p *process.Process, end string) bool {
	switch {
	case c.says != "":
		return strings.Contains(said(p), c.says)
	case c.tcp != 0:
		return listensTCP(c.tcp)
	case end == overTCP:
		return listensTCP(c.port)
	}
	ids, _ := exec.Command("rdma", "resource", "show", "cm_id").Output()
	for line := range bytes.Lines(ids) {
		if bytes.Contains(line, []byte("state LISTEN")) && bytes.Contains(line, fmt.Appendf(nil, ":%d ", c.port)) {
			return true
		}
	}
	time.Sleep(200 * time.Millisecond) // the command takes long on an emulated machine
	return false
}

// listensTCP reports whether a socket of this host listens on the port.
func listensTCP(port int) bool {
	const listen = "0A"
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		sockets, _ := os.ReadFile(file)
		for line := range strings.Lines(string(sockets)) {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listen {
				return true
			}
		}
	}
	return false
}

// command returns the command line of one end. In the template, IA stands for the adapter's name,
// and ADDR for the server's address.
func (r *runner) command(c *program, end, template string) []string {
	addr := r.addr
	if c.v6 {
		addr = r.addrV6
	}
	if end == overTCP && c.isPeer(end) {
		addr = "tcp:" + addr
	}
	if c.isPeer(end) {
		if template == c.server {
			return append([]string{filepath.Join(r.bin, "peer"), c.peer, "server", addr}, strings.Fields(c.switches)...)
		}
		return []string{filepath.Join(r.bin, "peer"), c.peer, "client", addr}
	}
	words := strings.Fields(strings.NewReplacer("IA", ia, "ADDR", addr).Replace(template))
	if words[0] == "host" {
		words[0] = filepath.Join(r.bin, words[0])
	}
	return words
}

// tail returns the end of what a program has written.
func tail(p *process.Process) string {
	lines := strings.Split(strings.TrimSpace(said(p)), "\n")
	return "  | " + strings.Join(lines[max(0, len(lines)-12):], "\n  | ")
}
