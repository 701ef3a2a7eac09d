package memfabric

import (
	"net/netip"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/fabrictest"
)

func TestContract(t *testing.T) {
	f := New()
	fabrictest.Run(t, fabrictest.Config{
		Open: func(opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
			return f.Open("mem0", opts, async)
		},
		Unreachable: netip.MustParseAddrPort("192.0.2.1:4711"),
		Cycles:      1000,
	})
}
