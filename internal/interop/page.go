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
fault is theirs. The command lines are in [cases.go](../internal/interop/cases.go).

`, "'", "`"))
	columns := append(append([]pair{}, dat...), withGo[1:]...)
	b.WriteString("| Program |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s, %s |", c.server, c.client)
	}
	b.WriteString("\n|" + strings.Repeat("---|", 1+len(columns)) + "\n")
	var notes []string
	passed, failed, explained := 0, 0, 0
	for i := 0; i < len(results); {
		first := results[i]
		cells := map[pair]string{}
		unlike := false // the C programs among themselves fail
		for ; i < len(results) && results[i].name == first.name; i++ {
			cell := "passed"
			switch {
			case results[i].err == nil:
				passed++
			case results[i].explained:
				cell, unlike = "fails, as C, C", true
				explained++
			default:
				cell = "**failed**"
				failed++
			}
			cells[pair{results[i].server, results[i].client}] = cell
		}
		if unlike && cells[cOnly[0]] != "passed" {
			cells[cOnly[0]] = "fails"
			notes = append(notes, fmt.Sprintf("- `%s` fails with the C library alone: %s.", first.name, first.note))
		}
		fmt.Fprintf(&b, "| %s |", first.name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cells[c])
		}
		b.WriteString("\n")
	}
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
