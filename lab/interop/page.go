package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// markdown returns the page docs/interop.md. It has tables for DAPL and for librdmacm, with a row
// for each case and a column for each pair of ends. Below the tables it says why cases fail.
func markdown(results []result) []byte {
	var b bytes.Buffer
	b.WriteString(strings.ReplaceAll(`# Beside the C library

Made by 'make interop': the test programs of OpenFabrics DAPL and librdmacm on soft-RoCE in the
virtual machine. Each column names the server first, then the client:

- C: the program over the C library.
- godat: the same program over [the provider](provider.md).
- Go: a program of [lab/interop/peer](../lab/interop/peer) on package 'udat'.
- tcp: one of these two without a device, on the tcp fabric. The program over the C library is then
  on the kernel's soft-iWARP.

'dapltest' exits with status 0 when it has failed: its rows pass if client and server say that the
test is complete, and nothing of warnings and errors. The rows 'host' are tests of
[host.c](../cmd/libgodat/testdata/host.c).

Where the C programs fail among themselves, the fault is theirs. A server of 'dtest' tells its
client its address before it listens: a client that comes too early tries again, twice. The command
lines are in [cases.go](../lab/interop/cases.go).
`, "'", "`"))
	soft := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return !iwarp(r.Device) })
	results = slices.DeleteFunc(slices.Clone(results), func(r result) bool { return iwarp(r.Device) })
	all := func(program) bool { return true }
	manner := func(c program) bool { return strings.HasPrefix(c.client, "host ") }
	b.WriteString(table("Programs of DAPL", dat, results, func(c program) bool {
		return c.ends != nil && slices.Contains(dat, c.ends[1]) && !manner(c)
	}))
	b.WriteString(table("Manners of a guest", alone, results, manner))
	b.WriteString(table("Programs of librdmacm", withGo, results, func(c program) bool {
		return c.ends != nil && slices.Contains(withGo, c.ends[1])
	}))
	if len(soft) > 0 {
		b.WriteString(table("The tcp fabric beside soft-iWARP", withTCP, soft, all))
		b.WriteString(table("Private data, read depths and rejects beside soft-iWARP", goWithTCP, soft, all))
	}
	results = append(results, soft...)
	passed, failed, explained := count(results)
	fmt.Fprintf(&b, "\n%d passed, %d failed", passed, failed)
	if explained > 0 {
		fmt.Fprintf(&b, "; %d fail for reasons of the C programs", explained)
	}
	b.WriteString(".\n")
	if notes := notes(results); notes != "" {
		b.WriteString("\n" + notes)
	}
	return b.Bytes()
}

// table returns a table of the page, with the cases for which include returns true.
func table(title string, columns []pair, results []result, include func(program) bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n| Program |", title)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s, %s |", c.server, c.client)
	}
	b.WriteString("\n|" + strings.Repeat("---|", 1+len(columns)) + "\n")
	for _, c := range cases {
		if !include(c) {
			continue
		}
		cells := map[pair]string{}
		for _, res := range results {
			if res.Name == c.name && slices.Contains(columns, c.endsOn(res.Device)[1]) {
				cells[pair{res.Server, res.Client}] = cell(res)
			}
		}
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, column := range columns {
			fmt.Fprintf(&b, " %s |", cells[column])
		}
		b.WriteString("\n")
	}
	return b.String()
}

func cell(res result) string {
	switch {
	case res.Failure == "" && res.Attempts > 1:
		return fmt.Sprintf("passed, attempt %d", res.Attempts)
	case res.Failure == "":
		return "passed"
	case res.Explained && res.amongC():
		return "fails"
	case res.Explained && res.unlike():
		return "fails, see below"
	case res.Explained:
		return "fails, as C, C"
	}
	return "**failed**"
}

// notes returns the reasons why C programs fail among themselves, or with an end on the tcp fabric.
func notes(results []result) string {
	var b strings.Builder
	for _, res := range results {
		i := slices.IndexFunc(cases, func(c program) bool { return c.name == res.Name })
		switch {
		case res.Explained && res.amongC():
			note := cmp.Or(cases[i].note, "soft-iWARP does not have what it needs")
			fmt.Fprintf(&b, "- `%s` fails with the C library alone%s:\n  %s.\n", res.Name, res.where(), note)
		case res.Explained && res.unlike() && res.Server == overTCP:
			fmt.Fprintf(&b, "- `%s` fails with `tcp` and soft-iWARP:\n  %s.\n", res.Name, cases[i].unlike)
		}
	}
	return b.String()
}

// The method unlike reports whether the result is of a case that cannot work between the tcp fabric
// and soft-iWARP. The result must be from soft-iWARP, and must not be from two C programs.
func (r result) unlike() bool {
	i := slices.IndexFunc(cases, func(c program) bool { return c.name == r.Name })
	return iwarp(r.Device) && i >= 0 && cases[i].unlike != "" && !r.amongC()
}

func (r result) where() string {
	if iwarp(r.Device) {
		return " on soft-iWARP"
	}
	return ""
}

func (r result) amongC() bool { return r.Server == library && r.Client == library }
