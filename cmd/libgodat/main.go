// Libgodat is a DAT 2.0 provider that uses package udat: a shared library that the unmodified
// libdat2 loads, so that C programs written for uDAPL run on godat. Built as a program, it prints
// the lines of dat.conf that name the devices of this host. docs/provider.md says how to use both.
//
// The tag dat2 selects the provider, and needs the headers of libdat2 (Debian: libdapl-dev):
//
//	make provider      # bin/libgodat.so and bin/dat.conf
//	DAT_OVERRIDE=bin/dat.conf dapltest -T F -D godat-mem0 -f hwconn
//
// shim.c contains the table of functions and converts events to the layouts of C. handles.go
// contains the handles. Calls enter Go through enter.c and call.go, and wait in wait.c. The other
// files translate the calls on one type of object each.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/godat/godat/udat"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: libgodat LIBRARY    prints dat.conf for the devices of this host")
		os.Exit(2)
	}
	library, err := filepath.Abs(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "libgodat:", err)
		os.Exit(1)
	}
	for _, p := range udat.Providers() {
		for _, safety := range []string{"nonthreadsafe", "threadsafe"} { // a program asks libdat2 for one of them
			fmt.Printf("godat-%s u2.0 %s default %s dapl.2.0 \"%s\" \"\"\n", p.Name, safety, library, p.Name)
		}
	}
	if err := udat.WhyNoDevices(); err != nil {
		fmt.Fprintln(os.Stderr, "libgodat: no RDMA devices:", err)
	}
}
