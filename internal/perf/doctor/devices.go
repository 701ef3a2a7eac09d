package doctor

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat"
)

// oldestCore is the oldest rdma-core whose librdmacm can connect queue pairs of others.
const oldestCore = 23

func (d *doctor) devices() {
	loaded, err := cverbs.Libraries()
	if err != nil {
		advice := "" // the error contains the advice
		if err == cverbs.ErrNotSupported {
			advice = "build with cgo, on Linux"
		}
		d.find(Fail, advice, "verbs cannot be used: %v", err)
		return
	}
	for _, l := range loaded {
		level, advice := OK, ""
		if major, err := strconv.Atoi(strings.Split(l.Version, ".")[0]); err == nil && major < oldestCore {
			level, advice = Fail, fmt.Sprintf("install rdma-core %d or newer", oldestCore)
		}
		d.find(level, advice, "%s of rdma-core %s is %s", l.Name, cmp.Or(l.Version, "(version unknown)"), l.File)
	}
	all, err := cverbs.Devices()
	if err != nil {
		d.find(Fail, "", "devices cannot be listed: %v", err)
		return
	}
	d.libraries(all)
	if why := udat.WhyNoDevices(); why != nil && Worst(d.findings) < Fail { // otherwise the failure above says why
		d.find(Note, "", "%v", strings.ReplaceAll(why.Error(), "\n", "; "))
	}
	for _, dev := range all {
		if !slices.Contains(d.unusable, dev.Name) {
			d.device(dev)
		}
	}
	first := ""
	for _, p := range udat.Providers() {
		level, advice := OK, ""
		switch {
		case p.Fabric == "verbs" && !p.Active:
			level, advice = Note, "bring the port up: cable, switch, or ip link set NETDEV up"
		case p.Fabric == "verbs" && p.Addr == "":
			level, advice = Note, "give its network device an IP address: the connection manager needs one"
		}
		first = cmp.Or(first, advice)
		d.find(level, advice, "name %q: %s", p.Name, p.Detail) // the device is not opened here
	}
	if !slices.ContainsFunc(udat.Providers(), Usable) && Worst(d.findings) < Fail {
		advice := softDevice
		if first != "" {
			advice = first + "; " + useSoftware
		}
		d.find(Fail, advice, "no verbs device can be used")
	}
}

// libraries reports the devices that the kernel has but libibverbs does not list, because it lacks
// a provider library for them. It skips the devices in d.unusable, because they have been reported
// before.
func (d *doctor) libraries(listed []cverbs.DeviceInfo) {
	entries, _ := os.ReadDir(d.path("sys/class/infiniband"))
	for _, e := range entries {
		name := e.Name()
		known := slices.ContainsFunc(listed, func(i cverbs.DeviceInfo) bool { return i.Name == name })
		if known || slices.Contains(d.unusable, name) {
			continue
		}
		library := "of its driver"
		if p := providers[d.rdma.devices[name].driver]; p != "" {
			library = fmt.Sprintf("lib%s-rdmav*.so", p)
		}
		d.find(Fail, "install the provider libraries, in a container too: apt install ibverbs-providers, or "+
			"dnf install libibverbs; they must be as new as libibverbs",
			"%s: the kernel has it, libibverbs does not: its provider library %s is missing or does not fit", name, library)
	}
}

func (d *doctor) device(dev cverbs.DeviceInfo) {
	ctx, err := cverbs.OpenDevice(dev.Name)
	if err != nil {
		d.find(Fail, "see the device files above", "%s: %v", dev.Name, err)
		return
	}
	defer ctx.Close()
	attr, err := ctx.QueryDevice()
	if err != nil {
		d.find(Fail, "", "%s: %v", dev.Name, err)
		return
	}
	d.find(OK, "", "%s: %v, firmware %s, up to %d queue pairs of %d requests, %d reads at once", dev.Name, dev.NodeType,
		attr.FirmwareVersion, attr.MaxQP, attr.MaxQPWR, attr.MaxQPInitRDAtom)
	d.registers(ctx)
	table, _ := ctx.GIDTable()
	for num := 1; num <= max(1, attr.PhysPortCnt); num++ {
		d.port(ctx, dev, uint8(num), table)
	}
}

func (d *doctor) port(ctx *cverbs.Context, dev cverbs.DeviceInfo, num uint8, table []cverbs.GIDEntry) {
	p, err := ctx.QueryPort(num)
	if err != nil {
		d.find(Fail, "", "%s port %d: %v", dev.Name, num, err)
		return
	}
	name := fmt.Sprintf("%s port %d", dev.Name, num)
	netdev := d.line(fmt.Sprintf("sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/0", dev.Name, num))
	if p.State == cverbs.PortActive {
		d.find(OK, "", "%s is %v over %v, MTU %d of at most %d", name, p.State, p.LinkLayer, p.ActiveMTU.Bytes(),
			p.MaxMTU.Bytes())
	} else {
		advice := "ip link set " + orName(netdev) + " up; cable, switch"
		if p.LinkLayer == cverbs.LinkLayerInfiniBand {
			advice = "cable, and a subnet manager (opensm) on the fabric"
		}
		d.find(Fail, advice, "%s is %v: nothing can be sent", name, p.State)
	}
	best, why, err := ctx.BestGID(num)
	if err != nil {
		d.find(Fail, "ip addr add ADDRESS/PREFIX dev "+orName(netdev), "%s: %v", name, err)
		return
	}
	for _, g := range table {
		if g.Port != num {
			continue
		}
		taken := ""
		if g.Index == best.Index {
			taken = ", taken: " + why
		}
		entry := strings.TrimSpace(fmt.Sprintf("%v %v %s", g.GID, g.Type, g.NetDev))
		d.find(OK, "", "%s GID %d: %s%s", name, g.Index, entry, taken)
	}
	d.mtu(name, best.NetDev, p)
	d.link(dev.Name, num, best.NetDev)
	if p.LinkLayer == cverbs.LinkLayerEthernet && best.NetDev != "" {
		d.subnets(name, best.NetDev)
	}
}

func orName(netdev string) string {
	if netdev == "" {
		return "NETDEV"
	}
	return netdev
}

// mtu adds a finding if the MTU of a port's network device limits the port's MTU. The network
// device's MTU must be about 60 bytes larger, for the headers of RoCE.
func (d *doctor) mtu(name, netdev string, p cverbs.PortAttr) {
	var have int
	if _, err := fmt.Sscan(d.line("sys/class/net/"+netdev+"/mtu"), &have); err != nil ||
		p.LinkLayer != cverbs.LinkLayerEthernet {
		return
	}
	if p.ActiveMTU < p.MaxMTU && p.ActiveMTU < cverbs.MTU4096 {
		d.find(Note, fmt.Sprintf("ip link set %s mtu 4200, on both ends and the switches between them", netdev),
			"%s carries %d bytes per packet, because %s has MTU %d", name, p.ActiveMTU.Bytes(), netdev, have)
	}
}
