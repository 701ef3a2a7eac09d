package verbsfabric

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// A device has the addresses of its VLANs too, and connects from the one whose interface leads to
// the peer. It opens by any of its addresses, link-local ones too, and then listens on this one.
func TestAddresses(t *testing.T) {
	o := openDevice(t)
	if os.Getenv("GODAT_VM") == "" || !strings.HasPrefix(o.dev.device, "rxe") {
		t.Skip("only the virtual machine may get a VLAN, and soft-iWARP is on no VLAN of its interface")
	}
	run := func(command string) {
		t.Helper()
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		assert.NilError(t, err, "%s: %s", command, out)
	}
	netdev := o.dev.gid.NetDev
	run("modprobe 8021q")
	run("ip link add link " + netdev + " name vlan9 type vlan id 9")
	defer run("ip link delete vlan9")
	run("ip addr add 10.99.0.1/24 dev vlan9 && ip addr add fd99::1/64 dev vlan9 nodad && ip link set vlan9 up")
	out, err := exec.Command("sh", "-c", "ip -6 -o addr show dev "+netdev+" scope link | awk '{print $4}'").Output()
	assert.NilError(t, err)
	local, err := netip.ParsePrefix(strings.TrimSpace(string(out)))
	assert.NilError(t, err)
	vlan := []netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd99::1")}

	var all []netip.Addr
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // the GID table follows the addresses
		d, err := New().Open(o.dev.device, fabric.Options{}, nil)
		assert.NilError(t, err)
		all = baseOf(d).addrs
		assert.NilError(t, d.Close())
		if slices.Contains(all, vlan[0]) && slices.Contains(all, vlan[1]) {
			break
		}
		assert.Assert(t, time.Now().Before(until), "%v", all)
	}
	own := o.dev.addrs
	assert.Assert(t, slices.Equal(all, append(slices.Clone(own), vlan...)), "%v, without the VLAN %v", all, own)

	first := openDevice(t) // it knows of the VLAN
	assert.Equal(t, first.dev.info.Addr, own[0])
	for _, to := range append(vlan, local.Addr().WithZone(netdev), own[0]) {
		d := openNamed(t, to.String())
		assert.Equal(t, d.Attr().Info.Addr, to)
		requests := make(chan fabric.Request, 1)
		l, err := d.Listen(0, func(r fabric.Request) { requests <- r })
		assert.NilError(t, err)
		assert.Equal(t, l.Addr().Addr(), to)
		c, events := first.connect(l.Addr())
		r := receive(t, requests)
		assert.Equal(t, r.LocalAddr().Addr(), to)
		if !to.IsLinkLocalUnicast() {
			assert.Equal(t, c.LocalAddr().Addr(), to)
		}
		assert.NilError(t, r.Reject(nil, true))
		assert.Equal(t, receive(t, events).Kind, fabric.EventPeerRejected)
		assert.NilError(t, c.Close())
		assert.NilError(t, l.Close())
	}
}
