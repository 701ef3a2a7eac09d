package tcpfabric

import (
	"net/netip"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/fabrictest"
)

func TestContract(t *testing.T) {
	for _, name := range []string{"tcp:127.0.0.1", "tcp"} {
		t.Run(name, func(t *testing.T) {
			var unreachable netip.AddrPort
			if name != "tcp" {
				unreachable = netip.MustParseAddrPort("192.0.2.1:4711") // from the loopback interface
			}
			f := New()
			fabrictest.Run(t, fabrictest.Config{
				Open: func(opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
					return f.Open(name, opts, async)
				},
				Unreachable: unreachable,
				Cycles:      200,
			})
		})
	}
}
