package main

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) {
	adapter = func(netip.Addr) string { return "mem0" }
	leaktest.Main(m)
}

// Both ends of a program, in this process.
func TestBothEnds(t *testing.T) {
	for _, c := range []struct{ name, server string }{
		{"rdma", ""},
		{"rdmax", ""},
		{"rping", "-clients 1"},
		{"ucmatose", ""},
		{"cmtime", ""},
		{"setup", ""},
		{"ib_send_bw", ""},
		{"ib_write_bw", ""},
		{"ib_read_bw", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := programs[c.name]
			addr := netip.MustParseAddr("127.0.0.1")
			ended, ready := make(chan error, 1), make(chan struct{})
			listening = sync.OnceFunc(func() { close(ready) })
			go func() { ended <- p.server(addr, strings.Fields(c.server)) }()
			// A client of several connections that comes too early could lose its first connections, and use
			// up the server with the others.
			select {
			case <-ready:
			case err := <-ended:
				t.Fatal("the server has ended: ", err)
			}
			assert.NilError(t, p.client(addr, nil))
			assert.NilError(t, <-ended)
		})
	}
}
