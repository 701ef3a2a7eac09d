package tcpfabric

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestAddressIsRenewed: if all openings of a device are closed, the next opening has the address
// that the host has then.
func TestAddressIsRenewed(t *testing.T) {
	f := New()
	open := func() fabric.Device {
		d, err := f.Open("tcp", fabric.Options{}, nil)
		assert.NilError(t, err)
		return d
	}
	first := open()
	old := netip.MustParseAddr("198.51.100.1") // the host's address, until it changes
	f.adapters["tcp"].Attr.Info.Addr = old
	second := open()
	assert.Equal(t, second.Attr().Info.Addr, old, "openings share the adapter")
	assert.NilError(t, first.Close())
	assert.NilError(t, second.Close())
	third := open()
	defer third.Close()
	assert.Equal(t, third.Attr().Info.Addr, hostAddr())
}
