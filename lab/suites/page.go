package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

const pageHead = `# Tests of other projects over rdmanet

The command make suites writes this page. It runs the tests of Go's standard library and of other
projects over TCP, and again with each TCP connection replaced by one of rdmanet: package net is
built with hooks in Dialer.DialContext and ListenConfig.Listen, which net/http, crypto/tls and all
others call. The tests are those of the versions below, unchanged but for the edits in
lab/suites/suites.go, which replace the type net.TCPConn by the methods that a test needs of it. A
test that fails over TCP too is no failure.

The last line, programs, are clients and servers as a user writes them (lab/suites/programs):
net/rpc, net/http with HTTP/1 and HTTP/2, fasthttp, go-redis with redcon, gRPC, Connect, ssh, sftp,
NATS and yamux, each in one process and, where the device connects two, in two.

`

// guestTitle is the title of the part of the page about runs in the virtual machine.
const guestTitle = "\n## On soft-RoCE\n"

const guestHead = `
Some suites on rxe0 in the machine of ci/%s.sh, beside TCP there. The program lab/suites
with the options -guest %[1]s -devices rxe0 writes this part.

`

// writePage writes one of the two parts of the page: the part about the virtual machine if guest is
// not empty, otherwise the part about the host. A part consists of the table and the tests that
// differ. The other part stays as it is.
func writePage(file string, devices []string, rows []row, guest string) error {
	old, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	host, rest, found := strings.Cut(string(old), guestTitle)
	if guest != "" {
		rest, found = fmt.Sprintf(guestHead, guest)+table(devices, rows)+"\n"+differences(devices, rows), true
	} else {
		host = pageHead + table(devices, rows) + `
A column of a device has the tests that passed. "Connections" are those of rdmanet.

## Differences

` + differences(devices, rows)
	}
	if found {
		host += guestTitle + rest
	}
	return os.WriteFile(file, []byte(host), 0o644)
}

// table returns a table with a row for each suite.
func table(devices []string, rows []row) string {
	var b strings.Builder
	columns := append([]string{""}, devices...)
	var names []string
	for _, dev := range columns {
		names = append(names, nameOf(dev))
	}
	fmt.Fprintf(&b, "| Suite | Version | Tests | %s | Connections | Differences |\n|---|---|---|%s---|---|\n",
		strings.Join(names, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range rows {
		ran, _ := r.on[""].count()
		fmt.Fprintf(&b, "| %s | %s | %d |", r.title(), r.version, ran)
		differ := 0
		for _, dev := range columns {
			_, good := r.on[dev].count()
			fmt.Fprintf(&b, " %d |", good)
			differ = max(differ, len(r.differences(dev)))
		}
		fmt.Fprintf(&b, " %d | %d |\n", r.connections, differ)
	}
	return b.String()
}

// differences returns a table with a row for each test that differs from TCP, and the reason.
func differences(devices []string, rows []row) string {
	if !slices.ContainsFunc(rows, func(r row) bool { return len(r.all(devices)) > 0 }) {
		return "Nothing that passes over TCP fails on a device.\n"
	}
	var b strings.Builder
	b.WriteString(`What failed on a device and passed over TCP. Where no reason was known, it ran twice more, alone.

| Test | Failures | Alone | Why |
|---|---|---|---|
`)
	for _, r := range rows {
		all := r.all(devices)
		for len(all) > 0 {
			first := all[0]
			count := map[string]int{}
			all = slices.DeleteFunc(all, func(d difference) bool {
				same := d.label == first.label && d.why == first.why
				if same {
					count[d.device]++
				}
				return same
			})
			var failures []string
			for _, dev := range devices {
				if n := count[dev]; n > 0 {
					failures = append(failures, fmt.Sprintf("%d on %s", n, dev))
				}
			}
			fmt.Fprintf(&b, "| %s %s | %s | %s | %s |\n", r.title(), first.label, strings.Join(failures, ", "), first.alone,
				first.reason())
		}
	}
	return b.String()
}
