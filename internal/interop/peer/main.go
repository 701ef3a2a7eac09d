// Peer is the other end of C programs, written on package udat: what porting such a program to Go
// looks like.
//
//	peer rping server ADDR     serves one rping -c
//	peer rping client ADDR     is the client of rping -s
package main

import (
	"fmt"
	"net/netip"
	"os"
)

func main() {
	if len(os.Args) != 4 || os.Args[1] != "rping" {
		fmt.Fprintln(os.Stderr, "usage: peer rping server|client ADDR")
		os.Exit(2)
	}
	addr, err := netip.ParseAddr(os.Args[3])
	if err == nil {
		err = rping(os.Args[2], addr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}
