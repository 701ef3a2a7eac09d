package verbsfabric

import (
	"net/netip"
	"os"
	"testing"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/fabrictest"
)

// testDevice returns the name of the device to test. If GODAT_TEST_DEVICE is set, a missing device
// is a failure.
func testDevice(t *testing.T) string {
	t.Helper()
	name := os.Getenv("GODAT_TEST_DEVICE")
	devs, err := New().Devices()
	if name != "" {
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, d := range devs {
		if d.Active && d.Addr.IsValid() {
			return d.Name
		}
	}
	t.Skipf("no RDMA device: %v", err)
	return ""
}

func TestContract(t *testing.T) {
	name := testDevice(t)
	t.Cleanup(func() {
		if live := cverbs.Live(); len(live) > 0 {
			t.Errorf("left behind: %v", live)
		}
	})
	fabrictest.Run(t, fabrictest.Config{
		Open: func(opts fabric.Options, async func(fabric.AsyncEvent)) (fabric.Device, error) {
			return New().Open(name, opts, async)
		},
		Unreachable: netip.MustParseAddrPort("[2001:db8::1]:9"), // of the documentation prefix: no route
		Cycles:      1000,
	})
}
