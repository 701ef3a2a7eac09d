// Peer is the other end of C programs, written on package udat. It shows what such a program looks
// like when it is ported to Go. Each program has a file, which begins with the protocol of the
// program. end.go has what the programs share.
//
//	peer PROGRAM server|client ADDR [SWITCH...]
//
// ADDR is the address of the RDMA device, which the server and the client share. tcp:ADDR selects
// the tcp fabric on that address. The switch -clients of rping's server is the number of clients
// after which the server ends. The other programs have no switches.
package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// tcp is the prefix of addresses that select the tcp fabric.
const tcp = "tcp:"

// program has the functions of a program, one for each role.
type program struct {
	server, client func(addr netip.Addr, switches []string) error
}

var programs = map[string]program{
	"rping":    {rpingServer, rpingClient},
	"rdma":     {rdmaServer, rdmaClient},
	"rdmax":    {rdmaxServer, rdmaxClient},
	"ucmatose": {cmatoseServer, cmatoseClient},
	"cmtime":   {cmtimeServer, cmtimeClient},
	"setup":    {setupServer, setupClient},

	"ib_send_bw":  sendBW.program(),
	"ib_write_bw": writeBW.program(),
	"ib_read_bw":  readBW.program(),
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
	addr, err := netip.ParseAddr(strings.TrimPrefix(args[2], tcp))
	if strings.HasPrefix(args[2], tcp) {
		adapter = func(a netip.Addr) string { return tcp + a.String() }
	}
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
