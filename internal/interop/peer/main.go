// Peer is the other end of C programs, written on package udat: what such a program looks like when
// it is ported to Go. Each program has a file, which begins with its protocol; end.go has what they
// share.
//
//	peer PROGRAM server|client ADDR [SWITCH...]
//
// ADDR is the address of the RDMA device, which is the server's too. The switches of dtest and of a
// client of dapltest are those of the C program. A server of rping ends after -clients of them.
package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// program is one program, both roles.
type program struct {
	server, client func(addr netip.Addr, switches []string) error
}

var programs = map[string]program{
	"rping":    {rpingServer, rpingClient},
	"rdma":     {rdmaServer, rdmaClient},
	"rdmax":    {rdmaxServer, rdmaxClient},
	"ucmatose": {cmatoseServer, cmatoseClient},
	"cmtime":   {cmtimeServer, cmtimeClient},
	"dapltest": {daplServer, daplClient},
	"dtest":    {dtestServer, dtestClient},
	"dtestcm":  {dtestcmServer, dtestcmClient},
	"dtestsrq": {dtestsrqServer, dtestsrqClient},
	"dtestx":   {dtestxServer, dtestxClient},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	usage := fmt.Errorf("usage: peer PROGRAM server|client ADDR [SWITCH...]; PROGRAM is one of %s",
		strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	if len(args) < 3 {
		return usage
	}
	p, ok := programs[args[0]]
	addr, err := netip.ParseAddr(args[2])
	if !ok || err != nil {
		return usage
	}
	switch args[1] {
	case "server":
		return p.server(addr, args[3:])
	case "client":
		return p.client(addr, args[3:])
	}
	return usage
}
