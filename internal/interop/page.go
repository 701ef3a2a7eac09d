package main

import (
	"bytes"
	"fmt"
	"strings"
)

// markdown is the page docs/interop.md: one row for each case, one column for each pair of ends.
func markdown(results []result) []byte {
	var b bytes.Buffer
	b.WriteString(strings.ReplaceAll(`# Beside the C library

Made by 'make interop', which runs the test programs of OpenFabrics DAPL and librdmacm on soft-RoCE
in the virtual machine. C is a program over the C library, godat the same program over
[the provider](provider.md), Go a program of 'internal/interop/peer' on package 'udat'. Each column
names the server first. Where the C programs fail among themselves, the fault is theirs.

`, "'", "`"))
	columns := []pair{{library, library}, {provider, provider}, {provider, library}, {library, provider},
		{goPeer, library}, {library, goPeer}}
	b.WriteString("| Program |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s, %s |", c.server, c.client)
	}
	b.WriteString("\n|---|" + "---|---|---|---|---|---|\n")
	for i := 0; i < len(results); {
		name := results[i].name
		cells := map[pair]string{}
		for ; i < len(results) && results[i].name == name; i++ {
			cell := "passed"
			if results[i].err != nil {
				cell = "**failed**"
			}
			if results[i].explained {
				cell = "failed, as C, C"
			}
			cells[pair{results[i].server, results[i].client}] = cell
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cells[c])
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}
