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

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// A device also has the addresses of its VLANs, and connects from the address whose interface leads
// to the peer. It can be opened by any of its addresses, including link-local ones, and then
// listens on that address.
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
		l, err := d.Listen(0, nil, func(r fabric.Request) { requests <- r })
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

// TestFindAddrs: findAddrs returns each address once, best first: the address of the best GID, then
// those of its interface, IPv4 before IPv6. Empty entries, link-local addresses and entries of
// another network namespace are left out.
func TestFindAddrs(t *testing.T) {
	p := twoInterfaces()
	assert.DeepEqual(t, texts(p.addrs), texts(addrList("10.0.0.1", "fd00::1", "10.0.7.1", "fd00:7::1")))
	p.gid = p.table[3]
	assert.DeepEqual(t, texts(p.findAddrs()), texts(addrList("fd00:7::1", "10.0.7.1", "10.0.0.1", "fd00::1")))
	p = twoInterfaces()
	again := gidEntry("10.0.0.1", 2, "eth0")
	again.Type = cverbs.GIDTypeRoCEv1
	p.table = append(p.table, again, cverbs.GIDEntry{Index: 3, NetDev: "eth0"}, gidEntry("10.9.9.9", 10, ""),
		gidEntry("10.0.0.2", 11, "eth0"))
	assert.DeepEqual(t, texts(p.findAddrs()), texts(addrList("10.0.0.1", "10.0.0.2", "fd00::1", "10.0.7.1", "fd00:7::1")))
}

func texts(addrs []netip.Addr) (list []string) {
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}

// TestUse: a port that is opened by an address uses that address and one of the other family on the
// same interface, wherever they are in the list.
func TestUse(t *testing.T) {
	for _, c := range []struct{ by, want, other string }{
		{"10.0.0.1", "10.0.0.1", "fd00::1"},
		{"fd00::1", "fd00::1", "10.0.0.1"},
		{"10.0.7.1", "10.0.7.1", "fd00:7::1"},
		{"fd00:7::1", "fd00:7::1", "10.0.7.1"},
		{"fe80::1", "fe80::1%eth0", "10.0.0.1"},
		{"fe80::7%eth0.7", "fe80::7%eth0.7", "10.0.7.1"},
	} {
		p := twoInterfaces()
		assert.Assert(t, p.use(addr(c.by)), c.by)
		assert.DeepEqual(t, texts(p.addrs), []string{c.want, c.other})
		assert.Equal(t, p.info.Addr, addr(c.want))
		assert.Equal(t, len(p.info.Addrs), 4)
	}
	p := twoInterfaces()
	for _, foreign := range []string{"10.0.0.2", "fe80::7%eth0", "fe80::9", "fd00::2"} {
		assert.Assert(t, !p.use(addr(foreign)), foreign)
	}
	assert.Equal(t, len(p.addrs), 4)
	p.table[5].NetDev = "eth1" // no IPv6 address is left on eth0
	assert.Assert(t, p.use(addr("10.0.0.1")))
	assert.DeepEqual(t, texts(p.addrs), []string{"10.0.0.1"})
}

// TestSourceFor: the source address has the family and scope of the destination.
func TestSourceFor(t *testing.T) {
	p := twoInterfaces()
	for dst, want := range map[string]string{
		"192.0.2.1": "10.0.0.1", "2001:db8::1": "fd00::1", "fe80::5": "fd00::1", "fe80::5%eth0": "fd00::1",
	} {
		src, ok := p.sourceFor(addr(dst))
		assert.Assert(t, ok)
		assert.Equal(t, src, addr(want), dst)
	}
	assert.Assert(t, p.use(addr("fe80::7")))
	for dst, want := range map[string]string{
		"fe80::5": "fe80::7%eth0.7", "2001:db8::1": "fe80::7%eth0.7", "192.0.2.1": "10.0.7.1",
	} {
		src, ok := p.sourceFor(addr(dst))
		assert.Assert(t, ok)
		assert.Equal(t, src, addr(want), dst)
	}
	p.addrs = addrList("10.0.0.1")
	_, ok := p.sourceFor(addr("2001:db8::1"))
	assert.Assert(t, !ok)
	// If several interfaces have a suitable address, the host's routes choose one, even if the
	// first address would be suitable.
	p.table = append(p.table, gidEntry("127.0.0.1", 12, "lo"))
	p.addrs = addrList("10.0.0.1", "127.0.0.1")
	src, ok := p.sourceFor(addr("127.0.0.1"))
	assert.Assert(t, ok)
	assert.Equal(t, src, addr("127.0.0.1"))
}
