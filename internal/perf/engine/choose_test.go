package engine

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

// An end chooses the device that has the address through which the ends reach each other, even if
// the device has several addresses. It opens the device by that address.
func TestChoose(t *testing.T) {
	all := []udat.ProviderInfo{
		{Name: "rxe0", Fabric: fabricVerbs, Active: true, Addr: "10.0.0.1", Addrs: []string{"10.0.0.1", "fd00::1"}},
		{Name: "rxe1", Fabric: fabricVerbs, Active: true, Addr: "10.0.1.1",
			Addrs: []string{"10.0.1.1", "10.0.1.7", "fd00:1::1", "fd00:1::7"}},
		{Name: "ib0", Fabric: fabricVerbs, Active: true, Addr: "10.0.2.1", Addrs: []string{"10.0.2.1", "fe80::1%eth2"}},
		{Name: "bare0", Fabric: fabricVerbs, Active: true},
		{Name: "mem0", Fabric: fabricMem, Active: true, Addr: "127.0.0.1"},
		{Name: "tcp", Fabric: "tcp", Active: true, Addr: "10.0.0.1"},
		{Name: "tcp:10.0.0.1", Fabric: "tcp", Active: true, Addr: "10.0.0.1"},
		{Name: "tcp:fd00::7", Fabric: "tcp", Active: true, Addr: "fd00::7"},
	}
	for _, c := range []struct{ device, local, name, open string }{
		{"", "10.0.0.1", "rxe0", "10.0.0.1"},
		{"", "fd00::1", "rxe0", "fd00::1"},
		{"", "10.0.1.1", "rxe1", "10.0.1.1"},
		{"", "10.0.1.7", "rxe1", "10.0.1.7"},
		{"", "::ffff:10.0.1.7", "rxe1", "10.0.1.7"},
		{"", "fd00:1::1", "rxe1", "fd00:1::1"},
		{"", "fd00:1::7", "rxe1", "fd00:1::7"},
		{"", "fe80::1%eth2", "ib0", "fe80::1%eth2"},
		{"", "127.0.0.1", "rxe0", "rxe0"},
		{"", "", "rxe0", "rxe0"},
		{"rxe1", "10.0.0.1", "rxe1", "rxe1"},
		{"10.0.1.7", "10.0.0.1", "rxe1", "10.0.1.7"},
		{"fd00:1:0::1", "10.0.0.1", "rxe1", "fd00:1::1"},
		{"mem0", "10.0.0.1", "mem0", "mem0"},
		{"tcp", "fd00::7", "tcp:fd00::7", "tcp:fd00::7"},
		{"tcp", "::ffff:10.0.0.1", "tcp:10.0.0.1", "tcp:10.0.0.1"},
		{"tcp", "10.0.0.9", "tcp", "tcp"},
		{"tcp", "fe80::1%eth0", "tcp:fe80::1%eth0", "tcp:fe80::1%eth0"},
		{"tcp", "", "tcp", "tcp"},
		{"tcp:fd00::7", "10.0.0.1", "tcp:fd00::7", "tcp:fd00::7"},
		{"tcp:127.0.0.2", "", "tcp:127.0.0.2", "tcp:127.0.0.2"},
		{"tcp:fe80::1%eth0", "10.0.0.1", "tcp:fe80::1%eth0", "tcp:fe80::1%eth0"},
	} {
		var local netip.Addr
		if c.local != "" {
			local = netip.MustParseAddr(c.local)
		}
		got, err := chooseFrom(all, c.device, local)
		assert.NilError(t, err)
		assert.Equal(t, got.Name+" "+got.open, c.name+" "+c.open, "%+v", c)
		if c.open != c.name {
			assert.Equal(t, got.Addr, c.open)
		}
	}
	for _, bad := range []string{"rxe2", "10.0.0.9", "127.0.0.1", "fd00::9"} {
		_, err := chooseFrom(all, bad, netip.Addr{})
		assert.ErrorContains(t, err, "no such device; there are: rxe0, rxe1, ib0, bare0, mem0, tcp")
	}
}

// fromHere gives a link-local address of the server the client's zone. It does not change other
// addresses.
func TestFromHere(t *testing.T) {
	for _, c := range []struct{ server, local, want string }{
		{"[fe80::1%eth0]:7", "fe80::2%enp3", "[fe80::1%enp3]:7"}, {"[fe80::1%eth0]:7", "fd00::2", "[fe80::1%eth0]:7"},
		{"[fd00::1]:7", "fe80::2%enp3", "[fd00::1]:7"}, {"10.0.0.1:7", "10.0.0.2", "10.0.0.1:7"},
	} {
		got := fromHere(netip.MustParseAddrPort(c.server), netip.MustParseAddr(c.local))
		assert.Equal(t, got.String(), c.want)
	}
}

// Measurements work with every address of every device, through each layer.
func TestByAddress(t *testing.T) {
	onEach(t, func(t *testing.T, device string, base result.Case) {
		for _, p := range udat.Providers() {
			if p.Name != device {
				continue
			}
			for _, addr := range p.Addrs {
				c := base
				c.Iters, c.QPs, c.Verify = 20, 2, true
				doc, err := measure(t, addr, c)
				assert.NilError(t, err, addr)
				assert.DeepEqual(t, []string{doc.Client.Device, doc.Client.Address, doc.Server.Device, doc.Server.Address},
					[]string{device, addr, device, addr})
			}
		}
	})
}
