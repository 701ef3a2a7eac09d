package tcpfabric

import (
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestOpenManyHosts: a device opens with an address of this host, but not with one that belongs to
// no host or to several.
func TestOpenManyHosts(t *testing.T) {
	names := []string{"0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "127.255.255.255", "::ffff:0.0.0.0"}
	addrs, err := net.InterfaceAddrs()
	assert.NilError(t, err)
	for _, a := range addrs {
		n := a.(*net.IPNet)
		if n.IP.IsLinkLocalUnicast() {
			continue // it may need a zone
		}
		d, err := New().Open(prefix+n.IP.String(), fabric.Options{}, nil)
		assert.NilError(t, err, n.IP)
		d.Close()
		if ip := n.IP.To4(); ip != nil && n.Mask[3] == 0 {
			names = append(names, net.IPv4(ip[0], ip[1]|^n.Mask[1], ip[2]|^n.Mask[2], 255).String())
		}
	}
	for _, name := range names {
		_, err := New().Open(prefix+name, fabric.Options{}, nil)
		assert.ErrorIs(t, err, fabric.ErrAddrInvalid, name)
		assert.ErrorContains(t, err, name)
	}
	d, err := New().Open(prefix+"127.7.7.7", fabric.Options{}, nil)
	assert.NilError(t, err)
	d.Close()
}
