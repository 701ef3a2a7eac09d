// Peer is the other end of C programs, written on package udat: what such a program looks like when
// it is ported to Go. Each program has a file, which begins with its protocol; end.go has what they
// share.
//
//	peer PROGRAM server|client ADDR [CLIENTS]
//
// ADDR is the address of the RDMA device, which is the server's too. CLIENTS is the number of
// clients that a server of rping serves, one after the other or at once.
package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// program is one program, both roles.
type program struct {
	server func(addr netip.Addr, clients int) error
	client func(addr netip.Addr) error
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
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	usage := fmt.Errorf("usage: peer PROGRAM server|client ADDR [CLIENTS]; PROGRAM is one of %s",
		strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	if len(args) < 3 || len(args) > 4 {
		return usage
	}
	p, ok := programs[args[0]]
	addr, err := netip.ParseAddr(args[2])
	if !ok || err != nil {
		return usage
	}
	clients := 1
	if len(args) == 4 {
		if clients, err = strconv.Atoi(args[3]); err != nil || clients < 1 {
			return usage
		}
	}
	switch args[1] {
	case "server":
		return p.server(addr, clients)
	case "client":
		return p.client(addr)
	}
	return usage
}
