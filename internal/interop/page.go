package main

import (
	"bytes"
	"fmt"
	"strings"
)

// markdown is the page docs/interop.md: one row for each case, one column for each pair of ends,
// and the reasons of failures.
func markdown(results []result) []byte {
	var b bytes.Buffer
	b.WriteString(strings.ReplaceAll(`# Beside the C library

Made by 'make interop': the test programs of OpenFabrics DAPL and librdmacm on soft-RoCE in the
virtual machine. C is a program over the C library, godat the same program over
[the provider](provider.md), Go a program of [internal/interop/peer](../internal/interop/peer) on
package 'udat'. Each column names the server first. Where the C programs fail among themselves, the
fault is theirs. A server of 'dtest' tells its client its address before it listens: a client that
comes too early tries again, twice. The command lines are in
[cases.go](../internal/interop/cases.go). Go has no column for '-t' of 'dtest', which only prints.

`, "'", "`"))
	columns := append(append([]pair{}, dat...), withGo[1:]...)
	b.WriteString("| Program |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s, %s |", c.server, c.client)
	}
	b.WriteString("\n|" + strings.Repeat("---|", 1+len(columns)) + "\n")
	var notes []string
	for _, c := range cases {
		cells := map[pair]string{}
		for _, res := range results {
			if res.Name != c.name {
				continue
			}
			cell := "passed"
			switch {
			case res.Failure == "" && res.Attempts > 1:
				cell = fmt.Sprintf("passed, attempt %d", res.Attempts)
			case res.Explained && res.Server == library && res.Client == library:
				cell = "fails"
				notes = append(notes, fmt.Sprintf("- `%s` fails with the C library alone:\n  %s.", c.name, c.note))
			case res.Explained:
				cell = "fails, as C, C"
			case res.Failure != "":
				cell = "**failed**"
			}
			cells[pair{res.Server, res.Client}] = cell
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
	passed, failed, explained := count(results)
	fmt.Fprintf(&b, "\n%d passed, %d failed", passed, failed)
	if explained > 0 {
		fmt.Fprintf(&b, "; %d fail as the C programs among themselves", explained)
	}
	b.WriteString(".\n")
	if len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, "\n") + "\n")
	}
	return b.Bytes()
}
