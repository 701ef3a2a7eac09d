package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/udat"
)

func TestMain(m *testing.M) {
	adapter = func(netip.Addr) string { return "mem0" }
	leaktest.Main(m)
}

// Both ends of a program, in this process. Those of dtest and its family also speak over a TCP port
// that other tests use: make interop runs them.
func TestBothEnds(t *testing.T) {
	for _, c := range []struct{ name, server, client string }{
		{"rdma", "", ""},
		{"rdmax", "", ""},
		{"rping", "-clients 1", ""},
		{"ucmatose", "", ""},
		{"cmtime", "", ""},
		{"dtestsrq", "", ""},
		{"dapltest", "", "-T T -i 10 -t 2 -w 2 -V client SR 1024 2 server SR 1024 client RW 4096 server RR 512"},
		{"dapltest", "", "-T T -i 10 -r -P client SR server SR"},
		{"dapltest", "", "-T P -i 100 -p 8 -m p RW 4096"},
		{"dapltest", "", "-T P -i 100 RR 4096"},
	} {
		t.Run(c.name+" "+c.client, func(t *testing.T) {
			p := programs[c.name]
			addr := netip.MustParseAddr("127.0.0.1")
			ended := make(chan error, 1)
			go func() { ended <- p.server(addr, strings.Fields(c.server)) }()
			assert.NilError(t, whenListening(func() error { return p.client(addr, strings.Fields(c.client)) }))
			if c.name == "dapltest" {
				assert.NilError(t, p.client(addr, []string{"-T", "Q"}))
			}
			assert.NilError(t, <-ended)
		})
	}
}

// whenListening repeats the call of a client that came before its server listened.
func whenListening(call func() error) (err error) {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if err = call(); err == nil || !strings.Contains(err.Error(), udat.EventConnectionNonPeerRejected.String()) {
			return err
		}
	}
	return err
}

// A server of dapltest refuses what it does not serve, whatever the numbers are.
func TestReceiveCommand(t *testing.T) {
	asked, err := parseDapltest(strings.Fields("-T T -i 3 -t 2 -w 4 -r -V client RW 100 2 client SR server SR 8"))
	assert.NilError(t, err)
	b := make([]byte, daplMessage)
	asked.put(b)
	heard, err := receiveCommand(daplTransaction, b)
	assert.NilError(t, err)
	heard.pipeline = asked.pipeline // not in this test's command
	assert.DeepEqual(t, *heard, asked, cmp.AllowUnexported(daplCommand{}, daplOp{}))
	for at := 264; at < 568+3*opBytes; at += 4 {
		hostile := append([]byte{}, b...)
		copy(hostile[at:], "\xff\xff\xff\xff")
		if c, err := receiveCommand(daplTransaction, hostile); err == nil {
			assert.Assert(t, c.connections() <= 64 && c.memory() <= daplOps+daplMostOps*daplMost, "at %d: %+v", at, c)
		}
	}
	for _, wrong := range []string{"-T X", "-T P SR 8", "-T P RW 8 RR 8", "-T T client", "-T T client XX",
		"-T T -t 65 client SR", "-T T -i 0 client SR", "-T P RW 0", "-T P RW 2000000", "-T P -p 0 RW 8"} {
		_, err := parseDapltest(strings.Fields(wrong))
		assert.Assert(t, err != nil, wrong)
	}
}
